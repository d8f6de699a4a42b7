"""Sites, and hosts that are as their site file says, for tests that break one thing at a time."""

from dataclasses import replace
from pathlib import Path

from hpcserve.doctor.catalogue import NODE, SLURM, examine
from hpcserve.doctor.evidence import (
    Disk,
    EngineSeen,
    Evidence,
    FabricSeen,
    Gpu,
    Interface,
    PartitionTry,
    RdmaPort,
    SharedFiles,
    SlurmSeen,
    Wanted,
)
from hpcserve.doctor.finding import Finding, Severity
from hpcserve.nouns import Site
from hpcserve.site import load_site
from hpcserve.site.infiniband_text import AdapterPort

UUID = "3f0c5c2e-7d1b-4c55-9a44-0a6a3d1f2b11"

RDMA = """
schema: hpcserve.site/1
name: rocks
description: two nodes of two GPUs, one InfiniBand port each
node_types:
  twin:
    cores: 32
    memory_gib: 256.0
    gpu: {model: h100-sxm, count: 2, memory_gib: 79.6}
    nics:
      - name: mlx5_0:1
        kind: infiniband
        rate: &ndr {nominal_gb_per_s: 50.0, efficiency: 0.76, source: invented}
        numa: 0
        gpus: [0]
      - {name: "mlx5_1:1", kind: infiniband, rate: *ndr, numa: 1, gpus: [1]}
    nvlink:
      - gpus: [0, 1]
        rate: {nominal_gb_per_s: 450.0, efficiency: 0.84, source: invented}
    host_path: {nominal_gb_per_s: 64.0, efficiency: 0.8, source: invented}
nodes:
  - {hosts: "r[1-2]", type: twin}
partitions:
  gpu: {hosts: "r[1-2]", max_time: 1-00:00:00, account_required: false}
switches:
  - {name: leaf, hosts: "r[1-2]"}
nvlink_domains:
  - name: rack
    hosts: r[1-2]
    rate: {nominal_gb_per_s: 450.0, efficiency: 0.84, source: invented}
    cluster_uuid: 3f0c5c2e-7d1b-4c55-9a44-0a6a3d1f2b11
    clique: 7
networks:
  control: {subnet: 10.10.0.0/16}
  data: {subnet: 10.20.0.0/16}
slurm: {gpu_request: gres, exclusive: true, switches_option: true, version: '24.05', topology: tree}
transport:
  ucx: {UCX_IB_PCI_RELAXED_ORDERING: "try"}
runtimes:
  hpcserve: {kind: none}
  vllm: {kind: apptainer, path: /images/vllm.sif}
paths: {jobs: /shared/jobs, models: /shared/models, cache: /shared/cache}
"""

ETHERNET = """
schema: hpcserve.site/1
name: plain
description: two nodes of CPU slots on Ethernet
node_types:
  slot:
    cores: 8
    memory_gib: 15.0
    gpu: {model: cpu, count: 1, memory_gib: 15.0}
    nics:
      - name: data0
        kind: ethernet
        rate: {nominal_gb_per_s: 0.125, efficiency: 0.95, source: invented}
        gpus: [0]
    host_path: {nominal_gb_per_s: 0.3, efficiency: 0.7, source: invented}
nodes:
  - {hosts: "p[1-2]", type: slot}
partitions:
  main: {hosts: "p[1-2]", max_time: 1-00:00:00, account_required: false}
switches:
  - {name: leaf, hosts: "p[1-2]"}
networks:
  control: {interface: ctl0}
  data: {interface: data0}
slurm: {gpu_request: gres, exclusive: false, switches_option: false}
transport:
  ucx: {UCX_TLS: tcp}
runtimes:
  hpcserve: {kind: none}
  vllm: {kind: venv, path: /envs/vllm}
paths: {jobs: /shared/jobs, models: /shared/models, cache: /shared/cache}
"""


def rdma_site() -> Wanted:
    return _wanted(RDMA, "r1")


def ethernet_site() -> Wanted:
    return _wanted(ETHERNET, "p1")


def _wanted(text: str, node: str) -> Wanted:
    return Wanted(site=site_of(text), node=node, tested={"vllm": "0.32.0+cpu", "nixl": "1.5.2"})


def site_of(text: str) -> Site:
    return load_site(text, source="site.yaml")


def engine() -> EngineSeen:
    return EngineSeen(
        runtime="vllm",
        versions={"vllm": "0.32.0", "nixl": "1.5.2"},
        connectors=("NixlConnector",),
        registered={"DRAM": "", "VRAM": ""},
        ucx_libraries=("/envs/vllm/libucp.so",),
        ucx_resources=("tcp/data0", "rc_mlx5/mlx5_0:1", "ud_mlx5/mlx5_0:1", "dc_mlx5/mlx5_1:1"),
        pid_namespace="pid:[1]",
    )


