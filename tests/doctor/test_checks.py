"""Each check fires on the one thing that is broken, and on nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hpcserve.doctor.catalogue import NODE, SLURM, examine
from hpcserve.doctor.evidence import (
    Disk,
    Evidence,
    FabricSeen,
    Interface,
    PartitionTry,
    SharedFiles,
    SlurmSeen,
    Wanted,
)
from hpcserve.doctor.finding import Severity
from tests.doctor.hosts import (
    ETHERNET,
    RDMA,
    UUID,
    complaints,
    engine,
    ethernet_host,
    ethernet_site,
    gpu,
    port,
    rdma_host,
    rdma_site,
    site_of,
    slurm,
    slurm_complaints,
)

Break = Callable[[Evidence], Evidence]

FAILURE, WARNING = Severity.FAILURE, Severity.WARNING


def _environment(**variables: str) -> Break:
    return lambda seen: replace(seen, environment={**seen.environment, **variables})


def _engine(**changes: object) -> Break:
    return lambda seen: replace(seen, engines=(replace(seen.engines[0], **changes),))  # type: ignore[arg-type]


def _port(**changes: object) -> Break:
    return lambda seen: replace(seen, rdma=(replace(seen.rdma[0], **changes), seen.rdma[1]))  # type: ignore[arg-type]


def _link(**changes: object) -> Break:
    return lambda seen: _port(seen=replace(seen.rdma[0].seen, **changes))(seen)  # type: ignore[arg-type]


def _gpu(**changes: object) -> Break:
    return lambda seen: replace(seen, gpus=(seen.gpus[0], replace(seen.gpus[1], **changes)))  # type: ignore[arg-type]


def _host(**changes: object) -> Break:
    return lambda seen: replace(seen, **changes)  # type: ignore[arg-type]


def _shared(**changes: object) -> Break:
    whole = SharedFiles(rename_trouble="", round_trip_s=0.2, clock_ahead_s=0.0)
    return _host(shared=replace(whole, **changes))  # type: ignore[arg-type]


def _disk(**changes: object) -> Break:
    return lambda seen: replace(seen, disks=(replace(seen.disks[0], **changes),))  # type: ignore[arg-type]


BROKEN_RDMA: list[tuple[str, Severity, str, Break]] = [
    ("inherited-transport", FAILURE, "UCX_TLS=tcp", _environment(UCX_TLS="tcp")),
    ("inherited-transport", FAILURE, "UCX_TLS=^ib", _environment(UCX_TLS="^ib")),
    ("inherited-transport", WARNING, "NCCL_IB_HCA=mlx5_9", _environment(NCCL_IB_HCA="mlx5_9")),
    ("inherited-transport", WARNING, "UCX_RNDV_SCHEME", _environment(UCX_RNDV_SCHEME="get_zcopy")),
    ("loaded-modules", WARNING, "hpcx/2.18", _environment(LOADEDMODULES="gcc/12:hpcx/2.18")),
    ("proxies", WARNING, "https_proxy", _environment(HTTPS_PROXY="http://p:3128", NO_PROXY="localhost,10.20.0.0/16")),
    ("locked-memory", FAILURE, "64 KiB", _host(locked_memory_bytes=65536)),
    ("locked-memory", FAILURE, "8192 KiB", _host(locked_memory_bytes=8 * 2**20)),
    ("locked-memory", FAILURE, "1048575 KiB", _host(locked_memory_bytes=2**30 - 1)),
    ("locked-memory", WARNING, "a GPU's 79.6 GiB", _host(locked_memory_bytes=64 * 2**30)),
    ("open-files", WARNING, "1024", _host(open_files=1024)),
    ("shared-memory", FAILURE, "that can be written", _host(shared_memory_free_bytes=None)),
    ("shared-memory", WARNING, "64 MiB", _host(shared_memory_free_bytes=64 * 2**20)),
    ("host-name", WARNING, "127.0.1.1", _host(host_addresses=("127.0.1.1",))),
    ("host-name", WARNING, "does not resolve", _host(host_addresses=())),
    ("networks", FAILURE, "data network", _host(interfaces=rdma_host().interfaces[:1])),
    ("ports", WARNING, "1024 to 65535", _host(outgoing_ports=(1024, 65535))),
    ("ports", FAILURE, "none of 32", _host(ports_free=0)),
    ("ports", WARNING, "5 of 32", _host(ports_free=5)),
    ("rdma-devices", FAILURE, "no mlx5_1:1", _host(rdma=(port("mlx5_0", 0),))),
    ("rdma-devices", FAILURE, "Down (Polling)", _link(state="Down", physical_state="Polling")),
    (
        "rdma-devices",
        FAILURE,
        "Active defer (LinkErrorRecovery)",
        _link(state="Active defer", physical_state="LinkErrorRecovery"),
    ),
    ("rdma-devices", FAILURE, "speaks Ethernet", _link(link_layer="Ethernet")),
    ("rdma-rates", WARNING, "200 Gbit/s", _link(rate_gbit_per_s=200.0)),
    ("rdma-files", FAILURE, "Permission denied", _port(trouble="/dev/infiniband/uverbs0: Permission denied")),
    ("rdma-places", WARNING, "NUMA node 1", _port(numa=1)),
    ("gpu-direct", FAILURE, "nvidia_peermem", _host(kernel_modules=frozenset({"mlx5_ib"}))),
    ("peer-to-peer", WARNING, "IOMMU", _host(kernel_command_line="root=/dev/vda1")),
    ("peer-to-peer", WARNING, "ACS", _host(bridges_with_acs=("10:00.0",))),
    ("gpus", FAILURE, "1 GPUs", lambda seen: replace(seen, gpus=seen.gpus[:1])),
    ("gpus", FAILURE, "driver", _host(gpus=(), gpu_trouble="no driver is loaded")),
    (
        "gpus",
        WARNING,
        "were not seen: nvidia-smi did not",
        _host(gpus=(), gpus_unseen="nvidia-smi did not end in 30 s"),
    ),
    (
        "networks",
        WARNING,
        "were not seen: ip did not",
        _host(interfaces=(), interfaces_unseen="ip did not end in 2.5 s"),
    ),
    ("gpus", WARNING, "A100", _gpu(name="NVIDIA A100-SXM4-80GB")),
    ("gpus", FAILURE, "40 GiB", _gpu(memory_gib=39.6)),
    ("gpu-errors", FAILURE, "GPU 1 has had 2", _gpu(uncorrected_errors=2)),
    ("gpu-leftovers", WARNING, "GPU 1 has 60 GiB", _gpu(used_gib=60.0)),
    ("nvlink", FAILURE, "0-1", _host(nvlinks=frozenset())),
    ("nvlink-domain", FAILURE, "no NVLink fabric", _host(nvlink_fabric=())),
    (
        "nvlink-domain",
        FAILURE,
        "clique 8",
        _host(nvlink_fabric=(FabricSeen(state="Completed", cluster_uuid=UUID, clique="8"),)),
    ),
    (
        "nvlink-domain",
        FAILURE,
        "In Progress",
        _host(nvlink_fabric=(FabricSeen(state="In Progress", cluster_uuid=UUID, clique="7"),)),
    ),
    (
        "nvlink-domain",
        FAILURE,
        "00000000",
        _host(
            nvlink_fabric=(
                FabricSeen(state="Completed", cluster_uuid="00000000-0000-0000-0000-000000000000", clique="0"),
            )
        ),
    ),
    ("nvlink-domain", FAILURE, "IMEX", _host(imex_channel=False)),
    ("container-runtime", FAILURE, "apptainer", _host(programs=frozenset())),
    ("engine", WARNING, "did not end in 240 s", _engine(trouble="bash did not end in 240 s", late=True)),
    ("engine", FAILURE, "no such file", _host(engines=(replace(engine(), trouble="no such file"),))),
    ("engine", FAILURE, "has no vLLM", _engine(versions={"nixl": "1.5.2"})),
    ("nixl", FAILURE, "VRAM", _engine(registered={"DRAM": "", "VRAM": "NIXL_ERR_BACKEND"})),
    ("nixl", FAILURE, "PyTorch sees no GPU", _engine(registered={"DRAM": ""})),
    ("nixl", FAILURE, "plugin not found", _engine(backend_trouble="plugin not found")),
    ("two-ucx", FAILURE, "/opt/hpcx", _engine(ucx_libraries=("/envs/libucp.so", "/opt/hpcx/libucp.so"))),
    ("ucx-transports", FAILURE, "mlx5_1:1", _engine(ucx_resources=("rc_mlx5/mlx5_0:1", "tcp/eth0"))),
    ("ucx-transports", FAILURE, "mlx5_1:1", _engine(ucx_resources=("rc_mlx5/mlx5_0:1", "ud_mlx5/mlx5_1:1"))),
    ("pid-namespaces", WARNING, "PID namespace", _engine(pid_namespace="pid:[2]")),
    ("versions", WARNING, "vllm 0.31.0 (tested: 0.32.0+cpu)", _engine(versions={"vllm": "0.31.0", "nixl": "1.5.2"})),
    ("versions", FAILURE, "NixlConnector", _engine(connectors=("unknown",))),
    ("directories", FAILURE, "No space left", _disk(trouble="cannot be written: No space left on device")),
    ("space", FAILURE, "0.00 GB", _disk(free_bytes=10**6)),
    ("space", WARNING, "1.00 GB", _disk(free_bytes=10**9)),
    ("space", WARNING, "12 files", _disk(free_files=12)),
    ("shared-directory", FAILURE, "Read-only", _shared(rename_trouble="Read-only file system")),
    ("shared-directory", FAILURE, "not seen", _shared(round_trip_s=None, clock_ahead_s=None)),
    ("shared-directory", WARNING, "9 s", _shared(round_trip_s=9.0)),
    ("clock", WARNING, "4.0 s behind", _shared(clock_ahead_s=-4.0)),
]

BROKEN_ETHERNET: list[tuple[str, Severity, str, Break]] = [
    (
        "link-speed",
        WARNING,
        "0.0125 GB/s instead of 0.125",
        _host(
            interfaces=(
                *ethernet_host().interfaces[:2],
                Interface(name="data0", addresses=("10.1.0.1",), up=True, speed_mbit_per_s=100),
            )
        ),
    ),
    (
        "networks",
        FAILURE,
        "is down",
        _host(
            interfaces=(
                *ethernet_host().interfaces[:2],
                Interface(name="data0", addresses=("10.1.0.1",), up=False, speed_mbit_per_s=1000),
            )
        ),
    ),
    ("nixl", FAILURE, "no usable transports", _engine(backend_trouble="no usable transports")),
    ("ucx-transports", FAILURE, "no tcp on data0", _engine(ucx_resources=("tcp/eth0",))),
]


@pytest.mark.parametrize(("check", "severity", "words", "broken"), BROKEN_RDMA)
def test_a_broken_node_with_rdma_is_told_of_that_alone(
    check: str, severity: Severity, words: str, broken: Break
) -> None:
    (found,) = complaints(broken(rdma_host()), rdma_site())
    assert (found.check, found.severity, found.nodes) == (check, severity, ("r1",))
    assert words in found.what + found.why
    assert found.why
    assert found.remedy


@pytest.mark.parametrize(("check", "severity", "words", "broken"), BROKEN_ETHERNET)
def test_a_broken_node_on_ethernet_is_told_of_that_alone(
    check: str, severity: Severity, words: str, broken: Break
) -> None:
    (found,) = complaints(broken(ethernet_host()), ethernet_site())
    assert (found.check, found.severity) == (check, severity)
    assert words in found.what + found.why


def test_every_check_of_nodes_has_been_seen_to_fire() -> None:
    fired = {check for check, *_ in [*BROKEN_RDMA, *BROKEN_ETHERNET]}
    of_its_own = {"backend"}  # below, as the site file is what is wrong
    assert {check.id for check in NODE} - fired - of_its_own == set()


@pytest.mark.parametrize(
    ("seen", "wanted"), [(rdma_host(), rdma_site()), (ethernet_host(), ethernet_site())], ids=["rdma", "ethernet"]
)
def test_a_sound_node_is_not_complained_of_and_every_check_has_a_word(seen: Evidence, wanted: Wanted) -> None:
    assert complaints(seen, wanted) == []
    assert {one.check for one in examine(NODE, seen, wanted)} == {check.id for check in NODE}


def test_without_gpus_and_rdma_their_absence_is_no_failure() -> None:
    found = {one.check: one.severity for one in examine(NODE, ethernet_host(), ethernet_site())}
    assert {
        found[check] for check in ("rdma-devices", "gpus", "nvlink", "gpu-direct", "locked-memory", "nvlink-domain")
    } == {Severity.NOT_APPLICABLE}


def test_gpus_that_slurm_hides_are_not_missed() -> None:
    wanted = rdma_site()
    part = replace(rdma_host(), gpus=(gpu(0),), environment={"SLURM_GPUS_ON_NODE": "1"})
    assert complaints(part, wanted) == []


def test_what_was_not_seen_in_time_is_neither_there_nor_missing() -> None:
    slow = "did not end in 30 s"
    unseen = replace(rdma_host(), gpus=(), gpus_unseen=slow, nvlinks=None, nvlink_fabric=None)
    found = {one.check: one.severity for one in examine(NODE, unseen, rdma_site())}
    assert {found[check] for check in ("gpu-errors", "gpu-leftovers", "nvlink", "nvlink-domain")} == {
        Severity.NOT_APPLICABLE
    }
    blind = replace(ethernet_host(), interfaces=(), interfaces_unseen=slow, ports_tried=0, ports_free=0)
    found = {one.check: one.severity for one in examine(NODE, blind, ethernet_site())}
    assert found["networks"] == Severity.WARNING
    assert {found[check] for check in ("link-speed", "ports")} == {Severity.NOT_APPLICABLE}


@pytest.mark.parametrize("no_proxy", ["*", "10.10.0.1", "localhost, 10.10.0.0/16"])
def test_a_proxy_that_spares_the_control_network_is_fine(no_proxy: str) -> None:
    proxied = _environment(http_proxy="http://p:3128", no_proxy=no_proxy)(rdma_host())
    assert complaints(proxied, rdma_site()) == []


def test_dmabuf_stands_in_for_peermem_with_the_open_driver_on_a_newer_kernel_only() -> None:
    bare = replace(rdma_host(), kernel_modules=frozenset[str](), open_nvidia_driver=True)
    assert complaints(replace(bare, kernel="5.14.0-427.el9"), rdma_site()) == []
    assert [one.check for one in complaints(replace(bare, kernel="4.18.0-553.el8"), rdma_site())] == ["gpu-direct"]


@pytest.mark.parametrize(("kind", "severity"), [("efa", FAILURE), ("slingshot", WARNING)])
def test_ucx_on_efa_and_slingshot_is_told(kind: str, severity: Severity) -> None:
    site = site_of(ETHERNET.replace("kind: ethernet", f"kind: {kind}"))
    seen = replace(ethernet_host(), slingshot=("cxi0",))
    found = [one for one in complaints(seen, Wanted(site=site, node="p1")) if one.check == "backend"]
    assert [one.severity for one in found] == [severity]


def test_a_site_file_that_leaves_rdma_out_is_told() -> None:
    text = RDMA.replace('UCX_IB_PCI_RELAXED_ORDERING: "try"', 'UCX_TLS: "tcp,cuda_copy"')
    found = complaints(rdma_host(), Wanted(site=site_of(text), node="r1"))
    assert [(one.check, one.severity) for one in found] == [("backend", FAILURE)]
    assert "38 GB/s a port" in found[0].why


def test_what_the_site_file_sets_itself_is_not_inherited() -> None:
    text = RDMA.replace('UCX_IB_PCI_RELAXED_ORDERING: "try"', 'UCX_TLS: "rc,cuda_copy"')
    seen = replace(rdma_host(), environment={"UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0"})
    assert complaints(seen, Wanted(site=site_of(text), node="r1")) == []


@pytest.mark.parametrize("limit_gib", [80, 1024])
def test_locked_memory_that_a_whole_gpu_fits_into_is_fine(limit_gib: int) -> None:
    assert complaints(replace(rdma_host(), locked_memory_bytes=limit_gib * 2**30), rdma_site()) == []


def _inherited(text: str, **variables: str) -> list[tuple[Severity, str]]:
    seen = replace(rdma_host(), environment=variables)
    found = complaints(seen, Wanted(site=site_of(text), node="r1"))
    return [(one.severity, one.what) for one in found if one.check == "inherited-transport"]


def _with_ethernet_node(text: str) -> str:
    """The site with one more node, which has Ethernet only."""
    kind = """node_types:
  plain:
    cores: 8
    memory_gib: 15.0
    gpu: {model: cpu, count: 1, memory_gib: 15.0}
    nics:
      - name: eth0
        kind: ethernet
        rate: {nominal_gb_per_s: 3.125, efficiency: 0.95, source: invented}
        gpus: [0]
    host_path: {nominal_gb_per_s: 0.3, efficiency: 0.7, source: invented}
