"""`nvidia-smi -q` and `nvidia-smi --query-gpu`: which GPUs there are, and which NVLink domain they are in."""

from typing import Any

import pytest

from hpcserve.errors import InputError
from hpcserve.site.gpu_text import KINDS

BY_NAME = {kind.name: kind for kind in KINDS}
RACK = "3c1f0a52-8f1e-4d5b-9f3a-5e0a4f1d2b77"
ZERO = "00000000-0000-0000-0000-000000000000"


def gpu(bus: int, *, fabric: tuple[str, str, str, str] | None, mig: str = "Disabled", lanes: str = "16x") -> str:
    text = f"""\
GPU 00000000:{bus:02X}:00.0
    Product Name                          : NVIDIA GB200
    GPU UUID                              : GPU-0000-{bus}
    MIG Mode
        Current                           : {mig}
        Pending                           : N/A
    PCI
        Bus                               : 0x{bus:02X}
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 1
            Link Width
                Max                       : 16x
                Current                   : {lanes}
    FB Memory Usage
        Total                             : 189471 MiB
        Used                              : 0 MiB
    BAR1 Memory Usage
        Total                             : 262144 MiB
    Clocks Event Reasons
        State                             : Active
"""
    if fabric is not None:
        state, status, clique, uuid = fabric
        text += f"""\
    Fabric
        State                             : {state}
        Status                            : {status}
        CliqueId                          : {clique}
        ClusterUUID                       : {uuid}
        Health
            Bandwidth                     : N/A
            Status                        : odd
"""
    return text


def report(*gpus: str, attached: int | None = None) -> str:
    count = len(gpus) if attached is None else attached
    return f"""
==============NVSMI LOG==============

Timestamp                                 : Mon Mar  2 10:00:00 2026
Driver Version                            : 570.86.15
CUDA Version                              : 12.8

Attached GPUs                             : {count}
{"".join(gpus)}"""


def understood(kind: str, text: str) -> Any:
    assert next(one.name for one in KINDS if one.looks_like(text)) == kind
    return BY_NAME[kind].understood(BY_NAME[kind].parse(text, "gpus.txt"))


def test_gpus_of_a_rack_share_a_domain() -> None:
    text = report(*(gpu(bus, fabric=("Completed", "Success", "3", RACK)) for bus in (8, 9)))
    assert understood("nvidia-smi-q", text) == {
        "n_gpus": 2,
        "driver": "570.86.15",
        "models": ["NVIDIA GB200"] * 2,
        "memory_gib": [185.03] * 2,
        "pcie": [{"generation": 5, "lanes": 16}] * 2,
        "nvlink_domains": [{"cluster_uuid": RACK, "clique": 3, "gpus": [0, 1]}],
        "warnings": [],
    }


@pytest.mark.parametrize(
    "fabric",
    [
        ("Completed", "Success", "0", ZERO),
        ("N/A", "N/A", "N/A", "N/A"),
        ("Completed", "Success", "N/A", "N/A"),
        None,
    ],
    ids=["zero", "N/A", "half N/A", "old driver"],
)
def test_gpus_of_a_single_node_are_in_no_domain(fabric: tuple[str, str, str, str] | None) -> None:
    told = understood("nvidia-smi-q", report(gpu(8, fabric=fabric), gpu(9, fabric=fabric)))
    assert told["nvlink_domains"] == []
    assert told["warnings"] == []


@pytest.mark.parametrize("fabric", [("In Progress", "N/A", "3", RACK), ("Completed", "Not Enough", "3", RACK)])
def test_a_fabric_that_is_not_ready_counts_for_no_domain_and_is_told(fabric: tuple[str, str, str, str]) -> None:
    ready = gpu(9, fabric=("Completed", "Success", "3", RACK))
    told = understood("nvidia-smi-q", report(gpu(8, fabric=fabric), ready))
    assert [domain["gpus"] for domain in told["nvlink_domains"]] == [[1]]
    assert told["warnings"][0].startswith("GPU 0: NVLink fabric not ready")


def test_gpus_of_several_cliques_mig_and_lost_lanes_are_told() -> None:
    text = report(
        gpu(8, fabric=("Completed", "Success", "1", RACK), mig="Enabled"),
        gpu(9, fabric=("Completed", "Success", "2", RACK), lanes="8x"),
    )
    told = understood("nvidia-smi-q", text)
    assert [domain["clique"] for domain in told["nvlink_domains"]] == [1, 2]
    assert [warning[:12] for warning in told["warnings"]] == ["the GPUs are", "GPU 0: cut i", "GPU 1: 8 of "]


def refused(kind: str, text: str) -> str:
    with pytest.raises(InputError) as caught:
        BY_NAME[kind].parse(text, "gpus.txt")
    return str(caught.value)


def test_a_report_that_was_cut_off_is_refused() -> None:
    assert "1 GPUs of the 8 that are attached" in refused("nvidia-smi-q", report(gpu(8, fabric=None), attached=8))
    assert "no GPU" in refused("nvidia-smi-q", report())


def test_fields_that_were_asked_for() -> None:
    text = (
        "index, name, pci.bus_id, memory.total [MiB], pcie.link.width.max, fabric.clusterUuid, fabric.cliqueId\n"
        f"1, NVIDIA H100 80GB HBM3, 00000000:43:00.0, 81559 MiB, 16, {RACK}, 7\n"
        "0, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 81559 MiB, 16, [N/A], [N/A]\n"
    )
    told = understood("nvidia-smi-query", text)
    assert told["nvlink_domains"] == [{"cluster_uuid": RACK, "clique": 7, "gpus": [1]}]
    assert told["memory_gib"] == [79.65, 79.65]
    assert told["pcie"] == [{"generation": None, "lanes": 16}] * 2
    assert told["warnings"] == ["GPU 0: in no NVLink domain, though others of this node are"]
    assert understood("nvidia-smi-query", text.replace(" MiB", ""))["memory_gib"] == [79.65, 79.65]


def test_fields_without_names_and_broken_rows_are_refused() -> None:
    assert "noheader" in refused("nvidia-smi-query", "0, NVIDIA H100 80GB HBM3, 81559 MiB\n")
    lines = refused("nvidia-smi-query", "index, name\n0, A100\n1\n2, A100, x\n").splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["gpus.txt:3:1", "gpus.txt:4:1"]
    assert "indexes" in refused("nvidia-smi-query", "index, name\n0, A100\n2, A100\n")


@pytest.mark.parametrize(
    ("text", "what_to_do"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that\n", "driver"),
        ("No devices were found\n", "inside a job"),
        ("bash: nvidia-smi: command not found\n", "on a node with GPUs"),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.86\n", "reboot"),
        ('Field "fabric.cliqueId" is not a valid field to query.\n', "leave it out"),
    ],
)
def test_a_tool_that_failed_is_an_error_that_says_what_to_do(text: str, what_to_do: str) -> None:
    assert next(one.name for one in KINDS if one.looks_like(text)) == "nvidia-smi-failure"
    for kind in KINDS:
        assert what_to_do in refused(kind.name, text)
