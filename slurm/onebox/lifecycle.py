"""Takes a cluster up and down, and makes it whole again after a crash."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

from slurm.onebox import accounting, daemons, files, namespaces, network, requirements, roster, state
from slurm.onebox.errors import ClusterError, CommandError, UsageError
from slurm.onebox.inspection import node_states, unsettled
from slurm.onebox.interruption import Interruption
from slurm.onebox.layout import Cluster, Options, lay_out, write_rate
from slurm.onebox.processes import end
from slurm.onebox.roster import Daemon
from slurm.onebox.terminal import say

_POLL_S = 0.05
_SERVICE_WITHIN_S = 60.0
# A node's first word takes a fraction of a second; this is for a machine that is busy with other work.
_NODES_WITHIN_S = 120.0
_DAEMONS_GRACE_S = 5.0


def _say(cluster: Cluster, words: str) -> None:
    say(f"{cluster.name}: {words}")


def up(name: str, options: Options) -> None:
    """Take the cluster up; returns when all nodes are idle.

    One that is up stays as it is; one that lost daemons gets them back and keeps its jobs; what an
    interrupted start or a reboot left is cleared first. A start that fails or is interrupted leaves
    nothing. Raises ClusterError.
    """
    planned = lay_out(name, state.root() / name, options)
    _refuse_inside("up")
    with Interruption() as interruption, state.locked(name, interruption):
        record = state.read(name)
        if record is not None and record.complete and namespaces.identities(record.cluster):
            if record.cluster.options != options:
                raise UsageError(_difference(record.cluster, options))
            if namespaces.complete(record.cluster):
                _make_whole(record.cluster, interruption)
                return
        requirements.require(accounting=options.accounting, directory=state.make_root())
        if record is not None:
            _say(planned, "clearing what an earlier start left")
            _take_down(record.cluster, keep_logs=False)
        _take_up(planned, interruption)


def _refuse_inside(verb: str) -> None:
    # What is mounted inside is seen by nobody else, and a cluster cannot end its own last process.
    for record in state.records():
        if namespaces.inside_of(record.cluster):
            raise UsageError(f"{verb}: this is inside the cluster {record.cluster.name}; leave its `exec` or job first")


def _difference(cluster: Cluster, options: Options) -> str:
    def words(chosen: Options) -> str:
        return (
            f"--nodes {chosen.nodes} --leaves {chosen.leaves} --gpus {chosen.gpus}"
            f" --node-rate {write_rate(chosen.node_rate_bit_per_s)}"
            f" --uplink-rate {write_rate(chosen.uplink_rate_bit_per_s)} --accounting {chosen.accounting}"
        )

    return (
        f"{cluster.name} is up with other options:\n  it has    {words(cluster.options)}\n"
        f"  you asked {words(options)}\n"
        f"take it down first (`slurm/cluster down --name {cluster.name}`), or choose another --name"
    )


def _take_up(cluster: Cluster, interruption: Interruption) -> None:
    began = time.monotonic()
    cluster.directory.mkdir(mode=0o700, exist_ok=True)
    try:
        state.write(state.Record(cluster=cluster, complete=False))
        _write_files(cluster)
        interruption.check()
        network.build(cluster)
        options = cluster.options
        _say(
            cluster,
            f"network of {options.nodes} nodes on {options.leaves} leaves,"
            f" {write_rate(options.node_rate_bit_per_s)} a node,"
            f" {write_rate(options.uplink_rate_bit_per_s)} an uplink",
        )
        if options.accounting == "slurmdbd":
            accounting.prepare(cluster)
        interruption.check()
        _start_all(cluster, interruption)
        state.write(state.Record(cluster=cluster, complete=True))
    except Exception as reason:
        try:
            _take_down(cluster, keep_logs=False)
        except ClusterError as remains:
            raise ClusterError(f"{reason}\nand then: {remains}") from reason
        raise
    _say(cluster, f"up after {time.monotonic() - began:.1f} s; try: slurm/cluster exec --name {cluster.name} sinfo")


def _make_whole(cluster: Cluster, interruption: Interruption) -> None:
    dead = [daemon.name for daemon in roster.roster(cluster) if daemons.find(cluster, daemon) is None]
    if dead:
        _say(cluster, f"starting again: {', '.join(dead)}")
    _start_all(cluster, interruption)
    _say(cluster, "up again" if dead else "already up")


def _write_files(cluster: Cluster) -> None:
    for folder in files.folders(cluster):
        (cluster.directory / folder).mkdir()
    for file_name, text in files.configuration(cluster).items():
        (cluster.etc / file_name).write_text(text)
    key = cluster.directory / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    for number in range(cluster.options.gpus):
        _make_gpu(cluster.directory / f"dev/gpu{number}")


def _make_gpu(path: Path) -> None:
    # Slurm takes only devices for GPUs; these are further names of /dev/null (major 1, minor 3).
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


def _start_all(cluster: Cluster, interruption: Interruption) -> None:
    """Start each daemon that does not run, in the order in which they need each other."""

    def begin(daemon: Daemon, serves: Callable[[], bool]) -> None:
        if daemons.find(cluster, daemon) is None:
            daemons.start(cluster, daemon)
        _await(
            cluster,
            serves,
            running=(daemon,),
            what=f"{daemon.name} to serve",
            within_s=_SERVICE_WITHIN_S,
            interruption=interruption,
        )

    begin(roster.munged(cluster), cluster.munge_socket.is_socket)
    if cluster.options.accounting == "slurmdbd":
        begin(roster.mariadbd(cluster), lambda: _succeeds(accounting.database_answers, cluster))
        accounting.make_user(cluster)
        begin(roster.slurmdbd(), lambda: _succeeds(accounting.register, cluster))
    begin(roster.slurmctld(cluster), lambda: _succeeds(node_states, cluster))
    nodes = roster.slurmds(cluster)
    for daemon in nodes:
        if daemons.find(cluster, daemon) is None:
            daemons.start(cluster, daemon)
    _await(
        cluster,
        lambda: not unsettled(cluster),
        running=(roster.slurmctld(cluster), *nodes),
        what="all nodes to be ready",
        within_s=_NODES_WITHIN_S,
        interruption=interruption,
    )


def _succeeds(attempt: Callable[[Cluster], object], cluster: Cluster) -> bool:
    try:
        attempt(cluster)
    except CommandError:
        return False
    return True


def _await(
    cluster: Cluster,
    ready: Callable[[], bool],
    *,
    running: tuple[Daemon, ...],
    what: str,
    within_s: float,
    interruption: Interruption,
) -> None:
    deadline = time.monotonic() + within_s
    while not ready():
        for daemon in running:
            if daemons.find(cluster, daemon) is None:
                raise ClusterError(daemons.ended(cluster, daemon))
        if time.monotonic() > deadline:
            words = "\n".join(daemons.last_words(cluster, daemon) for daemon in running)
            raise ClusterError(f"waited {within_s:.0f} s for {what}\n{words}")
        interruption.sleep(_POLL_S)


def down(name: str, *, keep_logs: bool) -> None:
    """Take the cluster down, whatever state it is in: jobs, daemons, namespaces, files.

    `keep_logs` leaves its `log` folder. Raises ClusterError.
    """
    _refuse_inside("down")
    with Interruption() as interruption, state.locked(name, interruption):
        record = state.read(name)
        if record is None:
            directory = state.root() / name
            if directory.exists():
                directory.rmdir()
            say(f"{name}: is down")
            return
        _take_down(record.cluster, keep_logs=keep_logs)
        _say(record.cluster, f"down; its logs are in {record.cluster.log}" if keep_logs else "down")


def _take_down(cluster: Cluster, *, keep_logs: bool) -> None:
    known = [daemons.find(cluster, daemon) for daemon in roster.roster(cluster)]
    # The daemons first and each by itself: what they hold on disk is then whole in the kept logs.
    end([one for one in known if one is not None], grace_s=_DAEMONS_GRACE_S)
    inside = namespaces.identities(cluster)
    namespaces.end_inhabitants(inside)
    namespaces.remove(cluster)
    # Once more for what was just entering a namespace when its file went.
    namespaces.end_inhabitants(inside)
    state.clear(cluster, keep_logs=keep_logs)
