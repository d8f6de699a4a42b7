from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.fabric import Fabric, GpuAt, Link, fabric_of
from hpcserve.measure.outliers import Judged, outliers_of
from tests.measure.grounds import fat_tree, shipped

BOX, TREE = fabric_of(shipped("onebox")), fabric_of(fat_tree(leaves=4, nodes_per_leaf=4))
Rate = Callable[[str, float], float]


@cache
def paths(fabric: Fabric) -> list[tuple[str, str, str, tuple[Link, ...]]]:
    ends = [(GpuAt(a, 0), GpuAt(b, 0)) for a in fabric.nodes for b in fabric.nodes if a != b]
    return [(a.node, b.node, fabric.path_class(a, b), fabric.links(a, b)) for a, b in ends]


def judged(fabric: Fabric, rate: Rate) -> list[Judged]:
    """Every pair, at the slowest of what `rate` makes of each of its links."""
    return [
        Judged(
            source=a,
            reader=b,
            ends=(a, b),
            kind=kind,
            links=tuple(link.name for link in links),
            gb_per_s=min(rate(link.name, link.gb_per_s) for link in links),
            static_gb_per_s=min(link.gb_per_s for link in links),
        )
        for a, b, kind, links in paths(fabric)
    ]


def slower(part: str, by: float) -> Rate:
    return lambda name, rate: rate * by if part in name else rate


def test_where_nothing_is_slow_nothing_is_named() -> None:
    assert outliers_of(judged(BOX, lambda _, rate: rate)) == ()


def test_a_node_whose_cable_is_slow_is_named_though_it_is_in_half_of_the_pairs() -> None:
    (found,) = outliers_of(judged(BOX, slower("node03", 0.1)))
    assert (found.kind, found.name) == ("node", "node03")
    assert found.gb_per_s == pytest.approx(0.01195)
    assert found.expected_gb_per_s == pytest.approx(0.1195)
    assert "6 of 6 pairs" in found.why


def test_a_cable_that_is_slow_one_way_is_a_link() -> None:
    (found,) = outliers_of(judged(TREE, slower("n0007.mlx5_0:1 out", 0.5)))
    assert (found.kind, found.name) == ("link", "n0007.mlx5_0:1 out")


def test_a_degraded_uplink_is_named() -> None:
    found = outliers_of(judged(TREE, slower("leaf2 up", 0.5)))
    assert [(one.kind, one.name) for one in found] == [("link", "leaf2 up")]


def test_two_bad_parts_are_two_findings() -> None:
    found = outliers_of(judged(TREE, lambda name, rate: rate / 2 if "n0007" in name or name == "leaf0 up" else rate))
    assert {(one.kind, one.name) for one in found} == {("node", "n0007"), ("link", "leaf0 up")}


def test_links_that_no_pair_tells_apart_are_named_together() -> None:
    """With two leaves, all that goes up from one goes down to the other."""
    (found,) = outliers_of(judged(BOX, slower("leaf1 up", 0.5)))
    assert found.kind == "link"
    assert found.name == "leaf1 up or leaf2 down"
    assert "cannot tell" in found.why


def test_a_class_that_is_slow_as_a_whole_is_held_against_the_site_where_another_class_is_right() -> None:
    """Both ways of the one uplink of a site with two leaves: every pair across is slow, and none is an outlier."""
    found = outliers_of(judged(BOX, slower("leaf1 ", 0.5)))
    assert [(one.kind, one.name) for one in found] == [
        ("link", "leaf1 up or leaf2 down"),
        ("link", "leaf2 up or leaf1 down"),
    ]
    assert found[0].expected_gb_per_s == pytest.approx(0.0239)


def test_a_site_file_that_promises_too_much_everywhere_makes_no_outlier() -> None:
    assert outliers_of(judged(BOX, lambda _, rate: 0.6 * rate)) == ()


def test_a_pair_that_no_link_explains_stands_for_itself() -> None:
    pairs = judged(TREE, lambda _, rate: rate)
    odd = pairs.index(next(pair for pair in pairs if (pair.source, pair.reader) == ("n0001", "n0009")))
    pairs[odd] = Judged(
        **{name: getattr(pairs[odd], name) for name in ("source", "reader", "ends", "kind", "links")}, gb_per_s=1.0
    )
    (found,) = outliers_of(pairs)
    assert found.name == "n0001 to n0009"


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(TREE.nodes), st.floats(0.05, 0.7), st.floats(0.93, 1.0))
def test_any_slow_node_of_a_noisy_site_is_the_only_finding(node: str, by: float, noise: float) -> None:
    noisy = [noise, 1.0, 0.97]
    found = outliers_of(
        judged(TREE, lambda name, rate: rate * noisy[len(name) % 3] * (by if name.startswith(node) else 1))
    )
    assert [(one.kind, one.name) for one in found] == [("node", node)]
