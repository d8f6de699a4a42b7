"""What a cluster consists of: nodes, leaves, links, addresses. Pure: options in, a `Cluster` out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slurm.onebox.errors import UsageError

# RFC 2544 benchmark ranges: never routed, and only ever used inside the cluster's own namespaces.
CONTROL_NETWORK = "198.18.77"
DATA_NETWORK = "198.19.77"
CONTROLLER = "ctl"
CONTROLLER_HOST_NUMBER = 254
FABRIC = "fab"

# What each node claims to have (slurmd runs with config_overrides: nothing is checked against the
# machine). Enough for every job of a small P/D service, whatever the machine is.
CPUS_PER_NODE = 8
MEMORY_PER_NODE_MB = 16_000

MOST_NODES = 64
MOST_GPUS_PER_NODE = 16
# A unix socket's path holds 107 bytes (sun_path in unix(7)); Slurm adds up to 40 to the directory.
LONGEST_DIRECTORY = 64

# Below this one packet takes seconds.
LOWEST_RATE_BIT_PER_S = 8_000

_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmg]?)bit")
_BITS_PER_S = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def parse_rate(text: str) -> int:
    """Bits per second of a rate written as `tc` writes it: `200mbit`, `1gbit`, `2.5gbit`.

    Raises UsageError for anything else, and below 8 kbit/s.
    """
    match = _RATE.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"rate: {text!r}; wanted a number with kbit, mbit or gbit, such as 200mbit")
    rate_bit_per_s = round(float(match[1]) * _BITS_PER_S[match[2]])
    if rate_bit_per_s < LOWEST_RATE_BIT_PER_S:
        raise UsageError(f"rate: {text!r}; wanted 8kbit or more (to cut a link, use --down)")
    return rate_bit_per_s


def write_rate(rate_bit_per_s: int) -> str:
    """The shortest text that `parse_rate` reads back as the same rate."""
    for letter in "gm":
        if rate_bit_per_s % (_BITS_PER_S[letter] // 1000) == 0 and rate_bit_per_s >= _BITS_PER_S[letter]:
            return f"{rate_bit_per_s / _BITS_PER_S[letter]:.3f}".rstrip("0").rstrip(".") + f"{letter}bit"
    return f"{rate_bit_per_s / 1000:.3f}".rstrip("0").rstrip(".") + "kbit"


def host_list(names: tuple[str, ...]) -> str:
    """Consecutive numbered names as Slurm writes them: `node[01-04]`, or the one name."""
    if len(names) == 1:
        return names[0]
    stem = names[0].rstrip("0123456789")
    return f"{stem}[{names[0][len(stem) :]}-{names[-1][len(stem) :]}]"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user chose. Two clusters with equal options are the same cluster."""

    nodes: int = 4
    leaves: int = 2
    gpus: int = 1
    node_rate_bit_per_s: int = 1_000_000_000
    uplink_rate_bit_per_s: int = 200_000_000
    accounting: str = "none"


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node: a namespace with a control interface (`ctl0`) and a data interface (`data0`)."""

    name: str
    leaf: str
    control_address: str
    data_address: str


@dataclass(frozen=True, kw_only=True)
class End:
    """One end of a link: a device in a namespace."""

    namespace: str
    device: str


@dataclass(frozen=True, kw_only=True)
class Link:
    """A cable of the data network, shaped at both ends.

    `far` is the end nearer to the spine; a cut link is that end taken down, so that the near end
    loses its carrier as with a pulled cable.
    """

    name: str
    near: End
    far: End
    rate_bit_per_s: int


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Everything about one cluster that is known before anything of it runs."""

    name: str
    directory: Path
    options: Options
    nodes: tuple[Node, ...]
    controller: Node
    leaves: tuple[str, ...]
    links: tuple[Link, ...]

    @property
    def etc(self) -> Path:
        """The folder that takes the place of `/etc/slurm` inside the cluster."""
        return self.directory / "etc"

    @property
    def slurm_conf(self) -> Path:
        """What SLURM_CONF is inside the cluster."""
        return self.etc / "slurm.conf"

    @property
    def log(self) -> Path:
        """The folder of the daemons' logs."""
        return self.directory / "log"

    @property
    def run(self) -> Path:
        """The folder of sockets and process records."""
        return self.directory / "run"

    @property
    def tmp(self) -> Path:
        """The folder of temporary files, one below it for each node."""
        return self.directory / "tmp"

    @property
    def munge_socket(self) -> Path:
        """Where the cluster's munge listens."""
        return self.run / "munge.socket"

    @property
    def hosts(self) -> tuple[Node, ...]:
        """The controller and then the nodes."""
        return (self.controller, *self.nodes)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The names of all namespaces, the switches' first."""
        return (FABRIC, *(host.name for host in self.hosts))

    def namespace_file(self, namespace: str) -> Path:
        """Where the network namespace of that name is kept (a bind mount of nsfs)."""
        return self.directory / "namespaces" / namespace

    def nodes_of(self, leaf: str) -> tuple[str, ...]:
        """The names of the nodes on a leaf, in order."""
        return tuple(node.name for node in self.nodes if node.leaf == leaf)

    def link(self, name: str) -> Link:
        """The link of a node (`node01`) or the uplink of a leaf (`leaf1`).

        Raises UsageError with the names that there are.
        """
        for link in self.links:
            if link.name == name:
                return link
        raise UsageError(f"link: {name!r}; wanted one of {', '.join(link.name for link in self.links)}")


