"""Max-min fair shares: what must hold of any flows over any links, and some that a person can work out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.fabric import GpuAt, Link, fabric_of, max_min
from tests.fabric.made import domains, rails

RATES = [Link(f"link{number}", rate, "drawn") for number, rate in enumerate([1.0, 1.0, 2.0, 3.0, 7.5, 0.125])]
flows = st.lists(st.lists(st.sampled_from(RATES), min_size=1, max_size=4), min_size=1, max_size=8)


@given(flows)
def test_no_link_carries_more_than_its_rate_and_each_flow_has_a_full_link_that_holds_it(
    drawn: list[list[Link]],
) -> None:
    shares = max_min(drawn)
    load = {
        link.name: sum(share.gb_per_s for links, share in zip(drawn, shares, strict=True) if link in links)
        for link in RATES
    }
    assert all(load[link.name] <= link.gb_per_s * (1 + 1e-9) for link in RATES)
    for number, share in enumerate(shares):
        assert share.bottleneck in drawn[number]
        assert load[share.bottleneck.name] == pytest.approx(share.bottleneck.gb_per_s)
        assert share.sharing == tuple(other for other, links in enumerate(drawn) if share.bottleneck in links)
        assert all(shares[other].gb_per_s <= share.gb_per_s * (1 + 1e-9) for other in share.sharing)


@given(flows, st.lists(st.sampled_from(RATES), min_size=1, max_size=4))
def test_one_more_flow_never_helps_the_one_that_has_least(drawn: list[list[Link]], more: list[Link]) -> None:
    before, after = max_min(drawn), max_min([*drawn, more])
    assert min(share.gb_per_s for share in after) <= min(share.gb_per_s for share in before) * (1 + 1e-9)


@given(flows)
def test_the_order_of_flows_does_not_matter(drawn: list[list[Link]]) -> None:
    there, back = max_min(drawn), max_min(drawn[::-1])
    assert [share.gb_per_s for share in there] == pytest.approx([share.gb_per_s for share in back[::-1]])


def test_a_flow_held_elsewhere_leaves_the_rest_to_the_other() -> None:
    wide, narrow = Link("wide", 10.0, ""), Link("narrow", 2.0, "")
    shares = max_min([[wide, narrow], [wide]])
    assert [share.gb_per_s for share in shares] == [2.0, 8.0]
    assert [share.bottleneck.name for share in shares] == ["narrow", "wide"]


def test_a_link_that_a_flow_passes_twice_counts_once_and_of_two_rates_the_least_holds() -> None:
    link, slower = Link("host", 10.0, ""), Link("host", 4.0, "measured")
    assert [share.gb_per_s for share in max_min([[link, link]])] == [10.0]
    assert [share.gb_per_s for share in max_min([[link], [slower]])] == [2.0, 2.0]


def test_a_flow_without_links_is_a_mistake_and_no_flows_are_none() -> None:
    assert max_min([]) == ()
    with pytest.raises(ValueError, match="flow 1 passes no link"):
        max_min([[RATES[0]], []])


def test_two_flows_across_the_spine_share_an_uplink_and_one_on_its_rail_only_its_port() -> None:
    fabric = fabric_of(rails())
    a, b, c = GpuAt("n11", 0), GpuAt("n12", 0), GpuAt("n21", 0)
    alone = fabric.share([(a, c)])
    assert alone[0].gb_per_s == fabric.path(a, c).gb_per_s == 40.0
    both = fabric.share([(a, c), (b, GpuAt("n22", 0))])
    assert [share.gb_per_s for share in both] == [30.0, 30.0]
    assert both[0].bottleneck.name == "u1r0 up"
    assert both[0].bottleneck.source == "two links up"
    assert both[0].sharing == (0, 1)
    into_one = fabric.share([(a, c), (b, c), (GpuAt("n22", 0), c)])
    assert [share.gb_per_s for share in into_one] == pytest.approx([40 / 3] * 3)


def test_flows_inside_a_domain_share_only_the_gpus_own_links() -> None:
    fabric = fabric_of(domains())
    shares = fabric.share([(GpuAt("t1", 0), GpuAt("t2", 0)), (GpuAt("t1", 1), GpuAt("t2", 1))])
    assert [share.gb_per_s for share in shares] == [700.0, 700.0]
    shares = fabric.share([(GpuAt("t1", 0), GpuAt("t2", 0)), (GpuAt("t1", 0), GpuAt("t2", 1))])
    assert [share.gb_per_s for share in shares] == [350.0, 350.0]
