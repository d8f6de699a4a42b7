"""`Allocation`: the nodes that were granted, as each node's agent found them."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Name, Noun, PositiveInt, Text
from hpcserve.nouns.plan import Port

__all__ = ["Allocation", "EngineFacts", "GrantedGpu", "GrantedNode"]


class EngineFacts(Noun):
    """What the engine installed on a node says of itself."""

    name: Literal["vllm", "sim"]
    version: Text
    platform: Literal["cpu", "cuda", "rocm", "simulated"]
    kv_connectors: tuple[Text, ...]
    """Connector names it accepts, e.g. `NixlConnector`."""
    nixl_version: Text | None
    kv_options: tuple[Text, ...] | None = None
    """KV-transfer settings that it knows, e.g. `kv_lease_duration`; None: not looked for, today's are assumed."""


class GrantedGpu(Noun):
    """One GPU that Slurm granted on a node. `uuid` is None for CPU slots."""

    index: Annotated[int, Field(ge=0)]
    uuid: Text | None
    bus_id: Text | None = None


class GrantedNode(Noun):
    """One node as its agent found it; written to `nodes/NAME.json` in the job directory."""

    schema_: Annotated[Literal["hpcserve.node/1"], Field(alias="schema")] = "hpcserve.node/1"
    name: Name
    hostname: Text
    control_address: Text
    data_address: Text
    cores: Annotated[tuple[int, ...], Field(min_length=1)]
    gpus: tuple[GrantedGpu, ...]
    engine: EngineFacts
    ports: tuple[tuple[Port, PositiveInt], ...]
    """Contiguous blocks of ports that the agent holds, as (first, count): one per GPU slot, one more for a router."""
    agent_pid: PositiveInt
    generation: Text


class Allocation(Noun):
    """All granted nodes, in Slurm's order; the first is the head node."""

    nodes: Annotated[tuple[GrantedNode, ...], Field(min_length=1)]

    def node(self, name: str) -> GrantedNode:
        """The node of that name; KeyError where there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)
