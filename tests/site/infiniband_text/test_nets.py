"""All four ways in which the tools print a net, of nets whose wiring is known."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.site.infiniband_text import KINDS, InfinibandNet
from tests.site.infiniband_text.wiring import Wiring, fat_tree

PARSERS = {kind.name: kind.parse for kind in KINDS}
FORMS: dict[str, tuple[str, Callable[[Wiring], str]]] = {
    "blocks": ("ibnetdiscover", Wiring.as_ibnetdiscover),
    "ports": ("ibnetdiscover-p", Wiring.as_port_list),
    "links": ("iblinkinfo", Wiring.as_iblinkinfo),
    "links without LIDs": ("iblinkinfo", lambda wiring: wiring.as_iblinkinfo(lids=False)),
    "links alone": ("iblinkinfo", Wiring.as_iblinkinfo_lines),
}
each_form = pytest.mark.parametrize("form", FORMS)


def read(wiring: Wiring, form: str) -> InfinibandNet:
    kind, written = FORMS[form]
    net = PARSERS[kind](written(wiring), "net.txt")
    assert isinstance(net, InfinibandNet)
    return net


def cables(net: InfinibandNet) -> set[frozenset[tuple[str, int]]]:
    return {frozenset((net.nodes[end.node].name, end.port) for end in link.ends) for link in net.links}


trees = st.builds(
    fat_tree,
    leaves=st.integers(2, 5),
    hosts=st.integers(1, 5),
    spines=st.integers(1, 3),
    parallel=st.integers(1, 3),
    idle=st.integers(0, 2),
    rate=st.sampled_from(["1xSDR", "4xQDR", "4xFDR", "4xEDR", "2xHDR", "4xHDR"]),
)


@each_form
@settings(max_examples=25, deadline=None)
@given(wiring=trees)
def test_every_form_gives_the_wiring(form: str, wiring: Wiring) -> None:
    net = read(wiring, form)
    assert cables(net) == wiring.seen()
    assert len(net.links) == len(wiring.cables)
    assert {leaf: set(hosts) for leaf, hosts in net.leaves.items()} == wiring.leaves
    assert set(net.spines) == set(wiring.switches) - set(wiring.leaves)
    assert {str(link.rate) for link in net.links} == {wiring.cables[0].rate}
    assert net.warnings == ()


# The lines of `iblinkinfo -l` do not say which of them are a switch's.
@pytest.mark.parametrize("form", sorted(set(FORMS) - {"links alone"}))
def test_hosts_stand_in_the_order_of_their_ports_however_blocks_are_sorted(form: str) -> None:
    wiring = fat_tree(leaves=2, hosts=4, spines=1)
    turned = replace(wiring, adapters=wiring.adapters[::-1])
    assert read(turned, form).leaves["leaf1"] == ("node0001", "node0002", "node0003", "node0004")


@pytest.mark.parametrize("form", ["links", "links without LIDs", "links alone"])
def test_ports_without_a_link_are_down(form: str) -> None:
    net = read(fat_tree(leaves=2, hosts=3, spines=1, idle=2), form)
    assert [net.end_label(end) for end in net.down] == [
        *("leaf1 port 5", "leaf1 port 6", "leaf2 port 5", "leaf2 port 6"),
    ]


@each_form
def test_one_slow_link_among_many_is_named(form: str) -> None:
    wiring = fat_tree(leaves=2, hosts=4, spines=1)
    slow = replace(wiring, cables=(replace(wiring.cables[0], rate="1xHDR"), *wiring.cables[1:]))
    net = read(slow, form)
    ((link, usual),) = net.slower
    assert set(net.link_label(link).split(" - ")) == {"leaf1 port 1", "node0001 HCA-1"}
    assert (str(link.rate), str(usual)) == ("1xHDR", "4xHDR")
    assert any(warning.startswith("slow: ") and "node0001" in warning for warning in net.warnings)


@each_form
def test_two_speeds_in_equal_numbers_are_no_fault(form: str) -> None:
    wiring = fat_tree(leaves=2, hosts=4, spines=1)
    mixed = [
        replace(cable, rate="2xHDR") if cable.other.node[-5:] == "HCA-1" and place % 2 else cable
        for place, cable in enumerate(wiring.cables)
    ]
    assert read(replace(wiring, cables=tuple(mixed)), form).slower == ()


@pytest.mark.parametrize("form", ["blocks", "ports", "links", "links alone"])
def test_switches_of_one_name_are_told_apart(form: str) -> None:
    """Switches that nobody named print their product."""
    wiring = fat_tree(leaves=2, hosts=2, spines=1)
    kind, written = FORMS[form]
    product = "SwitchX Mellanox"
    text = written(wiring).replace("leaf1", product).replace("leaf2", product)
    net = PARSERS[kind](text, "net.txt")
    assert sorted(net.leaves.values()) == [("node0001", "node0002"), ("node0003", "node0004")]
    assert all(label.startswith(f"{product} 506b4b03") for label in net.leaves)


def test_far_ends_of_one_name_without_lids_are_found_by_what_they_say_of_the_near_end() -> None:
    text = fat_tree(leaves=2, hosts=2, spines=1).as_iblinkinfo(lids=False)
    net = PARSERS["iblinkinfo"](text.replace("leaf1", "same").replace("leaf2", "same"), "net.txt")
    assert sorted(net.leaves.values()) == [("node0001", "node0002"), ("node0003", "node0004")]


def test_far_ends_that_cannot_be_told_apart_are_said_to_be_so() -> None:
    text = (
        fat_tree(leaves=2, hosts=1, spines=1)
        .as_iblinkinfo(lids=False)
        .replace("leaf1", "same")
        .replace("leaf2", "same")
    )
    net = PARSERS["iblinkinfo"](text.replace("spine1", "same"), "net.txt")
    assert any("iblinkinfo -l" in warning for warning in net.warnings)


@pytest.mark.parametrize("form", FORMS)
def test_hosts_with_a_port_on_each_rail_have_several_leaves(form: str) -> None:
    rails = fat_tree(leaves=2, hosts=2, spines=1)
    names = {"node0003 HCA-1": "node0001 HCA-2", "node0004 HCA-1": "node0002 HCA-2"}
    kind, written = FORMS[form]
    text = written(rails)
    for old, new in names.items():
        text = text.replace(old, new)
    net = PARSERS[kind](text, "net.txt")
    assert net.leaves_of == {"node0001": ("leaf1", "leaf2"), "node0002": ("leaf1", "leaf2")}
    told = next(one for one in KINDS if one.name == kind).understood(net)
    assert told["leaf_of"] == {"node0001": ["leaf1", "leaf2"], "node0002": ["leaf1", "leaf2"]}


def test_output_collected_with_pdsh_is_the_same() -> None:
    wiring = fat_tree(leaves=2, hosts=2, spines=1)
    for kind, written in FORMS.values():
        prefixed = "".join(f"admin1: {line}\n" for line in written(wiring).splitlines())
        chosen = next(one for one in KINDS if one.looks_like(prefixed))
        assert chosen.name == kind
        assert cables(chosen.parse(prefixed, "net.txt")) == wiring.seen()
