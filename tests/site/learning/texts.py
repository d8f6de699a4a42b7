"""Texts of an invented cluster, as its tools would print them."""

from collections.abc import Mapping, Sequence

from hpcserve.site import recognise
from hpcserve.site.learning import Reading

HOSTS = [f"gn{number:02d}" for number in range(1, 9)]


def reading(text: str, source: str) -> Reading:
    """A text read as `site import` reads it."""
    kind = recognise(text, source)
    return Reading(source=source, kind=kind.name, parsed=kind.parse(text, source))


def show_node(hosts: Sequence[str] = HOSTS, *, cpus: int = 64, gres: str = "gpu:a100:4", features: str = "ib") -> str:
    return "\n".join(
        f"NodeName={host} Arch=x86_64 CoresPerSocket=32\n"
        f"   CPUAlloc=0 CPUTot={cpus} CPULoad=0.01\n"
        f"   AvailableFeatures={features}\n   ActiveFeatures={features}\n   Gres={gres}\n"
        f"   NodeAddr={host} NodeHostName={host}\n"
        f"   RealMemory=512000 AllocMem=0 Sockets=2 Boards=1\n"
        f"   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1\n   Partitions=batch\n"
        for host in hosts
    )


def show_partition(hosts: str = "gn[01-08]", *, name: str = "batch", max_time: str = "2-00:00:00") -> str:
    return (
        f"PartitionName={name}\n   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n"
        "   AllocNodes=ALL Default=YES QoS=N/A\n"
        f"   MaxNodes=UNLIMITED MaxTime={max_time} MinNodes=0\n   Nodes={hosts}\n"
        "   OverSubscribe=NO\n   State=UP TotalCPUs=512 TotalNodes=8\n"
    )


def show_topology(leaves: Mapping[str, str]) -> str:
    """Leaves with their hosts under one spine."""
    lines = [f"SwitchName={name} Level=0 LinkSpeed=1 Nodes={hosts}" for name, hosts in leaves.items()]
    everything, names = ",".join(leaves.values()), ",".join(leaves)
    return "\n".join([*lines, f"SwitchName=spine Level=1 LinkSpeed=1 Nodes={everything} Switches={names}"]) + "\n"


def show_config(topology: str = "topology/tree") -> str:
    return (
        "Configuration data as of 2026-05-04T10:00:00\n"
        "AccountingStorageEnforce = none\nClusterName             = gamma\nMpiDefault              = pmix\n"
        "SelectType              = select/cons_tres\nSLURM_VERSION           = 24.05.3\n"
        f"TopologyPlugin          = {topology}\n"
    )


def ibnetdiscover(leaves: Sequence[Sequence[str]], *, spines: int, cables: int = 1, rate: str = "4xHDR") -> str:
    """A fat tree: `leaves` are descriptions of the adapters on each, `cables` from each leaf to each spine."""
    leaf_guids = [0x5000_0000 + index for index in range(len(leaves))]
    spine_guids = [0x6000_0000 + index for index in range(spines)]
    lines = ["#", "# Topology file: generated on Mon May  4 10:00:00 2026", "#", ""]
    adapter = 0x7000_0000
    blocks: list[str] = []
    for leaf, (guid, plugged) in enumerate(zip(leaf_guids, leaves, strict=True)):
        lines += [
            f"switchguid=0x{guid:x}({guid:x})",
            f'Switch\t64 "S-{guid:016x}"\t\t# "isl{leaf + 1}" base port 0 lid {leaf + 1} lmc 0',
        ]
        for port, description in enumerate(plugged, start=1):
            lines.append(f'[{port}]\t"H-{adapter:016x}"[1]({adapter:x}) \t\t# "{description}" lid {100 + port} {rate}')
            blocks += [
                f"caguid=0x{adapter:x}",
                f'Ca\t1 "H-{adapter:016x}"\t\t# "{description}"',
                f'[1]({adapter:x}) \t"S-{guid:016x}"[{port}]\t\t# lid 9 lmc 0 "isl{leaf + 1}" lid {leaf + 1} {rate}',
                "",
            ]
            adapter += 1
        for spine, spine_guid in enumerate(spine_guids):
            for cable in range(cables):
                lines.append(
                    f'[{len(plugged) + 1 + spine * cables + cable}]\t"S-{spine_guid:016x}"[{leaf * cables + cable + 1}]'
                    f'\t\t# "core{spine + 1}" lid {50 + spine} {rate}'
                )
        lines.append("")
    for spine, guid in enumerate(spine_guids):
        lines += [
            f"switchguid=0x{guid:x}({guid:x})",
            f'Switch\t64 "S-{guid:016x}"\t\t# "core{spine + 1}" base port 0 lid {50 + spine} lmc 0',
        ]
        for leaf, (leaf_guid, plugged) in enumerate(zip(leaf_guids, leaves, strict=True)):
            for cable in range(cables):
                lines.append(
                    f'[{leaf * cables + cable + 1}]\t"S-{leaf_guid:016x}"[{len(plugged) + 1 + spine * cables + cable}]'
                    f'\t\t# "isl{leaf + 1}" lid {leaf + 1} {rate}'
                )
        lines.append("")
    return "\n".join([*lines, *blocks])


