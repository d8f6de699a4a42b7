"""What tools and the kernel print -> evidence."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.doctor.evidence import FabricSeen
from hpcserve.doctor.look_at_host import interfaces_of, kernel_facts, look_at_disks, rdma_ports
from hpcserve.doctor.look_at_slurm import job_options, parse_configuration, parse_states
from hpcserve.doctor.nvidia_text import bridges_with_acs, fabric_seen, gpus_seen, nvlinks_seen
from tests.doctor.hosts import ETHERNET, RDMA, site_of, tree

MATRIX = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tSYS\tPIX\t0-31\t0\t\tN/A
GPU1\tNV18\t X \tPHB\tNODE\t0-31\t0\t\tN/A
GPU2\tSYS\tPHB\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""

DETAILS = """\
GPU 00000008:01:00.0
    Product Name                          : NVIDIA GB200
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : 7
        ClusterUUID                       : 3f0c5c2e-7d1b-4c55-9a44-0a6a3d1f2b11
        Health
            Bandwidth                     : N/A
    Clocks
        State                             : none
"""

LSPCI = """\
10:00.0 PCI bridge: Example Switch
\tCapabilities: [1b8] Access Control Services
\t\tACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
11:00.0 PCI bridge: Example Switch
\tCapabilities: [1b8] Access Control Services
\t\tACSCtl: SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
"""


def test_nvlinks_are_read_off_the_matrix() -> None:
    assert nvlinks_seen(MATRIX) == frozenset({(0, 1)})


def test_the_fabric_of_a_gpu_is_its_own_section_only() -> None:
    assert fabric_seen(DETAILS) == (
        FabricSeen(state="Completed", cluster_uuid="3f0c5c2e-7d1b-4c55-9a44-0a6a3d1f2b11", clique="7"),
    )


def test_gpus_come_with_what_is_known_of_them() -> None:
    (first, second) = gpus_seen("0, NVIDIA L40S, 46068, 3, 0\n1, NVIDIA L40S, 46068, [N/A], [N/A]\nWARNING: x\n")
    assert (first.name, first.uncorrected_errors) == ("NVIDIA L40S", 0)
    assert first.memory_gib == pytest.approx(44.99, abs=0.01)
    assert (second.index, second.used_gib, second.uncorrected_errors) == (1, None, None)


def test_bridges_that_redirect_are_named_and_what_only_root_sees_is_not_guessed() -> None:
    assert bridges_with_acs(LSPCI) == ("10:00.0",)
    assert bridges_with_acs("10:00.0 PCI bridge\n\tCapabilities: <access denied>\n") is None


@given(st.text())
def test_no_text_makes_a_reader_fail(text: str) -> None:
    for read in (nvlinks_seen, fabric_seen, gpus_seen, bridges_with_acs, parse_configuration, parse_states):
        read(text)


def test_ports_are_read_off_sysfs_and_a_device_without_its_file_is_told(tmp_path: Path) -> None:
    port = "sys/class/infiniband/mlx5_0/ports/1"
    root = tree(
        tmp_path,
        {
            f"{port}/state": "4: ACTIVE\n",
            f"{port}/phys_state": "5: LinkUp\n",
            f"{port}/link_layer": "InfiniBand\n",
            f"{port}/rate": "400 Gb/sec (4X NDR)\n",
            "sys/class/infiniband/mlx5_0/device/numa_node": "-1\n",
            "sys/class/infiniband/mlx5_0/device/infiniband_verbs/uverbs0/dev": "231:192\n",
        },
    )
    (found,) = rdma_ports(root=root)
    seen = found.seen
    assert (seen.ucx_name, seen.is_up, seen.state, seen.physical_state, seen.link_layer) == (
        "mlx5_0:1",
        True,
        "Active",
        "LinkUp",
        "InfiniBand",
    )
    assert (seen.rate_gbit_per_s, found.numa) == (400.0, None)
    assert found.trouble == f"{root}/dev/infiniband/uverbs0: No such file or directory"
    tree(tmp_path, {"dev/infiniband/uverbs0": ""})
    assert rdma_ports(root=root)[0].trouble == ""


def test_the_kernel_is_read_off_proc(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/modules": "nvidia_peermem 16384 0 - Live 0x0\nmlx5_ib 1 0 - Live 0x0\n",
            "proc/cmdline": "root=/dev/sda iommu=pt\n",
            "proc/sys/kernel/osrelease": "5.14.0-427\n",
            "proc/sys/net/ipv4/ip_local_port_range": "1024\t65000\n",
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.1\n",
            "sys/kernel/iommu_groups/0/type": "DMA-FQ\n",
            "sys/kernel/iommu_groups/1/type": "identity\n",
            "dev/nvidia-caps-imex-channels/channel0": "",
            "dev/cxi0": "",
        },
    )
    facts = kernel_facts(root=root)
    assert facts["kernel_modules"] == {"nvidia_peermem", "mlx5_ib"}
    assert facts["open_nvidia_driver"]
    assert facts["imex_channel"]
    assert (facts["iommu_groups"], facts["outgoing_ports"], facts["slingshot"]) == (1, (1024, 65000), ("cxi0",))


def test_a_bare_kernel_is_read_without_a_complaint(tmp_path: Path) -> None:
    assert kernel_facts(root=tmp_path)["outgoing_ports"] is None
    assert rdma_ports(root=tmp_path) == ()


def test_interfaces_have_the_speed_that_the_kernel_knows(tmp_path: Path) -> None:
    root = tree(tmp_path, {"sys/class/net/eth0/speed": "25000\n", "sys/class/net/eth1/speed": "-1\n"})
    address = {"local": "10.0.0.1", "prefixlen": 16, "scope": "global"}
    link_local = {"local": "fe80::1", "prefixlen": 64, "scope": "link"}
    described = [
        {"ifname": "eth0", "flags": ["UP"], "operstate": "UP", "addr_info": [address]},
        {"ifname": "eth1", "flags": ["UP"], "operstate": "DOWN", "addr_info": [link_local]},
    ]
    first, second = interfaces_of(json.dumps(described), root=root)
    assert (first.addresses, first.up, first.speed_mbit_per_s) == (("10.0.0.1",), True, 25000)
    assert (second.addresses, second.up, second.speed_mbit_per_s) == ((), False, None)


def test_a_directory_that_is_not_there_yet_counts_as_its_parent_where_it_is_to_be_written(tmp_path: Path) -> None:
    named = {"jobs": (str(tmp_path / "a/b"), True), "models": (str(tmp_path / "a/b"), False)}
    jobs, models = look_at_disks(named)
    assert jobs.trouble == ""
    assert jobs.free_bytes > 0
    assert "No such file" in models.trouble
    assert list(tmp_path.iterdir()) == []


def test_slurm_is_asked_in_the_sites_dialect() -> None:
    site = site_of(RDMA.replace("count: 2,", "count: 2, gres: h100,"))
    assert site.slurm is not None
    assert job_options(site, site.slurm, "gpu", ("r1", "r2"))[3:6] == ("--gres=gpu:h100:2", "--exclusive", "--mem=0")
    plain = site_of(ETHERNET.replace("gpu_request: gres", "gpu_request: none"))
    assert plain.slurm is not None
    assert not [word for word in job_options(plain, plain.slurm, "main", ("p1",)) if "gpu:" in word or "gres" in word]


def test_slurms_own_lists_are_read() -> None:
    assert parse_configuration("Configuration data as of x\nSLURM_VERSION           = 24.05.3\nA = \n") == {
        "SLURM_VERSION": "24.05.3",
        "A": "",
    }
    assert parse_states("n1 idle\nn1 idle\nn2 down*\n") == {"n1": "idle", "n2": "down*"}
