"""Which daemons a cluster has and what each runs. Pure: a `Cluster` in, `Daemon` values out."""

from __future__ import annotations

from dataclasses import dataclass

from slurm.onebox import files
from slurm.onebox.layout import CONTROLLER, Cluster


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """One daemon: its name, the host whose process it is, and its arguments."""

    name: str
    host: str
    arguments: tuple[str, ...]


def munged(cluster: Cluster) -> Daemon:
    """The cluster's own munge, with a key and socket of its own."""
    run = cluster.run
    return Daemon(
        name="munged",
        host=CONTROLLER,
        arguments=(
            "munged",
            "--foreground",
            # Else it insists that every user of the machine can reach its socket.
            "--force",
            f"--key-file={cluster.directory}/munge.key",
            f"--socket={cluster.munge_socket}",
            f"--pid-file={run}/munged.pid",
            f"--seed-file={run}/munged.seed",
            f"--log-file={cluster.log}/munged.log",
            "--num-threads=2",
        ),
    )


def slurmctld(cluster: Cluster) -> Daemon:
    """Slurm's controller."""
    return Daemon(name="slurmctld", host=CONTROLLER, arguments=("slurmctld", "-D", "-f", str(cluster.slurm_conf)))


def slurmds(cluster: Cluster) -> tuple[Daemon, ...]:
    """Each node's slurmd; the host name of its node tells it which node it is."""
    return tuple(
        Daemon(
            name=f"slurmd.{node.name}",
            host=node.name,
            arguments=("slurmd", "-D", "-f", str(cluster.slurm_conf)),
        )
        for node in cluster.nodes
    )


def mariadbd(cluster: Cluster) -> Daemon:
    """The database: in the cluster's directory, small, and reachable inside the cluster only."""
    return Daemon(
        name="mariadbd",
        host=CONTROLLER,
        arguments=(
            "mariadbd",
            "--no-defaults",
            "--user=root",
            f"--datadir={cluster.directory}/database",
            f"--tmpdir={cluster.tmp}",
            f"--socket={cluster.run}/mariadb.socket",
            f"--pid-file={cluster.run}/mariadbd.pid",
            "--bind-address=127.0.0.1",
            f"--port={files.DATABASE_PORT}",
            # slurmdbd asks for these (its documentation's advice for InnoDB), on a small scale.
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=16M",
            "--innodb-lock-wait-timeout=900",
            "--innodb-flush-log-at-trx-commit=0",
            "--performance-schema=OFF",
        ),
    )


def slurmdbd() -> Daemon:
    """The accounting daemon; it finds its configuration beside slurm.conf."""
    return Daemon(name="slurmdbd", host=CONTROLLER, arguments=("slurmdbd", "-D"))


def roster(cluster: Cluster) -> tuple[Daemon, ...]:
    """All daemons of the cluster, in the order in which they start."""
    keeping = (mariadbd(cluster), slurmdbd())
    return (
        munged(cluster),
        *(keeping if cluster.options.accounting == "slurmdbd" else ()),
        slurmctld(cluster),
        *slurmds(cluster),
    )
