"""`Endpoint`: a worker that is alive. `Heartbeat`: the pulse of one node."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Name, Noun, PositiveInt, Text
from hpcserve.nouns.service import Role

__all__ = ["Endpoint", "Handoff", "Heartbeat"]


class Handoff(Noun):
    """What two engines must agree on to hand KV over, and how the handoff is asked for."""

    kind: Literal["nixl-pull"]
    connector: Text
    connector_version: Text
    block_size: PositiveInt
    kv_dtype: Text
    tensor_parallel: PositiveInt
    lease_s: PositiveInt
    """How long the prefill worker keeps KV that nobody has pulled."""


class Endpoint(Noun):
    """One live worker; `endpoints/ID.json` in the job directory, written on events only."""

    schema_: Annotated[Literal["hpcserve.endpoint/1"], Field(alias="schema")] = "hpcserve.endpoint/1"
    id: Name
    generation: Text
    """New for every start: a restarted worker is a new worker."""
    role: Role
    url: Annotated[str, Field(pattern=r"^http://[^/]+$")]
    node: Name
    pid: PositiveInt
    model: Text
    """The served name."""
    engine: Literal["vllm", "sim"]
    engine_version: Text
    handoff: Handoff | None
    """None for an aggregated worker."""
    max_model_len: PositiveInt | None = None
    events_url: Text | None = None
    """ZeroMQ address at which it publishes KV events; None where it does not."""
    events_replay_url: Text | None = None
    """ZeroMQ address at which it repeats them."""
    draining: bool = False
    simulated: bool = False


class Heartbeat(Noun):
    """`heartbeats/NODE.json`: judged by the change of `count` on the reader's own clock, never by a time-stamp."""

    schema_: Annotated[Literal["hpcserve.heartbeat/1"], Field(alias="schema")] = "hpcserve.heartbeat/1"
    node: Name
    generation: Text
    count: Annotated[int, Field(ge=0)]
    written_unix_s: float
    """The writer's clock; used only to warn about skew."""
