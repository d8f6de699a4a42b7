"""What the cluster is doing: its nodes as Slurm sees them, its daemons, its links."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial

from slurm.onebox import daemons, namespaces, network, roster, state
from slurm.onebox.errors import ClusterError
from slurm.onebox.layout import CONTROLLER, Cluster, write_rate
from slurm.onebox.processes import run

SCHEMA = "hpcserve.onebox.status/1"
_SINFO_WITHIN_S = 20.0


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """A node's state as Slurm says it (`idle`, `mixed`, `down*`), and the reason where it gives one."""

    name: str
    state: str
    reason: str

    @property
    def usable(self) -> bool:
        """Whether jobs can run there: it answers, and is neither down nor drained."""
        return not self.state.endswith("*") and not self.state.startswith(
            ("down", "drain", "fail", "unk", "inval", "error")
        )


def node_states(cluster: Cluster) -> tuple[NodeState, ...]:
    """Every node as slurmctld sees it. Raises CommandError where slurmctld does not answer."""
    printed = run(
        ["sinfo", "--noheader", "--Node", "--format=%N|%T|%E"],
        inside=partial(namespaces.enter_host, cluster, CONTROLLER),
        environment=daemons.environment(cluster),
        within_s=_SINFO_WITHIN_S,
    )
    rows = [line.strip().split("|", 2) for line in printed.splitlines() if line.strip()]
    return tuple(
        NodeState(name=name, state=word, reason="" if reason == "none" else reason) for name, word, reason in rows
    )


def unsettled(cluster: Cluster) -> list[str]:
    """The nodes that have not reported to slurmctld yet; one that somebody drained has."""
    return [
        one.name
        for one in node_states(cluster)
        if not one.usable and (one.state.endswith("*") or not one.state.startswith("drain"))
    ]


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """One node for `status`."""

    name: str
    leaf: str
    slurm_state: str
    control_address: str
    data_address: str
    data_rate_bit_per_s: int
    data_link: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """The cluster for `status`: `up`, `degraded` (with the problems), or `down`."""

    name: str
    state: str
    directory: str
    slurm_conf: str = ""
    nodes: tuple[NodeStatus, ...] = ()
    uplink_rate_bit_per_s: dict[str, int] | None = None
    problems: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """What `status` ends with."""
        return {"up": 0, "degraded": 1, "down": 3}[self.state]

    def as_json(self) -> str:
        """For programs; the fields are this class's."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2)

    def as_text(self) -> str:
        """For people."""
        lines = [f"{self.name}: {self.state}"]
        lines += [f"  problem: {problem}" for problem in self.problems]
        for node in self.nodes:
            lines.append(
                f"  {node.name}  {node.leaf}  {node.slurm_state:<12} control {node.control_address:<15}"
                f" data {node.data_address:<15} {write_rate(node.data_rate_bit_per_s)} {node.data_link}"
            )
        for leaf, rate_bit_per_s in (self.uplink_rate_bit_per_s or {}).items():
            lines.append(f"  {leaf} to spine  {write_rate(rate_bit_per_s)}")
        if self.slurm_conf:
            lines.append(f"  SLURM_CONF={self.slurm_conf}")
        return "\n".join(lines)


def look(name: str) -> Status:
    """The status of the cluster of that name."""
    directory = str(state.root() / name)
    record = state.read(name)
    if record is None:
        return Status(name=name, state="down", directory=directory)
    cluster = record.cluster
    existing = namespaces.identities(cluster)
    if not existing:
        return Status(name=name, state="down", directory=directory)
    if not (record.complete and namespaces.complete(cluster)):
        problem = "it is being started or taken down, or such a command was killed; `up` or `down` clears it"
        return Status(name=name, state="degraded", directory=directory, problems=(problem,))
    dead = [daemon.name for daemon in roster.roster(cluster) if daemons.find(cluster, daemon) is None]
    problems = [f"{name} does not run; `up` starts it again" for name in dead]
    states: dict[str, NodeState] = {}
    if "slurmctld" not in dead:  # without it sinfo would try for the whole of MessageTimeout
        try:
            states = {one.name: one for one in node_states(cluster)}
        except ClusterError as error:
            problems.append(str(error))
    problems += [
        f"{one.name} is {one.state}{f' ({one.reason})' if one.reason else ''}"
        for one in states.values()
        if not one.usable
    ]
    links = {link.name: link for link in network.link_states(cluster)}
    problems += [f"the data link of {link.name} is down" for link in links.values() if not link.up]
    return Status(
        name=name,
        state="degraded" if problems else "up",
        directory=directory,
        slurm_conf=str(cluster.slurm_conf),
        nodes=tuple(
            NodeStatus(
                name=node.name,
                leaf=node.leaf,
                slurm_state=states[node.name].state if node.name in states else "unknown",
                control_address=node.control_address,
                data_address=node.data_address,
                data_rate_bit_per_s=links[node.name].rate_bit_per_s,
                data_link="up" if links[node.name].up else "down",
            )
            for node in cluster.nodes
        ),
        uplink_rate_bit_per_s={leaf: links[leaf].rate_bit_per_s for leaf in cluster.leaves},
        problems=tuple(problems),
    )
