"""What nodes print of their cores, interfaces and RDMA devices."""

import json
from typing import Any

import pytest

from hpcserve.errors import InputError
from hpcserve.site.host_text import KINDS, parse_ip_addresses

BY_NAME = {kind.name: kind for kind in KINDS}

LSCPU = """\
Architecture:                         x86_64
  CPU op-mode(s):                     32-bit, 64-bit
CPU(s):                               192
  On-line CPU(s) list:                0-191
Vendor ID:                            GenuineIntel
  Model name:                         Intel(R) Xeon(R) Platinum 8468
    Thread(s) per core:               2
    Core(s) per socket:               48
    Socket(s):                        2
NUMA:
  NUMA node(s):                       3
  NUMA node0 CPU(s):                  0-47,96-143
  NUMA node8 CPU(s):                  48-95,144-191
  NUMA node10 CPU(s):
Vulnerabilities:
  Spectre v2:                         Mitigation; Enhanced IBRS
"""


def understood(kind: str, text: str) -> Any:
    assert next(one.name for one in KINDS if one.looks_like(text)) == kind
    return BY_NAME[kind].understood(BY_NAME[kind].parse(text, "host.txt"))


def refused(kind: str, text: str) -> str:
    with pytest.raises(InputError) as caught:
        BY_NAME[kind].parse(text, "host.txt")
    return str(caught.value)


def test_cores_and_numa_nodes_whatever_their_numbers() -> None:
    told = understood("lscpu", LSCPU)
    assert (told["cpus"], told["cores"], told["sockets"]) == (192, 96, 2)
    assert told["numa_cpus"] == {"0": "0-47,96-143", "8": "48-95,144-191", "10": ""}
    assert told["model"] == "Intel(R) Xeon(R) Platinum 8468"


def test_lines_and_json_of_lscpu_say_the_same() -> None:
    def entry(line: str) -> dict[str, Any]:
        key, _, value = line.partition(":")
        return {"field": f"{key.strip()}:", "data": value.strip() or None}

    entries = [entry(line) for line in LSCPU.splitlines()]
    nested = {
        "lscpu": [{**entries[0], "children": [entries[1]]}, *entries[2:5], {"field": "x", "children": entries[5:]}]
    }
    assert understood("lscpu", json.dumps(nested)) == understood("lscpu", LSCPU)


def test_lscpu_that_is_none_is_refused() -> None:
    assert "no line `CPU(s):`" in refused("lscpu", "Architecture: x86_64\n")
    assert refused("lscpu", LSCPU.replace("0-47,96-143", "0x00ff")).startswith("host.txt:12:")
    assert "JSON" in refused("lscpu", '{"lscpu": [')
    assert "JSON" in refused("lscpu", '{"lscpu": ' + "[" * 100_000)


