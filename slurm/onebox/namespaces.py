"""The cluster's network namespaces: made, entered, searched for processes, removed.

They are kept as files in the cluster's own directory and not under `/run/netns`, so that clusters
of different directories cannot meet and nothing outside the directory changes.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from pathlib import Path

from slurm.onebox import kernel
from slurm.onebox.errors import ClusterError
from slurm.onebox.layout import Cluster
from slurm.onebox.processes import Process, all_processes, end

# How long jobs have between SIGTERM and SIGKILL when the cluster goes down.
GRACE_S = 2.0
# How long the kernel may take to end killed processes before `down` gives up.
END_WITHIN_S = 30.0

Identity = tuple[int, int]


def make(cluster: Cluster, namespace: str) -> None:
    """Make an empty network namespace and keep it at its file."""
    kept_at = cluster.namespace_file(namespace)
    kept_at.touch()
    child = os.fork()
    if child == 0:
        try:
            kernel.unshare(kernel.NEW_NETWORK)
            kernel.bind("/proc/self/ns/net", kept_at)
        except OSError as error:
            os.write(2, f"{error}\n".encode())
            os._exit(1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise ClusterError(f"the network namespace {namespace} could not be made")


def identity(kept_at: Path) -> Identity | None:
    """Device and inode that tell one namespace from all others; None where no namespace is kept."""
    try:
        status = kept_at.stat()
        own = Path("/proc/self/ns/net").stat()
    except FileNotFoundError:
        return None
    # Without its mount (after a reboot) the file is an ordinary one on another device.
    return (status.st_dev, status.st_ino) if status.st_dev == own.st_dev else None


def identities(cluster: Cluster) -> set[Identity]:
    """Those of the cluster's namespaces that exist."""
    found = (identity(cluster.namespace_file(name)) for name in cluster.namespaces)
    return {one for one in found if one is not None}


def complete(cluster: Cluster) -> bool:
    """Whether every namespace of the cluster exists."""
    return len(identities(cluster)) == len(cluster.namespaces)


def inhabitants(wanted: set[Identity]) -> list[Process]:
    """The processes whose network namespace is one of these; this process never counts."""
    found = []
    for one in all_processes():
        try:
            status = Path(f"/proc/{one.pid}/ns/net").stat()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # ended meanwhile, or another user's, so not of this cluster
        if (status.st_dev, status.st_ino) in wanted and one.pid != os.getpid():
            found.append(one)
    return found


def inside_of(cluster: Cluster) -> bool:
    """Whether this process itself runs inside the cluster (by `exec` or in a job)."""
    return identity(Path("/proc/self/ns/net")) in identities(cluster)


def enter_network(cluster: Cluster, namespace: str) -> None:
    """Move this process into one of the namespaces, network only."""
    kernel.join_network(cluster.namespace_file(namespace))


def enter_host(cluster: Cluster, host: str) -> None:
    """Make this process one of the host's: its network, host name, /etc/hosts, /etc/slurm and /sys."""
    enter_network(cluster, host)
    kernel.unshare(kernel.NEW_HOST_NAME | kernel.NEW_MOUNTS)
    socket.sethostname(host)
    kernel.keep_mounts_to_self()
    kernel.bind(cluster.etc / "hosts", "/etc/hosts")
    if Path("/etc/slurm").is_dir():
        # So that Slurm's commands find the cluster also where a job cleared SLURM_CONF.
        kernel.bind(cluster.etc, "/etc/slurm")
    # UCX and others list /sys/class/net; it must show this host's devices.
    new_sys = cluster.directory / "sys"
    kernel.mount_sysfs(new_sys)
    if Path("/sys/fs/cgroup").is_dir() and (new_sys / "fs/cgroup").is_dir():
        kernel.bind("/sys/fs/cgroup", new_sys / "fs/cgroup")
    kernel.move_mount(new_sys, "/sys")


def become_daemon_of(cluster: Cluster, host: str) -> None:
    """Enter a host as one of its daemons, whose jobs leave no core files (they would be GBs)."""
    try:
        enter_host(cluster, host)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            # `up` may have been started by nohup or in a script's background; jobs shall not inherit that.
            signal.signal(number, signal.SIG_DFL)
    except OSError as error:
        os.write(2, f"{error}\n".encode())  # subprocess itself passes no reason on
        raise


def end_inhabitants(wanted: set[Identity]) -> None:
    """End every process in these namespaces, also those that start meanwhile.

    Raises ClusterError with the pids when some do not go.
    """
    deadline = time.monotonic() + END_WITHIN_S
    grace_s = GRACE_S
    while left := inhabitants(wanted):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes that cannot be ended: {', '.join(str(one.pid) for one in left)}")
        end(left, grace_s=grace_s)
        grace_s = 0.05


def remove(cluster: Cluster) -> None:
    """Forget every namespace; the kernel drops each with its devices once nothing runs in it.

    Also unmounts whatever else is mounted below the directory, so that it can be deleted.
    """
    for mounted_at in _mounts_below(cluster.directory):
        kernel.unmount(mounted_at)
    for namespace in cluster.namespaces:
        cluster.namespace_file(namespace).unlink(missing_ok=True)


def _mounts_below(directory: Path) -> list[str]:
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mounted_at = line.split()[4]
        if mounted_at.startswith(f"{directory}/"):
            found.append(mounted_at)
    return found[::-1]
