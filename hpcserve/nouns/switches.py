"""What joins nodes: `Switch`, `Block`, `NvlinkDomain`."""

from typing import Annotated

from pydantic import Field

from hpcserve.nouns.base import HostList, Name, Noun, Text
from hpcserve.nouns.rate import Rate

__all__ = ["Block", "NvlinkDomain", "Switch"]


class Switch(Noun):
    """One switch: a leaf has `hosts`, an upper one `switches` (host-list syntax of names); exactly one of the two.

    `uplink` is the one-way rate of all links together from this switch to its parent; a root has none, nor do the
    members of a switch with `mesh`.
    """

    name: Name
    """Name of the switch; with Slurm's tree topology, the same as in `topology.conf`."""
    hosts: HostList | None = None
    """Nodes that are plugged into it."""
    switches: HostList | None = None
    """Switches below it, `leaf[1-2]`."""
    uplink: Rate | None = None
    """One-way rate of all its links to the switch above together; a switch at the top has none, nor has a member of a
    `mesh`; every other must."""
    rail: Annotated[int, Field(ge=0)] | None = None
    """A leaf of a rail-optimised fabric: of its hosts only the NICs of this rail are plugged into it."""
    mesh: Rate | None = None
    """A dragonfly group or a whole dragonfly: no switch, but direct links, of this one-way rate between each pair of
    its `switches`."""


class Block(Noun):
    """One base block of Slurm's topology/block."""

    name: Name
    """Name of the block, as in `topology.conf` or `topology.yaml`."""
    hosts: HostList
    """Its nodes; each is in one block at most."""


class NvlinkDomain(Noun):
    """Nodes whose GPUs reach one another by NVLink across nodes (NVL72), at `rate` (one-way, per GPU).

    `cluster_uuid` and `clique` are what `nvidia-smi -q` prints under Fabric; GPUs with another clique are elsewhere.
    """

    name: Name
    """Name of the domain, such as the rack's."""
    hosts: HostList
    """Its nodes; each is in one domain at most."""
    rate: Rate
    """One-way rate of one GPU into the domain."""
    cluster_uuid: Text | None = None
    """As `nvidia-smi -q` prints it under Fabric; not the zeros that nodes outside any domain print."""
    clique: Annotated[int, Field(ge=0)] | None = None
    """As `nvidia-smi -q` prints it under Fabric; another clique is another domain."""
