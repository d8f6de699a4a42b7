"""Starts the cluster's daemons, each in the foreground of its host, and finds those that run."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

from slurm.onebox import namespaces
from slurm.onebox.errors import ClusterError
from slurm.onebox.layout import Cluster
from slurm.onebox.processes import SYSTEM_FOLDERS, Process, process, program
from slurm.onebox.roster import Daemon

_TAIL_LINES = 15


def _record(cluster: Cluster, daemon: Daemon) -> Path:
    return cluster.run / f"{daemon.name}.process"


def find(cluster: Cluster, daemon: Daemon) -> Process | None:
    """The daemon's process, where it runs."""
    try:
        pid, start_time = _record(cluster, daemon).read_text().split()
    except FileNotFoundError:
        return None
    known = Process(pid=int(pid), start_time=int(start_time))
    return known if known.alive() else None


def environment(cluster: Cluster) -> dict[str, str]:
    """All that a daemon gets: nothing of the caller's reaches jobs through it."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": f"{path}:{SYSTEM_FOLDERS}", "LC_ALL": "C.UTF-8", "SLURM_CONF": str(cluster.slurm_conf)}


def start(cluster: Cluster, daemon: Daemon) -> None:
    """Start the daemon on its host; returns as soon as it runs, before it serves."""
    path = program(daemon.arguments[0])
    if path is None:
        raise ClusterError(f"{daemon.arguments[0]} is not installed")
    with _output(cluster, daemon).open("ab") as output:
        started = subprocess.Popen(
            [path, *daemon.arguments[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cluster.directory,
            env=environment(cluster),
            preexec_fn=partial(namespaces.become_daemon_of, cluster, daemon.host),  # noqa: PLW1509  (no threads)
            start_new_session=True,
        )
    # It outlives this command: from here on it is known by its record and not as a child.
    started.returncode = 0
    running = process(started.pid)
    if running is None:
        raise ClusterError(ended(cluster, daemon))
    _record(cluster, daemon).write_text(f"{running.pid} {running.start_time}\n")


def _output(cluster: Cluster, daemon: Daemon) -> Path:
    return cluster.log / f"{daemon.name}.out"


def last_words(cluster: Cluster, daemon: Daemon) -> str:
    """The last lines that the daemon printed."""
    lines = _output(cluster, daemon).read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n    ".join([f"{daemon.name}'s last words:", *lines])


def ended(cluster: Cluster, daemon: Daemon) -> str:
    """Words for a daemon that ended by itself."""
    return f"{daemon.name} ended by itself\n{last_words(cluster, daemon)}"
