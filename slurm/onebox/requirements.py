"""What the cluster needs of this machine: tried, not guessed from the user's name or the distribution."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slurm.onebox import kernel
from slurm.onebox.errors import ClusterError, RequirementsError
from slurm.onebox.processes import program, run
from slurm.onebox.state import PROBE

# Debian 12's packages, and a program of each that the cluster runs.
_PROGRAMS = {
    "slurmctld": ("slurmctld",),
    "slurmd": ("slurmd",),
    "slurm-client": ("sinfo", "srun", "sbatch"),
    "munge": ("munged",),
    "iproute2": ("ip", "tc"),
}
_ACCOUNTING_PROGRAMS = {
    "slurmdbd": ("slurmdbd",),
    "mariadb-server": ("mariadbd", "mariadb-install-db"),
    "mariadb-client": ("mariadb",),
}
# Carries no program: a plugin that slurmdbd loads.
_ACCOUNTING_PLUGINS = ("slurm-wlm-mysql-plugin",)

WITHOUT_CLUSTER = "`hpcserve submit --launcher local` works without the cluster."


def packages(*, accounting: str = "none") -> tuple[str, ...]:
    """The Debian packages that a cluster with this accounting needs."""
    if accounting == "slurmdbd":
        return (*_PROGRAMS, *_ACCOUNTING_PROGRAMS, *_ACCOUNTING_PLUGINS)
    return tuple(_PROGRAMS)


@dataclass(frozen=True, kw_only=True)
class Lack:
    """One thing that is missing, and how to get it."""

    what: str
    remedy: str


def _missing_packages(accounting: str) -> list[Lack]:
    wanted = _PROGRAMS | (_ACCOUNTING_PROGRAMS if accounting == "slurmdbd" else {})
    absent = {package: [name for name in programs if program(name) is None] for package, programs in wanted.items()}
    lacking = [package for package, programs in absent.items() if programs]
    if not lacking:
        return []
    if accounting == "slurmdbd":
        lacking += _ACCOUNTING_PLUGINS
    programs = ", ".join(name for names in absent.values() for name in names)
    return [
        Lack(
            what=f"programs not found: {programs}",
            remedy=f"apt-get install -y --no-install-recommends {' '.join(lacking)}",
        )
    ]


def _in_child(attempt: Callable[[], None]) -> str | None:
    """Why an attempt in a process of its own fails; None when it succeeds."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 0
        try:
            attempt()
        except (OSError, ClusterError) as error:
            os.write(writer, str(error).encode()[:4000])
            code = 1
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        reason = said.read().decode(errors="replace")
    failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    return reason or "it ended without a word" if failed else None


def _make_namespaces() -> None:
    kernel.unshare(kernel.NEW_NETWORK | kernel.NEW_HOST_NAME | kernel.NEW_MOUNTS)


def _make_host(scratch: Path) -> None:
    _make_namespaces()
    socket.sethostname("node01")
    kernel.keep_mounts_to_self()
    kernel.bind("/etc/hosts", "/etc/hosts")
    kernel.mount_sysfs(scratch)
    kernel.move_mount(scratch, "/sys")


def _make_network() -> None:
    _make_namespaces()
    run(["ip", "-batch", "-"], text_in="link add cable0 type veth peer name cable1\nlink add switch0 type bridge\n")


def _shape() -> None:
    _make_namespaces()
    run(["tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "10"])


def _make_device(scratch: Path) -> None:
    os.mknod(scratch / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))


def _missing_in_kernel(directory: Path) -> list[Lack]:
    if reason := _in_child(_make_namespaces):
        return [
            Lack(
                what=f"network, host-name and mount namespaces cannot be made ({reason})",
                remedy="run as root; in a container, one with CAP_SYS_ADMIN and CAP_NET_ADMIN",
            )
        ]
    lacks = []
    with tempfile.TemporaryDirectory(dir=directory, prefix=f"{PROBE}{os.getpid()}-") as name:
        scratch = Path(name)
        attempts: list[tuple[Callable[[], None], str, str]] = [
            (
                lambda: _make_host(scratch),
                "a host of its own name with its own /etc/hosts and /sys cannot be made",
                "run as root; in a container, one that may mount (CAP_SYS_ADMIN, no mask over /sys)",
            ),
            (
                lambda: _make_device(scratch),
                f"character devices, which stand for GPUs, cannot be made in {directory}",
                "run as root with CAP_MKNOD, or set HPCSERVE_CLUSTER_DIR to another file system",
            ),
        ]
        if program("ip") is not None and program("tc") is not None:
            attempts += [
                (_make_network, "virtual cables and bridges cannot be made", "modprobe -a veth bridge"),
                (_shape, "links cannot be shaped with HTB", "modprobe sch_htb"),
            ]
        for attempt, what, remedy in attempts:
            if reason := _in_child(attempt):
                lacks.append(Lack(what=f"{what} ({reason})", remedy=remedy))
    return lacks


def require(*, accounting: str, directory: Path) -> None:
    """Pass where this machine can hold a cluster in `directory`.

    Raises RequirementsError that lists everything that is missing and how to get it.
    """
    lacks = _missing_packages(accounting) + _missing_in_kernel(directory)
    if lacks:
        lines = [f"- {lack.what}\n    get it: {lack.remedy}" for lack in lacks]
        raise RequirementsError(
            "this machine lacks what the cluster needs:\n" + "\n".join(lines) + f"\n{WITHOUT_CLUSTER}"
        )
