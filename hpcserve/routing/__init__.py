"""Which workers serve a request: a decode worker, and before it a prefill worker where a pair is proved.

In: live endpoints, predicted path costs, proofs, load, a request's facts. Out: `Route` or `Refusal`.
May touch: nothing.
"""

from hpcserve.routing.choose import Refusal, Route, choose
from hpcserve.routing.load import Load, Typical
from hpcserve.routing.pairing import mismatch
from hpcserve.routing.table import Pair, Table, pair_of, table_of

__all__ = [
    "Load",
    "Pair",
    "Refusal",
    "Route",
    "Table",
    "Typical",
    "choose",
    "mismatch",
    "pair_of",
    "table_of",
]
