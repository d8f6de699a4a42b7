"""The files that the cluster's daemons read. Pure: a `Cluster` in, texts by relative path out."""

from __future__ import annotations

from slurm.onebox.layout import CONTROLLER, CPUS_PER_NODE, MEMORY_PER_NODE_MB, Cluster, host_list

DATABASE_PORT = 3306
ACCOUNTING_PORT = 6819


def slurm_conf(cluster: Cluster) -> str:
    """`slurm.conf` for Slurm 22.05 and newer (keys as in its man page)."""
    directory = cluster.directory
    gpus = cluster.options.gpus
    if cluster.options.accounting == "slurmdbd":
        accounting = [
            "AccountingStorageType=accounting_storage/slurmdbd",
            f"AccountingStorageHost={CONTROLLER}",
            f"AccountingStoragePort={ACCOUNTING_PORT}",
            # For slurmdbd this key is the munge socket; AuthInfo is not used on that connection.
            f"AccountingStoragePass={cluster.munge_socket}",
            *(["AccountingStorageTRES=gres/gpu"] if gpus else []),
        ]
    else:
        accounting = ["AccountingStorageType=accounting_storage/none"]
    lines = [
        f"ClusterName={cluster.name}",
        f"SlurmctldHost={CONTROLLER}({cluster.controller.control_address})",
        "SlurmctldPort=6817",
        "SlurmdPort=6818",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        f"AuthInfo=socket={cluster.munge_socket}",
        "",
        f"StateSaveLocation={directory}/state",
        f"SlurmdSpoolDir={directory}/spool/%n",
        # A folder for each node: PMIx's servers of all nodes would otherwise meet in one.
        f"TmpFS={cluster.tmp}/%n",
        f"SlurmctldPidFile={directory}/run/slurmctld.pid",
        f"SlurmdPidFile={directory}/run/slurmd.%n.pid",
        f"SlurmctldLogFile={directory}/log/slurmctld.log",
        f"SlurmdLogFile={directory}/log/slurmd.%n.log",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={directory}/log/jobcomp.txt",
        *accounting,
        "",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "TopologyPlugin=topology/tree",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_interval=1,sched_interval=1",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "JobRequeue=1",
        "ReturnToService=2",
        # Jobs get slurmd's limits, among them no core files, and not those of the submitting shell.
        "PropagateResourceLimitsExcept=ALL",
        # Nodes claim more than they have; a busy machine answers late: no node goes down for that,
        # nor for a data link that was cut for a while.
        "SlurmdParameters=config_overrides",
        "SlurmdTimeout=300",
        "SlurmctldTimeout=300",
        "MessageTimeout=30",
        "BatchStartTimeout=60",
        "InactiveLimit=0",
        "Waittime=0",
        "KillWait=5",
        "MinJobAge=3600",
        "",
        *(["GresTypes=gpu"] if gpus else []),
    ]
    lines += [
        f"NodeName={node.name} NodeAddr={node.control_address} CPUs={CPUS_PER_NODE} Boards=1"
        f" SocketsPerBoard=1 CoresPerSocket={CPUS_PER_NODE} ThreadsPerCore=1"
        f" RealMemory={MEMORY_PER_NODE_MB}{f' Gres=gpu:{gpus}' if gpus else ''}"
        f" Feature={node.leaf} State=UNKNOWN"
        for node in cluster.nodes
    ]
    names = host_list(tuple(node.name for node in cluster.nodes))
    lines.append(f"PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def topology_conf(cluster: Cluster) -> str:
    """`topology.conf` for topology/tree: the same leaves and spine as the wires."""
    lines = [f"SwitchName={leaf} Nodes={host_list(cluster.nodes_of(leaf))}" for leaf in cluster.leaves]
    return "\n".join([*lines, f"SwitchName=spine Switches={host_list(cluster.leaves)}"]) + "\n"


def gres_conf(cluster: Cluster) -> str:
    """`gres.conf`: the GPUs are character devices in the cluster's directory, the same on each node."""
    gpus = cluster.options.gpus
    if not gpus:
        return "AutoDetect=off\n"
    numbers = "0" if gpus == 1 else f"[0-{gpus - 1}]"
    return f"AutoDetect=off\nName=gpu File={cluster.directory}/dev/gpu{numbers}\n"


def hosts(cluster: Cluster) -> str:
    """`/etc/hosts` inside the cluster: names are control addresses, `NAME-data` are data addresses."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    for host in cluster.hosts:
        lines += [f"{host.control_address} {host.name}", f"{host.data_address} {host.name}-data"]
    return "\n".join(lines) + "\n"


def slurmdbd_conf(cluster: Cluster, *, database_password: str) -> str:
    """`slurmdbd.conf` (slurmdbd insists on mode 600)."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={cluster.munge_socket}",
        f"DbdHost={CONTROLLER}",
        f"DbdAddr={cluster.controller.control_address}",
        f"DbdPort={ACCOUNTING_PORT}",
        "SlurmUser=root",
        f"LogFile={cluster.log}/slurmdbd.log",
        f"PidFile={cluster.run}/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=127.0.0.1",
        f"StoragePort={DATABASE_PORT}",
        "StorageUser=slurm",
        f"StoragePass={database_password}",
        "StorageLoc=slurm_acct_db",
        "CommitDelay=1",
    ]
    return "\n".join(lines) + "\n"


def configuration(cluster: Cluster) -> dict[str, str]:
    """Each file of the cluster's `etc` folder by name."""
    return {
        "slurm.conf": slurm_conf(cluster),
        "topology.conf": topology_conf(cluster),
        "gres.conf": gres_conf(cluster),
        "hosts": hosts(cluster),
    }


def folders(cluster: Cluster) -> tuple[str, ...]:
    """The folders that the files and daemons need, parents first."""
    per_node = [f"{kind}/{node.name}" for kind in ("spool", "tmp") for node in cluster.nodes]
    return ("etc", "run", "log", "state", "spool", "tmp", "dev", "sys", "namespaces", *per_node)
