"""Odd lines that the InfiniBand tools print, and what is refused."""

from typing import Any

import pytest

from hpcserve.errors import InputError
from hpcserve.site.infiniband_text import KINDS, LinkRate
from tests.site.infiniband_text.wiring import fat_tree

BY_NAME = {kind.name: kind for kind in KINDS}


def kind_of(text: str) -> str:
    return next((kind.name for kind in KINDS if kind.looks_like(text)), "unknown")


def understood(kind: str, text: str) -> Any:
    assert kind_of(text) == kind
    return BY_NAME[kind].understood(BY_NAME[kind].parse(text, "given.txt"))


def refused(kind: str, text: str) -> str:
    with pytest.raises(InputError) as caught:
        BY_NAME[kind].parse(text, "given.txt")
    return str(caught.value)


BLOCKS = """\
ibwarn: [4711] mad_rpc: _do_madrpc failed; dport (Lid 9)
#
# Initiated from node 0000000000a00000 port 0000000000a00000

vendid=0x2c9
devid=0xd2f0
sysimgguid=0xb00001
switchguid=0xb00001(b00001)
Switch\t8 "S-0000000000b00001"\t\t# "upper" base port 0 lid 3 lmc 0
[3]\t"S-0000000000b00000"[3]\t\t# "lower "quoted"" lid 1 4xNDR
[4]\t"S-0000000000b00000"[4]\t\t# "lower "quoted"" lid 1\x20
[5]

switchguid=0xb00000(b00000)
Switch\t8 "S-0000000000b00000"\t\t# "lower "quoted"" base port 0 lid 1 lmc 0
[1]\t"H-0000000000a00000"[1](a00001) \t\t# "alpha mlx5_0" lid 2 2xNDR
[2][ext 14]\t"H-0000000000a00003"[1](a00005) \t\t# "beta mlx5_bond_0" lid 4 4xNDR
[8]\t"H-0000000000a0000f"[1](a00010) \t\t# "Mellanox Technologies Aggregation Node" lid 9 4xNDR
"""


def test_blocks_with_warnings_ports_without_link_and_links_without_rate() -> None:
    told = understood("ibnetdiscover", BLOCKS)
    assert told["leaves"] == {'lower "quoted"': ["alpha", "beta"]}
    assert told["spines"] == ["upper"]
    assert told["uplinks"] == [{"switches": ['lower "quoted"', "upper"], "links": 2, "gbit_per_s": None}]
    assert told["link_rates"] == {"2xNDR": 1, "4xNDR": 3, "unknown": 1}
    assert told["down"] == ["upper port 5"]
    assert told["warnings"] == ["line 1: ibwarn: [4711] mad_rpc: _do_madrpc failed; dport (Lid 9)"]


PORTS = """\
CA   134  1 0x7cfe900300aa0001 4x EDR - SW  1719 10 0x7cfe900300bb0001 ( 'c0001 HCA-1' - 'edge 1 ' )
CA    78  1 0x7cfe900300aa0009 4x HDR - SW  1719 41 0x7cfe900300bb0001 ( 'Mellanox Technologies Aggregation Node' - 'edge 1 ' )
CA    79  1 0x7cfe900300aa000b 4x EDR - SW  1719 12 0x7cfe900300bb0001 ( 'MT4123 ConnectX6 Mellanox Technologies' - 'edge 1 ' )
SW  1719 37 0x7cfe900300bb0001 4x ???                                    'edge 1 '
SW  1719 38 0x7cfe900300bb0001 4x SDR                                    ' edge 1'
SW   479 22 0x0002c9020040f161 4x QDR                                   Infiniscale-IV Mellanox Technologies
"""  # noqa: E501


def test_ports_without_peer_and_adapters_without_host() -> None:
    told = understood("ibnetdiscover-p", PORTS)
    assert told["leaf_of"] == {"c0001": "edge 1"}
    assert told["down"] == ["edge 1 port 37", "edge 1 port 38", "Infiniscale-IV Mellanox Technologies port 22"]
    assert told["warnings"] == ["adapters whose description names no host: MT4123 ConnectX6 Mellanox Technologies"]


