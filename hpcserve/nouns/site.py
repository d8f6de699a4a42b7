"""`Site`: what an admin wrote about one cluster."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import HostList, Name, Noun, Subnet, Text
from hpcserve.nouns.dialect import Partition, SlurmDialect
from hpcserve.nouns.node_type import NodeType
from hpcserve.nouns.runtime import Runtime, Transport
from hpcserve.nouns.switches import Block, NvlinkDomain, Switch

__all__ = ["Network", "Networks", "NodeGroup", "Paths", "Site"]


class NodeGroup(Noun):
    """Nodes of one type, with the features that Slurm's `--constraint` takes."""

    hosts: HostList
    """Nodes, by the names that Slurm has for them; each stands once."""
    type: Name
    """A key of `node_types`."""
    features: tuple[Text, ...] = ()
    """The features that Slurm's `--constraint` takes."""


class Network(Noun):
    """How a node's address on a network is found: the interface that carries it, or the subnet it lies in."""

    interface: Text | None = None
    """The interface that carries it, `ib0`."""
    subnet: Subnet | None = None
    """The subnet that the address lies in. At least one of the two is given; with both, both must fit."""


class Networks(Noun):
    """The control network (HTTP, agents) and the data network (KV)."""

    control: Network
    """For HTTP and the agents."""
    data: Network
    """For KV and its handshake."""


class Paths(Noun):
    """Directories that every node sees under the same name; `~` is the user's home."""

    jobs: Text
    """Where job directories are made, `~` allowed; a filesystem that all nodes share."""
    models: Text
    """Where models lie."""
    cache: Text
    """Where hpcserve may keep what it can make again."""


class Site(Noun):
    """One cluster. No field that a machine decides has a default."""

    schema_: Annotated[Literal["hpcserve.site/1"], Field(alias="schema")]
    """Says which form this file has."""
    name: Name
    """Name of the site; call the file `NAME.yaml`, as `--site` looks for that."""
    description: Text
    """One line for `hpcserve site list`."""
    node_types: Annotated[dict[Name, NodeType], Field(min_length=1)]
    """The kinds of nodes; see below."""
    nodes: Annotated[tuple[NodeGroup, ...], Field(min_length=1)]
    """Which nodes are of which type."""
    partitions: dict[Name, Partition]
    """Slurm's partitions that services may use; `{}` where there is no Slurm."""
    switches: Annotated[tuple[Switch, ...], Field(min_length=1)]
    """The fabric; see below."""
    nvlink_domains: tuple[NvlinkDomain, ...] = ()
    """Nodes joined by NVLink across nodes (NVL72); see below."""
    blocks: tuple[Block, ...] = ()
    """The base blocks of Slurm's topology/block; see below."""
    networks: Networks
    """Where HTTP goes and where KV goes."""
    slurm: SlurmDialect | None
    """How this Slurm is asked; null where there is none (the `local` launcher)."""
    transport: Transport
    """What moves KV on the data network."""
    runtimes: dict[Name, Runtime]
    """How a shell enters each environment: `hpcserve`, and one for each engine."""
    paths: Paths
    """Directories that every node sees under the same name."""
