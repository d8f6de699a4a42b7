"""Which workers serve a request: a decode worker, and before it a prefill worker where a pair is proved.

In: live endpoints, predicted path costs, proofs, load, a request's facts. Out: `Route` or `Refusal`. And who holds the
KV of a prompt: KV events, or prompts that were routed, in; tokens or bytes by worker out. May touch: nothing.
`chat_template` is a door of its own: Jinja2 is loaded only where prompts are tokenized.
"""

from hpcserve.routing.block_hashes import TOKEN_BYTES, Key, block_keys, packed_tokens
from hpcserve.routing.chat_messages import UnlikeEngineError
from hpcserve.routing.choose import choose
from hpcserve.routing.estimate import Demand, Estimate
from hpcserve.routing.event_order import EventOrder, Lost
from hpcserve.routing.kv_events import MOST_BATCH_BYTES, UnreadableEventsError, read_batch
from hpcserve.routing.kv_index import KvIndex
from hpcserve.routing.kv_intake import Intake, IntakeCounts
from hpcserve.routing.kv_trust import Evidence, Trust
from hpcserve.routing.load import UNKNOWN_PREFILL_MS, UNKNOWN_STEP_MS, Load, Typical
from hpcserve.routing.pairing import mismatch
from hpcserve.routing.paths import PathTimes
from hpcserve.routing.prefix_memory import PrefixMemory
from hpcserve.routing.route import Preferences, Refusal, Route, preferences_of
from hpcserve.routing.table import Pair, Table, pair_of, table_of

__all__ = [
    "MOST_BATCH_BYTES",
    "TOKEN_BYTES",
    "UNKNOWN_PREFILL_MS",
    "UNKNOWN_STEP_MS",
    "Demand",
    "Estimate",
    "EventOrder",
    "Evidence",
    "Intake",
    "IntakeCounts",
    "Key",
    "KvIndex",
    "Load",
    "Lost",
    "Pair",
    "PathTimes",
    "Preferences",
    "PrefixMemory",
    "Refusal",
    "Route",
    "Table",
    "Trust",
    "Typical",
    "UnlikeEngineError",
    "UnreadableEventsError",
    "block_keys",
    "choose",
    "mismatch",
    "packed_tokens",
    "pair_of",
    "preferences_of",
    "read_batch",
    "table_of",
]