IBSTAT = "".join(
    f"CA 'mlx5_{index}'\n\tCA type: MT4123\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {state}\n"
    f"\t\tPhysical state: {physical}\n\t\tRate: {rate}\n\t\tBase lid: {index}\n"
    f"\t\tPort GUID: 0x00000000900000{index:02x}\n"
    f"\t\tLink layer: {layer}\n"
    for index, (state, physical, rate, layer) in enumerate(
        [
            ("Active", "LinkUp", 200, "InfiniBand"),
            ("Active", "LinkUp", 200, "InfiniBand"),
            ("Active", "LinkUp", 25, "Ethernet"),
            ("Down", "Disabled", 40, "InfiniBand"),
        ]
    )
)

TOPO = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tNV4\tNV4\tPXB\tSYS\tSYS\t0-31\t0\t\tN/A
GPU1\tNV4\t X \tNV4\tNV4\tPXB\tSYS\tSYS\t0-31\t0\t\tN/A
GPU2\tNV4\tNV4\t X \tNV4\tSYS\tPXB\tSYS\t32-63\t1\t\tN/A
GPU3\tNV4\tNV4\tNV4\t X \tSYS\tPXB\tSYS\t32-63\t1\t\tN/A
NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS\tSYS
NIC1\tSYS\tSYS\tPXB\tPXB\tSYS\t X \tSYS
NIC2\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
  NIC2: mlx5_2
"""

QUERY = """\
index, name, memory.total [MiB], pcie.link.gen.max, pcie.link.width.max
0, NVIDIA A100-SXM4-80GB, 81920 MiB, 4, 16
1, NVIDIA A100-SXM4-80GB, 81920 MiB, 4, 16
2, NVIDIA A100-SXM4-80GB, 81920 MiB, 4, 16
3, NVIDIA A100-SXM4-80GB, 81920 MiB, 4, 16
"""

ADMIN = """\
schema: hpcserve.site/1
name: gamma
description: eight nodes of four A100   # the admin's own words

node_types: {}
nodes: []
partitions: {}
switches: []

networks:
  control: {interface:   eno1}   # not ib0: HTTP is slow there
  data: {interface: ib0}

slurm: {exclusive: true}

transport:
  ucx:
    UCX_TLS: "rc,cuda_copy,cuda_ipc"

runtimes:
  hpcserve: {kind: none}

paths:
  jobs: ~/jobs
  models: /models
  cache: /tmp/cache
"""
"""What no tool tells."""


def all_but_nodes_and_nics(*, second_leaf: str = "gn[05-08]") -> list[Reading]:
    """What Slurm and one node say of the invented cluster, but for its nodes and their NICs."""
    return [
        reading(show_partition(), "partitions.txt"),
        reading(show_config(), "config.txt"),
        reading(show_topology({"leaf1": "gn[01-04]", "leaf2": second_leaf}), "topology.txt"),
        reading(TOPO, "gn03/topo.txt"),
        reading(QUERY, "gn03/query.csv"),
    ]
