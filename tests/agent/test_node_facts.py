"""What a node is found to have: addresses on the site's networks, granted GPUs by the node's own numbers."""

import json

import pytest

from hpcserve.agent.gpus import SeenGpu, granted_gpus, granted_slots, seen_gpus
from hpcserve.agent.network import address_on, host_in_url
from hpcserve.errors import ServiceError
from hpcserve.nouns import Network
from hpcserve.site.host_text import parse_ip_addresses


def entry(name: str, *addresses: tuple[str, ...]) -> dict[str, object]:
    return {
        "ifname": name,
        "addr_info": [
            {"family": "inet", "local": local, "prefixlen": 16, "scope": scope, **({"tentative": True} if late else {})}
            for local, scope, *late in addresses
        ],
    }


NODE = parse_ip_addresses(
    json.dumps(
        [
            entry("lo", ("127.0.0.1", "host"), ("::1", "host")),
            entry("eno1", ("10.20.0.7", "global"), ("fe80::1", "link"), ("2001:db8::7", "global")),
            entry("ib0", ("10.30.4.7", "global")),
            entry("ib1", ("2001:db8:31::7", "global", "tentative"), ("10.31.4.7", "global")),
            entry("docker0", ("172.17.0.1", "global")),
            entry("enp1s0"),
        ]
    ),
    "ip",
)


@pytest.mark.parametrize(
    ("network", "address"),
    [
        (Network(interface="ib0"), "10.30.4.7"),
        (Network(subnet="10.31.0.0/16"), "10.31.4.7"),
        (Network(interface="eno1"), "10.20.0.7"),
        (Network(interface="eno1", subnet="2001:db8::/32"), "2001:db8::7"),
        (Network(interface="lo", subnet="127.0.0.0/8"), "127.0.0.1"),
        (Network(subnet="10.31.9.9/16"), "10.31.4.7"),
    ],
)
def test_the_address_is_the_one_on_the_network_that_the_site_names(network: Network, address: str) -> None:
    assert address_on(network, NODE, called="data") == address


@pytest.mark.parametrize(
    "network",
    [Network(interface="ib7"), Network(subnet="10.99.0.0/16"), Network(interface="ib0", subnet="10.31.0.0/16")],
)
def test_a_node_without_such_an_address_says_what_it_has(network: Network) -> None:
    with pytest.raises(ServiceError) as caught:
        address_on(network, NODE, called="data")
    text = str(caught.value)
    assert "networks.data" in text
    assert "ib1 10.31.4.7" in text
    assert "enp1s0 (no address)" in text
    assert "fe80" not in text


def test_ipv6_stands_in_brackets_in_a_url() -> None:
    assert host_in_url("2001:db8::7") == "[2001:db8::7]"
    assert host_in_url("10.20.0.7") == "10.20.0.7"


EIGHT = "".join(f"{index}, GPU-{index:08x}-aaaa, 00000000:{0x10 + index:02X}:00.0\n" for index in range(8))


def test_all_gpus_are_granted_without_slurm() -> None:
    found = granted_gpus(seen_gpus(EIGHT), {}, count=8)
    assert [gpu.index for gpu in found] == list(range(8))
    assert found[7].uuid == "GPU-00000007-aaaa"
    assert found[7].bus_id == "00000000:17:00.0"


def test_constrained_devices_are_counted_from_zero_by_nvidia_smi_but_not_by_the_node() -> None:
    seen = seen_gpus("0, GPU-x, 00000000:14:00.0\n1, GPU-y, 00000000:15:00.0\n\n")
    found = granted_gpus(seen, {"SLURM_STEP_GPUS": "5,4"}, count=8)
    assert [(gpu.index, gpu.uuid) for gpu in found] == [(4, "GPU-x"), (5, "GPU-y")]


@pytest.mark.parametrize("environment", [{"SLURM_STEP_GPUS": "2,6-7"}, {"SLURM_JOB_GPUS": "2,6,7"}])
def test_unconstrained_devices_are_restricted_to_what_slurm_granted(environment: dict[str, str]) -> None:
    assert [gpu.index for gpu in granted_gpus(seen_gpus(EIGHT), environment, count=8)] == [2, 6, 7]


@pytest.mark.parametrize("visible", ["1,3", "GPU-00000001-aaaa, GPU-00000003-aaaa"])
def test_cuda_visible_devices_restricts_where_slurm_says_nothing(visible: str) -> None:
    found = granted_gpus(seen_gpus(EIGHT), {"CUDA_VISIBLE_DEVICES": visible}, count=8)
    assert [gpu.index for gpu in found] == [1, 3]


def test_fewer_gpus_than_were_granted_is_refused_with_all_three_counts() -> None:
    with pytest.raises(ServiceError, match=r"granted 2 .* sees 1, .* says 8"):
        granted_gpus((SeenGpu(index=0, uuid="GPU-x", bus_id="0"),), {"SLURM_STEP_GPUS": "0,1"}, count=8)


def test_a_line_of_nvidia_smi_that_is_no_gpu_is_shown() -> None:
    with pytest.raises(ServiceError, match="No devices were found"):
        seen_gpus("No devices were found\n")


@pytest.mark.parametrize(
    ("environment", "slots"),
    [
        ({}, [0, 1, 2, 3]),
        ({"SLURM_GPUS_ON_NODE": "2"}, [0, 1]),
        ({"SLURM_GPUS_ON_NODE": "9"}, [0, 1, 2, 3]),
        ({"SLURM_STEP_GPUS": "3,1", "SLURM_GPUS_ON_NODE": "2"}, [1, 3]),
        ({"SLURM_JOB_GPUS": "2"}, [2]),
    ],
)
def test_cpu_slots_are_what_slurm_granted_of_what_the_site_says(environment: dict[str, str], slots: list[int]) -> None:
    found = granted_slots(environment, count=4)
    assert [gpu.index for gpu in found] == slots
    assert all(gpu.uuid is None for gpu in found)