"""
    added = text.replace("node_types:\n", kind).replace("nodes:\n", "nodes:\n  - {hosts: e1, type: plain}\n")
    return added.replace('{name: leaf, hosts: "r[1-2]"}', '{name: leaf, hosts: "r[1-2],e1"}')


def test_an_inherited_ucx_tls_fails_nobody_where_kv_goes_by_libfabric() -> None:
    text = RDMA.replace("transport:\n", "transport:\n  backend: libfabric\n")
    assert _inherited(RDMA, UCX_TLS="tcp")[0][0] == FAILURE
    assert _inherited(text, UCX_TLS="tcp") == [(WARNING, "inherited: UCX_TLS=tcp")]


def test_what_the_site_file_sets_for_other_nics_is_not_set_on_this_node() -> None:
    def with_kinds(kinds: str) -> str:
        return RDMA.replace("transport:\n", f"transport:\n  kinds: {kinds}\n")

    elsewhere = _with_ethernet_node(with_kinds("{ethernet: {UCX_TLS: tcp}}"))
    assert [severity for severity, _ in _inherited(elsewhere, UCX_TLS="tcp")] == [FAILURE]
    here = with_kinds("{infiniband: {UCX_TLS: 'rc,cuda_copy'}}")
    assert _inherited(here, UCX_TLS="tcp") == []
    # it is set by placement, and on UCX only
    fabric = RDMA.replace("transport:\n", "transport:\n  backend: libfabric\n  libfabric: {FI_PROVIDER: verbs}\n")
    foreign = _inherited(fabric, FI_PROVIDER="tcp", UCX_NET_DEVICES="eth0")
    assert foreign == [(WARNING, "inherited: UCX_NET_DEVICES=eth0")]


def test_a_nic_that_no_worker_is_given_does_not_decide_what_is_inherited() -> None:
    text = RDMA.replace("    nvlink:\n", "      - {name: eth0, kind: ethernet, rate: *ndr, gpus: []}\n    nvlink:\n")
    kinds = "transport:\n  kinds: {infiniband: {UCX_TLS: 'rc,cuda_copy'}}\n"
    assert _inherited(text.replace("transport:\n", kinds), UCX_TLS="tcp") == []


def test_a_slingshot_node_without_its_device_is_told() -> None:
    text = ETHERNET.replace("kind: ethernet", "kind: slingshot").replace("  ucx:", "  backend: libfabric\n  ucx:")
    found = complaints(ethernet_host(), Wanted(site=site_of(text), node="p1"))
    assert [(one.check, one.severity) for one in found] == [("backend", FAILURE)]


BROKEN_SLURM: list[tuple[str, Severity, str, SlurmSeen]] = [
    ("slurm-commands", FAILURE, "sbatch", replace(slurm(), missing=("sbatch",))),
    ("slurm-commands", FAILURE, "Unable to contact", replace(slurm(), config_trouble="Unable to contact slurmctld")),
    (
        "slurm-commands",
        FAILURE,
        "scontrol: error: DNS SRV lookup failed / fatal: no configuration",
        replace(slurm(), config_trouble="scontrol: error: DNS SRV lookup failed\nscontrol: fatal: no configuration"),
    ),
    (
        "slurm-dialect",
        FAILURE,
        "--gres=gpu:2: Invalid generic resource",
        replace(
            slurm(),
            tries=(PartitionTry(partition="gpu", options=("--gres=gpu:2",), refusal="Invalid generic resource"),),
        ),
    ),
    (
        "slurm-facts",
        WARNING,
        "23.11.10",
        replace(slurm(), configuration={"SLURM_VERSION": "23.11.10", "TopologyPlugin": "topology/tree"}),
    ),
    ("slurm-nodes", FAILURE, "r2", replace(slurm(), node_states={"r1": "idle"})),
    ("slurm-nodes", WARNING, "r2: drain", replace(slurm(), node_states={"r1": "idle", "r2": "drain"})),
    ("slurm-nodes", WARNING, "r2: drng", replace(slurm(), node_states={"r1": "pow_dn", "r2": "DRNG"})),
    ("slurm-nodes", WARNING, "r2: resv", replace(slurm(), node_states={"r1": "plnd", "r2": "resv"})),
    ("slurm-nodes", WARNING, "r2: idle*", replace(slurm(), node_states={"r1": "idle", "r2": "idle*"})),
]


@pytest.mark.parametrize(("check", "severity", "words", "seen"), BROKEN_SLURM)
def test_a_slurm_that_is_not_as_the_site_file_says_is_told(
    check: str, severity: Severity, words: str, seen: SlurmSeen
) -> None:
    (found,) = slurm_complaints(seen, rdma_site())
    assert (found.check, found.severity) == (check, severity)
    assert words in found.what


def _with_topology(printed: str) -> SlurmSeen:
    return replace(slurm(), configuration={"SLURM_VERSION": "24.05.3", "TopologyPlugin": printed})


@pytest.mark.parametrize("printed", ["topology/default", "topology/none", "topology/flat"])
def test_a_topology_that_is_not_there_is_told_with_what_it_makes_useless(printed: str) -> None:
    found = slurm_complaints(_with_topology(printed), rdma_site())
    assert [one.check for one in found] == ["slurm-facts", "slurm-facts"]
    assert "plugin is flat, the site file says tree" in found[0].what


def test_another_topology_is_told_by_its_name_and_one_that_is_not_set_says_nothing() -> None:
    (found,) = slurm_complaints(_with_topology("topology/3d_torus"), rdma_site())
    assert "plugin is 3d_torus, the site file says tree" in found.what
    assert slurm_complaints(_with_topology("(null)"), rdma_site()) == []


def test_a_sound_slurm_is_not_complained_of_and_each_check_fires() -> None:
    assert slurm_complaints(slurm(), rdma_site()) == []
    assert {check.id for check in SLURM} == {check for check, *_ in BROKEN_SLURM}


def test_a_disk_is_named_by_what_the_site_file_calls_it() -> None:
    disk = Disk(called="local_disk", path="/scratch", trouble="No such file", free_bytes=0, free_files=None)
    (found,) = complaints(replace(rdma_host(), disks=(disk,)), rdma_site())
    assert "local_disk (/scratch)" in found.what
