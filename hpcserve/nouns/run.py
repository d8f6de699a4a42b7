"""`Run`: one measured stretch, with everything needed to read it anywhere, any time."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Name, Noun, Positive, PositiveInt, Text
from hpcserve.nouns.plan import Plan
from hpcserve.nouns.service import Service
from hpcserve.nouns.site import Site

__all__ = ["Load", "Run", "Sample", "Transfers", "Validity"]

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class Sample(Noun):
    """One request as the client saw it."""

    start_s: float
    """Since the start of the run."""
    input_tokens: Count
    output_tokens: Count
    ttft_ms: NonNegative | None
    """None where no token came."""
    tpot_ms: NonNegative | None
    """Mean time per output token after the first; None for fewer than two tokens."""
    error: str = ""


class Transfers(Noun):
    """KV transfers of the run, from the change of the decode workers' counters."""

    count: Count
    bytes: Count
    failed: Count
    seconds: NonNegative
    """Sum of the transfers' own times."""
    each_ms: tuple[NonNegative, ...] = ()
    """Each transfer's own time, only for runs of kind `alone`."""


class Load(Noun):
    """What was offered."""

    kind: Literal["alone", "rate"]
    """`alone`: one request after another; `rate`: Poisson arrivals at `request_rate`."""
    request_rate: Positive | None
    """Requests/s; None for `alone`."""
    requests: PositiveInt
    input_tokens: PositiveInt
    """Whole prompt, cached prefix included."""
    cached_prefix_tokens: Count
    output_tokens: PositiveInt
    seed: int
    generator: Text
    """Name and version of the load generator."""
    argv: tuple[str, ...] = ()


class Validity(Noun):
    """Whether the run's numbers may be used; `reasons` is empty exactly when it may."""

    valid: bool
    reasons: tuple[Text, ...] = ()


class Run(Noun):
    """One measured point; one file, written the moment it ends."""

    schema_: Annotated[Literal["hpcserve.run/1"], Field(alias="schema")] = "hpcserve.run/1"
    id: Name
    """`PLACEMENT.alone` or `PLACEMENT.rate-R` with `.rN` for repetitions."""
    sweep: Text
    placement: Text
    repetition: PositiveInt = 1
    started_utc: Text
    ended_utc: Text
    simulated: bool
    plan: Plan | None
    """None where the placement could not be realised; the validity says why."""
    service: Service
    site: Site
    environment: dict[str, str]
    """Versions, host, Slurm job, CPU pressure: whatever a reader needs to judge the numbers."""
    load: Load
    samples: tuple[Sample, ...]
    duration_s: NonNegative
    transfers: Transfers | None
    predicted_transfer_ms: Positive | None
    validity: Validity
