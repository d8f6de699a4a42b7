"""Accounting on a database of the cluster's own: mariadbd and slurmdbd, both on the controller."""

from __future__ import annotations

import secrets
from functools import partial

from slurm.onebox import files, namespaces
from slurm.onebox.daemons import environment
from slurm.onebox.layout import CONTROLLER, Cluster
from slurm.onebox.processes import run


def prepare(cluster: Cluster) -> None:
    """Make the database's files and slurmdbd's configuration with a password of its own."""
    run(
        [
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            f"--datadir={cluster.directory}/database",
            f"--tmpdir={cluster.tmp}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        ]
    )
    configuration = cluster.etc / "slurmdbd.conf"
    configuration.touch(mode=0o600)
    configuration.write_text(files.slurmdbd_conf(cluster, database_password=secrets.token_hex(16)))


def _query(cluster: Cluster, statements: str) -> None:
    run(["mariadb", "--no-defaults", f"--socket={cluster.run}/mariadb.socket"], text_in=statements)


def database_answers(cluster: Cluster) -> None:
    """Pass when the database answers; raises CommandError."""
    _query(cluster, "select 1;")


def make_user(cluster: Cluster) -> None:
    """Give slurmdbd its database and user."""
    text = (cluster.etc / "slurmdbd.conf").read_text()
    password = next(line for line in text.splitlines() if line.startswith("StoragePass=")).partition("=")[2]
    _query(
        cluster,
        "create database if not exists slurm_acct_db;"
        f"create or replace user slurm@'127.0.0.1' identified by '{password}';"
        "grant all on slurm_acct_db.* to slurm@'127.0.0.1';",
    )


def register(cluster: Cluster) -> None:
    """Make the cluster known to slurmdbd; raises CommandError while slurmdbd does not answer yet."""
    inside = partial(namespaces.enter_host, cluster, CONTROLLER)
    settings = environment(cluster)
    known = run(
        ["sacctmgr", "-n", "-P", "list", "cluster", "format=cluster"],
        inside=inside,
        environment=settings,
        within_s=10,
    )
    if cluster.name not in known.split():
        run(["sacctmgr", "-i", "add", "cluster", cluster.name], inside=inside, environment=settings)
