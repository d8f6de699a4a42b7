"""Sites that tests measure on: shipped ones, and fat trees of any size."""

from pathlib import Path

from hpcserve.nouns import (
    Gpu,
    Network,
    Networks,
    Nic,
    NicKind,
    NodeGroup,
    NodeType,
    Partition,
    Paths,
    Rate,
    Runtime,
    RuntimeKind,
    Site,
    SlurmDialect,
    Switch,
    Transport,
)
from hpcserve.site import hosts_of, load_site

SITES = Path(__file__).parents[2] / "site_configs"


def shipped(name: str) -> Site:
    return load_site((SITES / f"{name}.yaml").read_text(), source=name)


def fat_tree(*, leaves: int, nodes_per_leaf: int, uplink: Rate | None = None, nics: int = 1) -> Site:
    """`leaves` leaf switches under one spine, four GPUs a node, shared out among its NICs."""
    count = leaves * nodes_per_leaf
    rate = Rate(effective_gb_per_s=48.0, source="test")
    per_nic = 4 // nics
    kind = NodeType(
        cores=64,
        memory_gib=512.0,
        gpu=Gpu(model="a100", count=4, memory_gib=40.0),
        nics=tuple(
            Nic(
                name=f"mlx5_{nic}:1",
                kind=NicKind.INFINIBAND,
                rate=rate,
                gpus=tuple(range(nic * per_nic, (nic + 1) * per_nic)),
            )
            for nic in range(nics)
        ),
        host_path=rate,
    )
    hosts = f"n[0001-{count:04}]"
    return Site(
        schema_="hpcserve.site/1",
        name="tree",
        description="a fat tree",
        node_types={"box": kind},
        nodes=(NodeGroup(hosts=hosts, type="box"),),
        partitions={"gpu": Partition(hosts=hosts, max_time="1:00:00", account_required=False)},
        switches=(
            *(
                Switch(
                    name=f"leaf{leaf}",
                    hosts=f"n[{leaf * nodes_per_leaf + 1:04}-{(leaf + 1) * nodes_per_leaf:04}]",
                    uplink=uplink or rate,
                )
                for leaf in range(leaves)
            ),
            Switch(name="spine", switches=f"leaf[0-{leaves - 1}]"),
        ),
        networks=Networks(control=Network(interface="eth0"), data=Network(interface="ib0")),
        slurm=SlurmDialect(gpu_request="gres", exclusive=True, switches_option=True, mpi="pmix"),
        transport=Transport(ucx={"UCX_TLS": "rc,cuda_copy"}, kinds={NicKind.INFINIBAND: {"UCX_IB_GID_INDEX": "3"}}),
        runtimes={"hpcserve": Runtime(kind=RuntimeKind.NONE), "vllm": Runtime(kind=RuntimeKind.VENV, path="~/vllm")},
        paths=Paths(jobs="~/jobs", models="~/models", cache="~/cache"),
    )


def nodes_of(site: Site) -> tuple[str, ...]:
    return tuple(hosts_of(site))