LINKS = """\
CA: a1 HCA-1:
      0xec0d9a0300aa0001      4    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       2   17[  ] "MF0;x:SB7800/U1" ( )
Switch: 0xec0d9a0300bb0001 MF0;x:SB7800/U1:
           2    1[  ] ==(                Down/ Polling)==>             [  ] "" ( )
           2    2[  ] ==(                Down/Disabled)==>             [  ] "" ( )
           2   17[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       4    1[  ] "a1 HCA-1" ( )
           2   21[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>      40    1[  ] "a2 HCA-2" ( Could be 53.125 Gbps)
           2   22[  ] ==( 1X      25.78125 Gbps Active/  LinkUp)==>      41    1[  ] "a3 HCA-1" (Could be 4X)
           2   23[  ] ==( 4X  10.0 Gbps (FDR10) Active/  LinkUp)==>      42    1[  ] "a4 HCA-1" ( )
           2   24[  ] ==( 4X   2.5 Gbps Initialize/  LinkUp)==>      43    1[  ] "a5 HCA-1" (Could be 12X Could be 10.0 Gbps)
"""  # noqa: E501


def test_links_below_what_both_ends_can_do_are_degraded() -> None:
    told = understood("iblinkinfo", LINKS)
    assert told["hosts_on_switch"] == ["a1", "a2", "a3", "a4", "a5"]
    assert told["leaf_guid"] == "ec0d9a0300bb0001"
    assert told["degraded"] == ["a2", "a3", "a5"]
    assert [(link["rate"], link["expected"]) for link in told["degraded_links"]] == [
        *(("4xEDR", "4xHDR"), ("1xEDR", "4xEDR"), ("4xSDR", "12xQDR")),
    ]
    assert told["link_rates"] == {"4xEDR": 2, "1xEDR": 1, "4xFDR10": 1, "4xSDR": 1}
    assert told["down_ports"] == 2
    assert "1 links are up and not active: no subnet manager has brought them up" in told["warnings"]


def test_two_cables_in_one_port_are_told() -> None:
    text = LINKS.replace("   21[  ]", "   17[  ]")
    assert any("2 cables in one port" in warning for warning in understood("iblinkinfo", text)["warnings"])


def adapter(name: str, state: str, physical: str, layer: str, rate: int = 400) -> str:
    return (
        f"CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tNode GUID: 0xc470bd0300aa0001\n\tPort 1:\n"
        f"\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {rate}\n\t\tBase lid: 48\n"
        f"\t\tPort GUID: 0xc470bd0300aa0001\n\t\tLink layer: {layer}\n"
    )


def test_which_ports_of_a_host_can_carry_kv() -> None:
    text = (
        adapter("mlx5_0", "Active", "LinkUp", "InfiniBand")
        + adapter("mlx5_1", "Active", "LinkUp", "Ethernet", 100)
        + adapter("mlx5_2", "Down", "Polling", "InfiniBand", 10)
        + adapter("mlx5_3", "Initializing", "LinkUp", "InfiniBand")
        + adapter("mlx4_0", "Active", "LinkUp", "IB", 40)
    )
    told = understood("ibstat", text)
    assert told["ib_active"] == ["mlx5_0", "mlx4_0"]
    assert told["roce_active"] == ["mlx5_1"]
    assert told["unusable"] == ["mlx5_2", "mlx5_3"]
    assert told["ports"][0]["gbit_per_s"] == 400


def test_ports_of_an_adapter_with_two_are_told_with_their_number() -> None:
    one = adapter("mlx5_0", "Active", "LinkUp", "InfiniBand")
    second = one[one.index("\tPort 1:") :].replace("Port 1:", "Port 2:").replace("Active", "Down")
    told = understood("ibstat", one + second)
    assert (told["ib_active"], told["unusable"]) == (["mlx5_0:1"], ["mlx5_0:2"])