def port(device: str, numa: int) -> RdmaPort:
    seen = AdapterPort(
        device=device,
        port=1,
        state="Active",
        physical_state="LinkUp",
        link_layer="InfiniBand",
        rate_gbit_per_s=400.0,
    )
    return RdmaPort(seen=seen, numa=numa, trouble="")


def gpu(index: int) -> Gpu:
    return Gpu(index=index, name="NVIDIA H100 80GB HBM3", memory_gib=79.6, used_gib=0.4, uncorrected_errors=0)


def ethernet_host() -> Evidence:
    """A node of the Ethernet site with nothing wrong."""
    return Evidence(
        environment={"HOME": "/home/u", "UCX_TLS": "tcp"},
        hostname="p1",
        host_addresses=("10.0.0.1",),
        locked_memory_bytes=64 * 1024,
        open_files=65536,
        shared_memory_free_bytes=2**30,
        interfaces=(
            Interface(name="lo", addresses=("127.0.0.1",), up=True, speed_mbit_per_s=None),
            Interface(name="ctl0", addresses=("10.0.0.1",), up=True, speed_mbit_per_s=10000),
            Interface(name="data0", addresses=("10.1.0.1",), up=True, speed_mbit_per_s=1000),
        ),
        interfaces_unseen="",
        outgoing_ports=(32768, 60999),
        ports_tried=32,
        ports_free=32,
        rdma=(),
        slingshot=(),
        kernel="6.1.0-13",
        kernel_modules=frozenset({"tun"}),
        kernel_command_line="root=/dev/vda1",
        iommu_groups=0,
        open_nvidia_driver=False,
        bridges_with_acs=(),
        pid_namespace="pid:[1]",
        gpus=(),
        gpu_trouble="",
        gpus_unseen="",
        nvlinks=None,
        nvlink_fabric=(),
        imex_channel=False,
        disks=(Disk(called="paths.jobs", path="/shared/jobs", trouble="", free_bytes=10**12, free_files=10**7),),
        programs=frozenset(),
        engines=(replace(engine(), registered={"DRAM": ""}),),
        shared=SharedFiles(rename_trouble="", round_trip_s=0.2, clock_ahead_s=0.05),
    )


def rdma_host() -> Evidence:
    """A node of the InfiniBand site with nothing wrong."""
    return replace(
        ethernet_host(),
        environment={"HOME": "/home/u"},
        locked_memory_bytes=None,
        interfaces=(
            Interface(name="eth0", addresses=("10.10.0.1",), up=True, speed_mbit_per_s=25000),
            Interface(name="ib0", addresses=("10.20.0.1",), up=True, speed_mbit_per_s=None),
        ),
        rdma=(port("mlx5_0", 0), port("mlx5_1", 1)),
        kernel_modules=frozenset({"nvidia_peermem", "mlx5_ib"}),
        kernel_command_line="root=/dev/vda1 iommu=pt",
        iommu_groups=80,
        gpus=(gpu(0), gpu(1)),
        nvlinks=frozenset({(0, 1)}),
        nvlink_fabric=(
            FabricSeen(state="Completed", cluster_uuid=UUID, clique="7"),
            FabricSeen(state="Completed", cluster_uuid=UUID, clique="7"),
        ),
        imex_channel=True,
        programs=frozenset({"apptainer", "nvidia-smi"}),
        engines=(engine(),),
    )


def slurm() -> SlurmSeen:
    return SlurmSeen(
        missing=(),
        configuration={"SLURM_VERSION": "24.05.3", "TopologyPlugin": "topology/tree"},
        config_trouble="",
        node_states={"r1": "idle", "r2": "alloc"},
        tries=(PartitionTry(partition="gpu", options=("--gres=gpu:2",), refusal=""),),
    )


def complaints(seen: Evidence, wanted: Wanted) -> list[Finding]:
    return bad(examine(NODE, seen, wanted))


def slurm_complaints(seen: SlurmSeen, wanted: Wanted) -> list[Finding]:
    return bad(examine(SLURM, seen, wanted))


def bad(findings: tuple[Finding, ...]) -> list[Finding]:
    return [one for one in findings if one.severity in {Severity.WARNING, Severity.FAILURE}]


def tree(root: Path, files: dict[str, str]) -> Path:
    """A file system below `root`, by path and content."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root