IP = [
    {"ifname": "lo", "flags": ["LOOPBACK", "UP", "LOWER_UP"], "mtu": 65536, "operstate": "UNKNOWN",
     "link_type": "loopback", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
    {},
    {"ifname": "ib0", "flags": ["UP"], "mtu": 2044, "operstate": "UP", "link_type": "infiniband",
     "addr_info": [{"family": "inet", "local": "10.9.0.4", "prefixlen": 16},
                   {"family": "inet6", "local": "fe80::1", "prefixlen": 64}]},
    {"ifname": "eno2", "flags": ["NO-CARRIER", "UP"], "mtu": 1500, "operstate": "DOWN", "link_type": "ether"},
]  # fmt: skip


def test_interfaces_and_their_addresses() -> None:
    assert understood("ip-addr", json.dumps(IP))["interfaces"] == [
        {"name": "lo", "up": True, "mtu": 65536, "kind": "loopback", "addresses": ["127.0.0.1/8"]},
        {"name": "ib0", "up": True, "mtu": 2044, "kind": "infiniband", "addresses": ["10.9.0.4/16", "fe80::1/64"]},
        {"name": "eno2", "up": False, "mtu": 1500, "kind": "ether"},
    ]


@pytest.mark.parametrize(
    ("state", "flags", "is_up"),
    [
        ("UP", ["UP", "LOWER_UP"], True),
        ("UNKNOWN", ["UP", "LOWER_UP"], True),
        ("UNKNOWN", ["UP"], False),
        ("DORMANT", ["UP", "LOWER_UP"], False),
        ("TESTING", ["UP", "LOWER_UP"], False),
        ("LOWERLAYERDOWN", ["NO-CARRIER", "UP"], False),
        ("DOWN", [], False),
        (None, ["UP", "LOWER_UP"], True),
    ],
)
def test_an_interface_is_up_where_the_kernel_passes_data_to_it(
    state: str | None, flags: list[str], is_up: bool
) -> None:
    entry = {"ifname": "eth0", "flags": flags, **({"operstate": state} if state else {})}
    (found,) = parse_ip_addresses(json.dumps([entry]), "ip")
    assert found.is_up is is_up


def test_addresses_that_others_cannot_be_given_are_told_apart() -> None:
    told = [
        {},
        {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
        {"local": "2001:db8::7", "prefixlen": 64, "scope": "global", "tentative": True},
        {"local": "2001:db8::8", "prefixlen": 64, "scope": "global"},
        {"local": "127.0.0.1", "prefixlen": 8, "scope": "host"},
    ]
    (found,) = parse_ip_addresses(json.dumps([{"ifname": "eth0", "addr_info": told}]), "ip")
    assert len(found.addresses) == 4
    assert found.usable_addresses == ("2001:db8::8", "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"ifname": "a"},\n {"ifname"]', "host.txt:2:11: no JSON"),
        ('{"ifname": "a"}', "JSON that is no list"),
        ('[{"ifname": ""}, 7]', "entry 0 of the list without `ifname`"),
        ('[{"ifname": "a", "addr_info": [{"local": "10.0.0.300", "prefixlen": 8}]}]', "an address of a that is none"),
        ('[{"ifname": "a", "addr_info": [{"local": "10.0.0.3", "prefixlen": 64}]}]', "an address of a that is none"),
        ("[" * 100_000, "JSON that nothing prints"),
        ("[" + "9" * 100_000 + "]", "JSON that nothing prints"),
    ],
)
def test_lists_of_interfaces_that_are_none_are_refused(text: str, said: str) -> None:
    assert said in refused("ip-addr", text)


SYSFS = """\
/sys/devices/system/node/node0/cpulist:0-47
/sys/devices/system/node/node2/cpulist:
/sys/class/net/ens1/speed:100000
/sys/class/net/ens1/operstate:up
/sys/class/net/ens1/device/numa_node:0
/sys/class/net/ens2/speed:-1
/sys/class/net/ens2/operstate:down
/sys/class/net/ens2/device/numa_node:-1
grep: /sys/class/net/lo/speed: Invalid argument
/sys/class/infiniband/mlx5_0/device/numa_node:1
/sys/class/infiniband/mlx5_0/device/current_link_speed:16.0 GT/s PCIe
/sys/class/infiniband/mlx5_0/device/current_link_width:16
/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE
/sys/class/infiniband/mlx5_0/ports/1/phys_state:5: LinkUp
/sys/class/infiniband/mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)
/sys/class/infiniband/mlx5_0/ports/1/link_layer:InfiniBand
/sys/class/infiniband/mlx5_1/ports/1/state:1: DOWN
/sys/class/infiniband/mlx5_1/ports/1/phys_state:2: Polling
/sys/class/infiniband/mlx5_1/ports/1/rate:10 Gb/sec (4X SDR)
/sys/class/infiniband/mlx5_1/ports/1/link_layer:InfiniBand
/sys/class/net/ens1/address:aa:bb:cc:00:11:22
"""


def test_files_of_sys() -> None:
    assert understood("sysfs", SYSFS) == {
        "numa_cpus": {"0": "0-47", "2": ""},
        "interfaces": [{"name": "ens1", "up": True, "gbit_per_s": 100.0, "numa": 0}, {"name": "ens2", "up": False}],
        "rdma": [
            {
                "name": "mlx5_0",
                "numa": 1,
                "pcie_gt_per_s": 16.0,
                "pcie_lanes": 16,
                "ports": [{"name": "mlx5_0:1", "up": True, "gbit_per_s": 400.0, "link_layer": "InfiniBand"}],
            },
            {
                "name": "mlx5_1",
                "numa": None,
                "pcie_gt_per_s": None,
                "pcie_lanes": None,
                "ports": [{"name": "mlx5_1:1", "up": False, "gbit_per_s": 10.0, "link_layer": "InfiniBand"}],
            },
        ],
        "warnings": ["mlx5_0: its slot carries 252 Gbit/s (16 lanes at 16 GT/s), its ports 400"],
    }


@pytest.mark.parametrize(
    ("state", "physical", "is_up"),
    [
        ("4: ACTIVE", "0: <unknown>", True),
        ("5: ACTIVE_DEFER", "6: LinkErrorRecovery", False),
        ("2: INIT", "5: LinkUp", False),
        ("3: ARMED", "5: LinkUp", False),
    ],
)
def test_a_port_is_up_in_the_state_in_which_ucx_takes_it(state: str, physical: str, is_up: bool) -> None:
    text = SYSFS.replace("4: ACTIVE", state).replace("5: LinkUp", physical)
    assert understood("sysfs", text)["rdma"][0]["ports"][0]["up"] is is_up


def test_a_slot_that_is_wide_enough_is_no_matter() -> None:
    assert understood("sysfs", SYSFS.replace("16.0 GT/s", "32.0 GT/s"))["warnings"] == []


def test_a_slot_at_64_gt_per_s_pays_for_flits() -> None:
    """242 of 256 bytes of a flit are data: four lanes carry 242 Gbit/s."""
    narrow = SYSFS.replace("16.0 GT/s", "64.0 GT/s").replace("link_width:16", "link_width:4")
    [warning] = understood("sysfs", narrow)["warnings"]
    assert warning == "mlx5_0: its slot carries 242 Gbit/s (4 lanes at 64 GT/s), its ports 400"


@pytest.mark.parametrize(("rate", "carried"), [("2.5", 32), ("5.0", 64), ("8.0", 126)])
def test_older_slots_pay_for_their_own_encoding(rate: str, carried: int) -> None:
    [warning] = understood("sysfs", SYSFS.replace("16.0 GT/s", f"{rate} GT/s"))["warnings"]
    assert f"carries {carried} Gbit/s" in warning


def test_dumps_that_are_none_are_refused_with_every_place() -> None:
    text = SYSFS.replace("speed:100000", "speed:fast").replace("4: ACTIVE", "yes") + "what\n"
    places = [line.partition(": ")[0] for line in refused("sysfs", text).splitlines()]
    assert places == ["host.txt:3:1", "host.txt:13:1", "host.txt:22:1"]
    assert "no file that is understood" in refused("sysfs", "/sys/class/net/ens1/address:aa\n")