NO_MODULE = """\
ibwarn: [593] get_abi_version: can't read ABI version from /sys/class/infiniband_mad/abi_version (No such file or directory)
ibwarn: [593] mad_rpc_open_port: can't open UMAD port ((null):0)
./libibnetdisc/ibnetdisc.c:802; can't open MAD port ((null):0)
Failed to open (null) port 0
"""  # noqa: E501
NO_RIGHTS = """\
ibwarn: [1] get_smi_gsi_pair: Can't open SMI UMAD port (Input/output error) (rxe0:1)
ibwarn: [1] mad_rpc_open_port2: can't open UMAD port ((null):0)
ibnetdiscover: iberror: failed: discover failed
"""


@pytest.mark.parametrize(
    ("text", "what_to_do"),
    [
        (NO_RIGHTS, "topology.conf"),
        ("ibpanic: [2] main: stat of IB device 'mthca0' failed: No such file or directory\n", "no InfiniBand adapter"),
        ("ibwarn: [7] sa_get_handle: No SM/SA found on port (null):0\n", "start opensm"),
        (NO_MODULE, "topology.conf"),
        ("Fatal error:  No devices\n", "no InfiniBand adapter"),
        ("bash: line 1: ibnetdiscover: command not found\n", "install infiniband-diags"),
        ("srun: error: n1: /usr/sbin/iblinkinfo: No such file or directory\n", "install infiniband-diags"),
        ("src/ibnetdisc.c:785; umad (/dev/infiniband/umad0) open: Permission denied\n", "as root"),
    ],
)
def test_a_tool_that_failed_is_an_error_that_says_what_to_do(text: str, what_to_do: str) -> None:
    assert kind_of(text) == "infiniband-failure"
    for kind in KINDS:
        said = refused(kind.name, text)
        assert what_to_do in said
        assert "\n" not in said


def test_a_list_of_nodes_is_refused_by_name() -> None:
    text = 'Ca\t : 0x000000000000000e ports 1 devid 0x0 vendid 0x0 "x1 HCA-1"\nSwitch\t : 0x1 ports 6 "leaf"\n'
    assert kind_of(text) == "ibnetdiscover"
    assert refused("ibnetdiscover", text).count("ibnetdiscover -l") == 1


def test_every_broken_line_is_told_with_its_place() -> None:
    text = BLOCKS.replace('"[3]\t\t#', '"[three]\t\t#').replace('# "alpha mlx5_0" lid 2', "# alpha lid 2")
    lines = refused("ibnetdiscover", text).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["given.txt:10:1", "given.txt:16:1"]
    assert "[three]" in lines[0]


def test_places_count_the_prefix_that_pdsh_put_there() -> None:
    text = "".join(f"n7: {line}\n" for line in (PORTS + "CA what\n").splitlines())
    assert refused("ibnetdiscover-p", text).startswith("given.txt:7:5: ")


def test_a_broken_text_does_not_bury_the_reader() -> None:
    said = refused("ibnetdiscover", 'Switch\t8 "S-01"\t\t# "x" base port 0 lid 1 lmc 0\n' + "[1] what\n" * 5000)
    assert len(said.splitlines()) == 100


def test_rates_are_one_way_and_of_data() -> None:
    figures = {
        "4xSDR": 8, "4xQDR": 32, "4xFDR10": 40, "4xEDR": 100, "2xHDR": 100, "4xHDR": 200, "4xNDR": 400, "4xXDR": 800,
    }  # fmt: skip
    for name, gbit_per_s in figures.items():
        rate = LinkRate.named(name)
        assert rate is not None
        assert rate.data_gbit_per_s == pytest.approx(gbit_per_s)
        assert rate.signal_gbit_per_s > rate.data_gbit_per_s
    fdr = LinkRate.named("4xFDR")
    assert fdr is not None
    assert fdr.data_gbit_per_s == pytest.approx(54.545, abs=1e-3)
    assert LinkRate.named("4x???") is None
    assert LinkRate.named("0xHDR") is None


def test_a_large_net_is_read_whole() -> None:
    wiring = fat_tree(leaves=40, hosts=20, spines=20)
    told = understood("ibnetdiscover", wiring.as_ibnetdiscover())
    assert len(told["hosts"]) == 800
    assert len(told["uplinks"]) == 800
    assert all(uplink["gbit_per_s"] == 200 for uplink in told["uplinks"])
