"""Text <-> nouns: YAML that people write, JSON that hpcserve writes.

In: text and the name of its source. Out: nouns, or every mistake at once as `file:line:column`. Touches: nothing.
"""

from hpcserve.wire.decode import Complaint, decode_yaml, plain_yaml
from hpcserve.wire.records import UnreadableRecordError, decode_record, encode_record, encode_yaml

__all__ = [
    "Complaint",
    "UnreadableRecordError",
    "decode_record",
    "decode_yaml",
    "encode_record",
    "encode_yaml",
    "plain_yaml",
]
