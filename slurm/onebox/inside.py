"""Commands for a cluster that is up: run something inside it, change one of its links."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from slurm.onebox import namespaces, network, state
from slurm.onebox.errors import NotUpError
from slurm.onebox.interruption import Interruption
from slurm.onebox.layout import CONTROLLER, Cluster, write_rate
from slurm.onebox.terminal import complain, say

# As env(1) and the shell have them: the command could not be run, or was not found.
NOT_RUN, NOT_FOUND = 126, 127


def _cluster(name: str) -> Cluster:
    record = state.read(name)
    if record is None or not record.complete or not namespaces.complete(record.cluster):
        raise NotUpError(f"{name} is not up; take it up: slurm/cluster up --name {name}")
    return record.cluster


def execute(name: str, command: list[str]) -> NoReturn:
    """Become `command` on the cluster's controller host, `ctl`, as on a login node.

    Same process: signals, exit code, working directory and standard streams are the command's own.
    Of the environment only SLURM_CONF changes. Raises NotUpError.
    """
    cluster = _cluster(name)
    namespaces.enter_host(cluster, CONTROLLER)
    environment = {**os.environ, "SLURM_CONF": str(cluster.slurm_conf)}
    # Python ignores these two; the command shall start with the usual handling.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  (to become the command is the purpose)
    except FileNotFoundError:
        complain(f"{command[0]}: command not found")
        sys.exit(NOT_FOUND)
    except OSError as error:
        complain(f"{command[0]}: {error.strerror}")
        sys.exit(NOT_RUN)


def change_link(name: str, link_name: str, *, rate_bit_per_s: int | None, up: bool | None) -> None:
    """Change a link's rate, cut it (`up` False), mend it (True), or all at once; prints what it now is."""
    with Interruption() as interruption, state.locked(name, interruption):
        cluster = _cluster(name)
        link = cluster.link(link_name)
        if rate_bit_per_s is not None:
            network.change_rate(cluster, link, rate_bit_per_s)
        if up is not None:
            (network.mend if up else network.cut)(cluster, link)
        now = next(one for one in network.link_states(cluster) if one.name == link_name)
    say(f"{name}: {now.name} {write_rate(now.rate_bit_per_s)} {'up' if now.up else 'down'}")