def _check(name: str, directory: Path, options: Options) -> None:
    mistakes = []
    if _NAME.fullmatch(name) is None:
        mistakes.append(f"--name {name!r}; wanted a lower-case letter, then up to 19 of a-z, 0-9, -")
    if not 1 <= options.nodes <= MOST_NODES:
        mistakes.append(f"--nodes {options.nodes}; wanted 1 to {MOST_NODES}")
    if not 1 <= options.leaves <= options.nodes:
        mistakes.append(f"--leaves {options.leaves}; wanted 1 to the number of nodes ({options.nodes})")
    if not 0 <= options.gpus <= MOST_GPUS_PER_NODE:
        mistakes.append(f"--gpus {options.gpus}; wanted 0 to {MOST_GPUS_PER_NODE} a node")
    if options.accounting not in ("none", "slurmdbd"):
        mistakes.append(f"--accounting {options.accounting!r}; wanted none or slurmdbd")
    if len(str(directory).encode()) > LONGEST_DIRECTORY:
        mistakes.append(
            f"directory {directory} has more than {LONGEST_DIRECTORY} bytes, too long for unix sockets;"
            " set HPCSERVE_CLUSTER_DIR to a shorter one"
        )
    if re.search(r"[\s#\"'\\%,=\[\]]", str(directory)):
        mistakes.append(
            f"directory {str(directory)!r}; Slurm's files cannot hold blanks or any of # \" ' \\ % , = [ ];"
            " set HPCSERVE_CLUSTER_DIR to another one"
        )
    if mistakes:
        raise UsageError("\n".join(mistakes))


def lay_out(name: str, directory: Path, options: Options) -> Cluster:
    """The cluster that these options describe, its files in `directory`.

    Nodes fill the leaves in order; where they do not divide evenly, the first leaves hold one more.
    Raises UsageError that lists every mistake.
    """
    _check(name, directory, options)
    leaves = tuple(f"leaf{number}" for number in range(1, options.leaves + 1))
    smallest, larger = divmod(options.nodes, options.leaves)
    leaf_of = [leaf for i, leaf in enumerate(leaves) for _ in range(smallest + (i < larger))]
    nodes = tuple(
        Node(
            name=f"node{number:02d}",
            leaf=leaf,
            control_address=f"{CONTROL_NETWORK}.{number}",
            data_address=f"{DATA_NETWORK}.{number}",
        )
        for number, leaf in enumerate(leaf_of, start=1)
    )
    controller = Node(
        name=CONTROLLER,
        leaf="spine",
        control_address=f"{CONTROL_NETWORK}.{CONTROLLER_HOST_NUMBER}",
        data_address=f"{DATA_NETWORK}.{CONTROLLER_HOST_NUMBER}",
    )
    node_links = tuple(
        Link(
            name=node.name,
            near=End(namespace=node.name, device="data0"),
            far=End(namespace=FABRIC, device=f"d-{node.name}"),
            rate_bit_per_s=options.node_rate_bit_per_s,
        )
        for node in nodes
    )
    uplinks = tuple(
        Link(
            name=leaf,
            near=End(namespace=FABRIC, device=f"{leaf}-up"),
            far=End(namespace=FABRIC, device=f"{leaf}-down"),
            rate_bit_per_s=options.uplink_rate_bit_per_s,
        )
        for leaf in leaves
    )
    return Cluster(
        name=name,
        directory=directory,
        options=options,
        nodes=nodes,
        controller=controller,
        leaves=leaves,
        links=node_links + uplinks,
    )
