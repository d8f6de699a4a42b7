"""Ethernet's NICs: written where the admin has one of that name or asks for it, and nowhere else."""

import re

import pytest

from hpcserve.nouns import Nic
from hpcserve.site import load_site
from hpcserve.site.learning import Reading, Refreshed, draft_of, gather, refresh
from tests.site.learning.texts import ADMIN, IBSTAT, all_but_nodes_and_nics, reading, show_node

CLUSTER = [reading(show_node(), "nodes.txt"), *all_but_nodes_and_nics()]
SYSFS = """\
/sys/class/net/eno1/speed:25000
/sys/class/net/eno1/operstate:up
/sys/class/net/eno1/device/numa_node:1
/sys/class/net/eno2/operstate:down
/sys/class/net/lo/operstate:unknown
/sys/class/net/veth0/speed:10000
/sys/class/net/veth0/operstate:up
"""
ROCE_ONLY = IBSTAT.replace("InfiniBand", "Ethernet")
ROCE = "node_types.a100-x4.nics[mlx5_2:1]"
ETHERNET = "node_types.a100-x4.nics[eno1]"


def imported(text: str, *more: Reading, before: Refreshed | None = None, take: tuple[str, ...] = ()) -> Refreshed:
    record = before.record if before else {}
    return refresh(text, draft_of(gather([*CLUSTER, *more])), source="g", record=record, take=take, efficiency=0.9)


def nics(refreshed: Refreshed) -> dict[str, Nic]:
    text = re.sub(r"gpus:( +# not learnt)", r"gpus: [0, 1, 2, 3]\1", refreshed.text)
    [kind] = load_site(text, source="g").node_types.values()
    return {nic.name: nic for nic in kind.nics}


def ibstat(text: str = IBSTAT) -> Reading:
    return reading(text, "gn03/ibstat.txt")


def test_why_an_interface_cannot_be_taken_is_told() -> None:
    sysfs = reading(SYSFS, "gn03/sysfs.txt")
    first = imported(ADMIN, ibstat(), sysfs)
    taken = imported(first.text, ibstat(), sysfs, before=first, take=("node_types.a100-x4.nics[veth0]",))
    assert taken.text == first.text
    assert any("nics[veth0]" in note and "virtual interface" in note for note in taken.notes)


def test_a_roce_port_is_named_with_what_takes_it_in_and_that_does() -> None:
    first = imported(ADMIN, ibstat())
    assert set(nics(first)) == {"mlx5_0:1", "mlx5_1:1"}
    assert any(f"--take '{ROCE}'" in note for note in first.notes)
    second = imported(first.text, ibstat(), before=first, take=(ROCE,))
    taken = nics(second)["mlx5_2:1"]
    assert (taken.kind, taken.rate.nominal_gb_per_s) == ("roce", 3.125)
    assert not any(ROCE in note for note in second.notes)
    third = imported(second.text, ibstat(), before=second)
    assert (third.text, third.conflicts) == (second.text, ())
    faster = imported(second.text, ibstat(IBSTAT.replace("Rate: 25", "Rate: 100")), before=second)
    assert nics(faster)["mlx5_2:1"].rate.nominal_gb_per_s == 12.5


@pytest.mark.parametrize("take", ["all", "node_types", "node_types.a100-x4.nics"])
def test_what_takes_everything_takes_no_port_that_the_admin_did_not_name(take: str) -> None:
    first = imported(ADMIN, ibstat())
    assert set(nics(imported(first.text, ibstat(), before=first, take=(take,)))) == {"mlx5_0:1", "mlx5_1:1"}


def test_one_that_is_taken_in_with_the_first_import() -> None:
    first = imported(ADMIN, ibstat(ROCE_ONLY), take=(ROCE,))
    assert {name: nic.kind for name, nic in nics(first).items()} == {"mlx5_2:1": "roce"}
    assert [one for one in first.notes if "mlx5_0:1" in one]


def test_an_interface_that_the_file_names_gets_its_speed_and_another_is_not_written() -> None:
    sysfs = reading(SYSFS, "gn03/sysfs.txt")
    first = imported(ADMIN, ibstat(), sysfs)
    assert "eno1" not in nics(first)
    mine = first.text.replace(
        "    nics:\n",
        "    nics:\n      - {name: eno1, kind: ethernet, rate: {unknown: true, source: nobody}, gpus: [0, 1, 2, 3]}\n",
    )
    virtual = mine.replace("name: eno1", "name: veth0")
    assert imported(virtual, ibstat(), sysfs, before=first).text == virtual
    second = imported(mine, ibstat(), sysfs, before=first)
    found = nics(second)["eno1"]
    assert (found.rate.nominal_gb_per_s, found.numa, found.gpus) == (3.125, 1, (0, 1, 2, 3))
    assert second.conflicts == ()
    assert set(nics(imported(first.text, ibstat(), sysfs, before=first, take=(ETHERNET,)))) == {
        "mlx5_0:1",
        "mlx5_1:1",
        "eno1",
    }
