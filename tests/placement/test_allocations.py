"""Before Slurm has chosen: the ways to ask, what each may be granted, and what waiting for one is worth."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.draw import outlook_table
from hpcserve.errors import PlacementError
from hpcserve.fabric import fabric_of
from hpcserve.nouns import Ask, Chance, Distance, Granted, Mode, NodeGroup, Outlook, Site, Slo, Workload
from hpcserve.placement import outlook, place
from hpcserve.placement.allocations_ways import Openings, Ways
from hpcserve.site import expand_hosts, fold_hosts
from tests.placement.test_place import H100, pools, shipped
from tests.placement.test_shapes import SMALL, asked, speed

HOSTS = expand_hosts("h[01-16]")
ALL = "h[01-16]"


def with_slurm(site: Site, **changes: Any) -> Site:
    assert site.slurm is not None
    return site.model_copy(update={"slurm": site.slurm.model_copy(update=changes)})


def with_features(site: Site, groups: Mapping[str, tuple[str, ...]], type_of: dict[str, str] | None = None) -> Site:
    """The site with its nodes in groups of these hosts and features."""
    only = next(iter(site.node_types))
    nodes = tuple(
        NodeGroup(hosts=hosts, type=(type_of or {}).get(hosts, only), features=features)
        for hosts, features in groups.items()
    )
    return site.model_copy(update={"nodes": nodes})


TREE = with_slurm(H100, topology="tree")
GB200 = shipped("gb200-nvl72")
RACKS = ("rack1t[01-18]", "rack2t[01-18]")


def looked(
    site: Site = TREE,
    *,
    idle: tuple[str, ...] | None = None,
    jobless: tuple[str, ...] | None = None,
    simulated: bool = False,
    **changes: Any,
) -> Outlook:
    """Two workers of eight GPUs each, on two nodes."""
    plain = {"mode": Mode.DISAGGREGATED, "pools": pools(1, 8, 1, 8), "slo": Slo(ttft_ms=150.0, tpot_ms=30.0)}
    wanted = asked(site, **(plain | changes))
    fabric = fabric_of(site)
    plan = place(fabric=fabric, site=site, shape=SMALL, service=wanted)
    speeds = [speed(8)] if simulated else []
    return outlook(
        fabric=fabric,
        site=site,
        shape=SMALL,
        service=wanted,
        plan=plan,
        speeds=speeds,
        idle=None if idle is None else [host for one in idle for host in expand_hosts(one)],
        jobless=None if jobless is None else [host for one in jobless for host in expand_hosts(one)],
    )


def by_way(found: Outlook) -> dict[str, Chance]:
    return {one.constraint or "free": one for one in found.chances}


def likely(chance: Chance) -> tuple[str, ...] | None:
    return None if chance.likely is None else chance.likely.nodes


def test_one_leaf_two_leaves_and_no_constraint_are_told_apart() -> None:
    found = by_way(looked())
    assert list(found) == ["--nodelist=h[01-02]", "--switches=1", "--switches=2", "free"]
    assert [one.worst.leaves for one in found.values()] == [1, 1, 2, 2]
    assert {one.best.leaves for one in found.values()} == {1}
    assert found["free"].worst.nodes == ("h01", "h09")
    assert {one.likely for one in found.values()} == {None}


def test_what_is_idle_is_packed_under_one_leaf_where_it_can_be() -> None:
    packed = by_way(looked(idle=("h[01-03]", "h[09-10]")))
    assert likely(packed["free"]) == likely(packed["--switches=1"]) == ("h09", "h10")
    assert likely(packed["--nodelist=h[01-02]"]) == ("h01", "h02")
    apart = by_way(looked(idle=("h03", "h12")))
    assert likely(apart["free"]) == likely(apart["--switches=2"]) == ("h03", "h12")
    assert likely(apart["--switches=1"]) is None
    assert likely(apart["--nodelist=h[01-02]"]) is None


def test_too_few_idle_nodes_are_said_and_spares_count() -> None:
    found = looked(idle=("h03",))
    assert by_way(found)["free"].likely is None
    assert found.advice[0] == "too few nodes are idle: the job waits in any case"
    assert "not known" in looked().advice[0]
    spared = looked(idle=("h[03-04]",), spares=1)
    assert spared.asked_nodes == 3
    assert by_way(spared)["free"].likely is None
    assert likely(by_way(looked(idle=("h[03-05]",), spares=1))["free"]) == ("h03", "h04", "h05")


def thin_uplinks() -> Site:
    """Nodes apart pass an uplink of less than one port's rate."""
    slow = H100.switches[0].uplink
    assert slow is not None
    thin = slow.model_copy(update={"nominal_gb_per_s": 20.0, "efficiency": 1.0})
    switches = tuple(
        switch.model_copy(update={"uplink": thin}) if switch.uplink else switch for switch in TREE.switches
    )
    return TREE.model_copy(update={"switches": switches})


def test_a_wait_is_worth_the_share_of_goodput_that_it_wins() -> None:
    """T (1 - l / g), with T the 60 minutes of the job."""
    found = looked(thin_uplinks(), idle=("h03", "h12"), simulated=True, time="1:00:00")
    ways = by_way(found)
    near, now = ways["--switches=1"], ways["free"].likely
    assert now is not None
    assert near.worst.goodput_per_s is not None
    assert now.goodput_per_s is not None
    assert near.worst.goodput_per_s > 1.2 * now.goodput_per_s > 0
    assert near.worth_waiting_min == pytest.approx(60 * (1 - now.goodput_per_s / near.worst.goodput_per_s))
    assert ways["--switches=2"].worth_waiting_min == 0.0
    assert ways["free"].worth_waiting_min is None
    assert ways["free"].best.goodput_per_s == near.worst.goodput_per_s
    assert f"wait more than {near.worth_waiting_min:.0f} minutes" in found.advice[0]
    shown = outlook_table(found, sources=("made, TP 8",))
    assert "Before Slurm has chosen: 2 nodes of h100-ib are asked for, 2 are idle." in shown
    row = next(line for line in shown.splitlines() if line.startswith("no constraint"))
    goods = [now.goodput_per_s, now.goodput_per_s, near.worst.goodput_per_s]
    assert " / ".join(f"{good:.3g}" for good in goods) in row
    assert " 2 / 2 / 1 " in row
    assert "h[03,12]" in row
    assert shown.endswith("Times: made, TP 8\n")


def test_a_long_list_of_nodes_is_cut_visibly() -> None:
    nodes = tuple(f"host{number * 7:04d}" for number in range(9))
    there = Granted(nodes=nodes, leaves=1)
    chance = Chance(constraint=f"--nodelist={','.join(nodes)}", worst=there, likely=there, best=there)
    shown = outlook_table(
        Outlook(service="s", site="s", asked_nodes=9, idle_nodes=9, chances=(chance,), advice=("none",))
    )
    assert shown.count("...") == 2


def test_where_both_give_the_same_waiting_gains_nothing() -> None:
    found = looked(idle=("h03", "h12"), simulated=True)
    assert by_way(found)["--switches=1"].worth_waiting_min == 0.0
    assert found.advice[0].endswith("waiting gains nothing")


def test_switches_are_said_to_be_a_wish() -> None:
    assert any("max_switch_wait" in line for line in looked().advice)
    without = looked(with_slurm(TREE, switches_option=False))
    assert list(by_way(without)) == ["--nodelist=h[01-02]", "free"]
    assert not any("max_switch_wait" in line for line in without.advice)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": Mode.AGGREGATED}, "no KV moves between workers"),
        ({"pools": pools(1, 4, 1, 4)}, "all workers are on one node"),
    ],
)
def test_where_no_allocation_is_better_no_constraint_is_advised(changes: dict[str, Any], words: str) -> None:
    [advice] = looked(**changes).advice
    assert advice.startswith(words)
    assert advice.endswith("ask for no constraint")


def test_an_allocation_that_cannot_carry_the_plan_says_why() -> None:
    found = looked(distance=Distance.ACROSS_LEAVES, idle=("h[01-02]",))
    free = by_way(found)["free"]
    assert free.likely is not None
    assert free.likely.trouble is not None
    assert free.likely.slowest_transfer_ms is None
    assert free.best.trouble is None
    assert f"no constraint, now: {free.likely.trouble}" in outlook_table(found)


def test_without_a_partition_slurm_grants_nothing() -> None:
    nowhere = asked(mode=Mode.DISAGGREGATED, pools=pools(1, 8, 1, 8)).model_copy(update={"partition": None})
    fabric = fabric_of(TREE)
    plan = place(fabric=fabric, site=TREE, shape=SMALL, service=nowhere)
    with pytest.raises(PlacementError, match="names no partition"):
        outlook(fabric=fabric, site=TREE, shape=SMALL, service=nowhere, plan=plan)


def test_a_load_that_all_carry_makes_waiting_worthless() -> None:
    load = Workload(input_tokens=4000, output_tokens=100, requests_per_s=0.01)
    found = looked(thin_uplinks(), idle=("h03", "h12"), simulated=True, workload=load)
    assert {one.worth_waiting_min for one in found.chances} == {0.0, None}


# Features


def test_features_of_single_leaves_are_asked_for_together() -> None:
    """Where Slurm knows no switches, `[a|b]` is all nodes under one leaf, whichever is free."""
    site = with_slurm(
        with_features(H100, {"h[01-08]": ("row1", "ib"), "h[09-16]": ("row2", "ib")}), switches_option=False
    )
    found = by_way(looked(site, idle=("h03", "h[12-13]")))
    assert list(found) == ["--nodelist=h[01-02]", "--constraint=[row1|row2]", "free"]
    rows = found["--constraint=[row1|row2]"]
    assert (rows.worst.leaves, rows.best.leaves, likely(rows)) == (1, 1, ("h12", "h13"))
    assert by_way(looked(site, idle=("h03", "h12")))["--constraint=[row1|row2]"].likely is None
    assert found["free"].worst.leaves == 2


def test_a_feature_that_all_nodes_have_or_too_few_is_no_constraint() -> None:
    site = with_features(TREE, {"h01": ("one",), "h[02-16]": ()})
    everywhere = with_features(TREE, {ALL: ("ib",)})
    for there in (site, everywhere):
        assert not any("--constraint" in way for way in by_way(looked(there)))


def partly_poor(site: Site, poor_hosts: str, others: str, *, features: tuple[str, ...] = ()) -> Site:
    """The site with NICs of a quarter of the rate on some nodes; the features are the others'."""
    [(name, kind)] = site.node_types.items()
    slow = tuple(
        nic.model_copy(update={"rate": nic.rate.model_copy(update={"nominal_gb_per_s": 12.5})}) for nic in kind.nics
    )
    kinds = {name: kind, "poor": kind.model_copy(update={"nics": slow})}
    made = with_features(site, {others: features, poor_hosts: ()}, {poor_hosts: "poor"})
    return made.model_copy(update={"node_types": kinds})


def mixed() -> Site:
    """Eight poor nodes on both leaves; a feature tells the others."""
    return partly_poor(TREE, "h[01-04,09-12]", "h[05-08,13-16]", features=("ndr",))


def test_a_feature_keeps_the_job_to_the_better_nodes() -> None:
    """8 GPUs' KV, 1.31 GB of 4000 tokens, at 8 x 38 and 8 x 9.5 GB/s."""
    found = looked(mixed(), idle=("h01", "h[05-06]", "h09"))
    ways = by_way(found)
    ndr, free = ways["--constraint=ndr"], ways["free"]
    assert likely(ndr) == ("h05", "h06")
    assert ndr.worst.nodes == ("h05", "h13")
    assert ndr.worst.slowest_transfer_ms == pytest.approx(4000 * 327_680 / 304e9 * 1e3)
    assert free.worst.slowest_transfer_ms == pytest.approx(4000 * 327_680 / 76e9 * 1e3)
    assert free.best.slowest_transfer_ms == ndr.worst.slowest_transfer_ms
    assert found.advice[0].startswith("--constraint=ndr: at worst 4.3 ms to move the KV (predicted)")


def test_the_sites_own_constraint_stays_and_narrows_every_way() -> None:
    site = with_features(
        with_slurm(TREE, directives=("--qos=a", "-C gpu")),
        {"h[01-04]": ("gpu", "big"), "h[05-12]": ("gpu",), "h[13-16]": ()},
    )
    found = by_way(looked(site, idle=(ALL,)))
    assert "--constraint=gpu&big" in found
    nodes = {node for one in found.values() for node in (*one.worst.nodes, *(likely(one) or ()))}
    assert nodes.isdisjoint(expand_hosts("h[13-16]"))
    either = with_slurm(site, directives=("--constraint=gpu|big",))  # `&` would bind to the last one only
    assert not any("--constraint" in way for way in by_way(looked(either)))


def test_where_types_differ_any_nodes_are_not_the_same() -> None:
    site = mixed()
    kind = site.node_types["poor"]
    other = kind.model_copy(update={"gpu": kind.gpu.model_copy(update={"model": "a100-sxm"})})
    site = site.model_copy(update={"node_types": {**site.node_types, "poor": other}})
    [advice] = looked(site, mode=Mode.AGGREGATED).advice
    assert advice.endswith("their types may, and are not weighed")


# topology/block


def in_racks(site: Site = GB200, **changes: Any) -> Outlook:
    """Four workers of four GPUs each, on four trays."""
    return looked(site, pools=pools(2, 4, 2, 4), **changes)


def test_blocks_are_asked_for_segments_and_to_be_alone() -> None:
    found = in_racks(idle=RACKS, jobless=RACKS)
    ways = by_way(found)
    assert list(ways) == ["--nodelist=rack1t[01-04]", "--segment=4", "--exclusive=topo", "free"]
    assert {one.worst.leaves for one in ways.values()} == {1}  # a job that fits a base block is in one
    assert any("other jobs' traffic" in line for line in found.advice)


def test_alone_in_a_block_needs_one_without_jobs_but_not_without_broken_nodes() -> None:
    idle = ("rack1t[01-10]", "rack2t[01-05]")
    free = in_racks(idle=idle, jobless=("rack1t[01-10]", "rack2t[01-18]"))
    assert likely(by_way(free)["--exclusive=topo"]) == expand_hosts("rack2t[01-04]")
    assert likely(by_way(free)["free"]) == expand_hosts("rack2t[01-04]")
    used = in_racks(idle=idle, jobless=("rack1t[01-10]", "rack2t[01-17]"))
    assert by_way(used)["--exclusive=topo"].likely is None
    assert likely(by_way(used)["--segment=4"]) == expand_hosts("rack1t[01-04]")
    unknown = in_racks(idle=idle, jobless=None)
    assert by_way(unknown)["--exclusive=topo"].likely is None


@pytest.mark.parametrize("version", ["23.11", None])
def test_what_this_slurm_lacks_is_not_offered_and_that_is_said(version: str | None) -> None:
    found = in_racks(with_slurm(GB200, version=version))
    assert not any("--segment" in way or "--exclusive" in way for way in by_way(found))
    assert any("came with Slurm 24.05" in line for line in found.advice)
    flat = looked(with_slurm(TREE, version="25.05"))  # a tree has none of them, however new
    assert not any("--segment" in way or "--exclusive" in way for way in by_way(flat))
    assert not any("24.05" in line for line in flat.advice)


def test_more_nodes_than_a_base_block_may_be_torn_apart() -> None:
    found = by_way(in_racks(with_slurm(GB200, block_sizes=(2,))))
    assert found["free"].worst.leaves == 2


def test_of_blocks_the_poorest_is_the_worst() -> None:
    """The plan is on rack1, which is listed first and is fast."""
    ways = by_way(in_racks(partly_poor(GB200, RACKS[1], RACKS[0])))
    assert ways["free"].best.nodes == expand_hosts("rack1t[01-04]")
    for way in ("--segment=4", "--exclusive=topo", "free"):
        assert ways[way].worst.nodes == expand_hosts("rack2t[01-04]"), way


def test_where_the_plan_is_not_allowed_the_best_are_the_richest() -> None:
    """A plan over two leaves, of which the second is fast."""
    site = partly_poor(TREE, "h[01-08]", "h[09-16]")
    fabric = fabric_of(site)
    ask = Ask(partition="gpu", nodes=2, gpus_per_node=8)
    made = Ways(
        ask=ask, count=2, planned=("h01", "h09"), names=fabric.nodes, fabric=fabric, site=site, openings=None
    ).all()
    [one_leaf] = [way for way in made if way.constraint == "--switches=1"]
    assert set(one_leaf.worst) < set(expand_hosts("h[01-08]"))
    assert set(one_leaf.best) == set(expand_hosts("h[09-16]"))


# Whatever is idle


@settings(deadline=None)
@given(st.integers(1, 16), st.sets(st.sampled_from(HOSTS)), st.booleans(), st.sets(st.sampled_from(HOSTS)))
def test_every_way_allows_what_it_says(count: int, idle: set[str], packs: bool, having: set[str]) -> None:
    groups = {
        ",".join(sorted(hosts)): features
        for hosts, features in ((having, ("some",)), (set(HOSTS) - having, ()))
        if hosts
    }
    site = with_features(TREE if packs else H100, groups)
    fabric = fabric_of(site)
    ways = Ways(
        ask=Ask(partition="gpu", nodes=count, gpus_per_node=8),
        count=count,
        planned=fabric.nodes[:count],
        names=fabric.nodes,
        fabric=fabric,
        site=site,
        openings=Openings(idle=frozenset(idle)),
    ).all()
    found = {way.constraint or "free": way for way in ways}
    planned, free_now = fabric.nodes[:count], [host for host in fabric.nodes if host in idle]
    under = {leaf: [host for host in free_now if fabric.leaf_of(host) == leaf] for leaf in ("leaf1", "leaf2")}
    fewest_leaves = 1 if max(map(len, under.values())) >= count else 2
    switches = [f"--switches={leaves}" for leaves in (1, 2) if leaves <= count <= 8 * leaves]
    feature = ["--constraint=some"] if count <= len(having) < len(HOSTS) else []
    assert list(found) == [f"--nodelist={fold_hosts(planned)}", *switches, *feature, "free"]

    def leaves_of(nodes: tuple[str, ...]) -> int:
        return len({fabric.leaf_of(node) for node in nodes})

    for way in ways:
        assert len(set(way.worst)) == len(way.worst) == count
        if way.likely is not None:
            assert len(set(way.likely)) == len(way.likely) == count
            assert set(way.likely) <= idle
    by_name, free = found[f"--nodelist={fold_hosts(planned)}"], found["free"]
    assert by_name.worst == by_name.best == free.best == planned
    assert by_name.likely == (planned if idle.issuperset(planned) else None)
    for leaves, way in ((int(name.removeprefix("--switches=")), found[name]) for name in switches):
        assert leaves_of(way.worst) == leaves
        if leaves_of(planned) <= leaves:
            assert way.best == planned
        else:  # all nodes of one leaf
            assert (leaves_of(way.best), len(set(way.best))) == (1, 8)
        assert (way.likely is not None) == (len(idle) >= count and fewest_leaves <= leaves)
        assert way.likely is None or leaves_of(way.likely) == fewest_leaves
    for name in feature:
        some = found[name]
        assert set(some.worst) <= having
        assert set(some.best) == (set(planned) if having.issuperset(planned) else having)
        assert (some.likely is not None) == (len(idle & having) >= count)
        assert some.likely is None or set(some.likely) <= having
    assert leaves_of(free.worst) == min(count, 2)
    assert (free.likely is not None) == (len(idle) >= count)
    if free.likely is not None and packs:
        assert leaves_of(free.likely) == fewest_leaves
        if fewest_leaves == 1:  # of the leaf that is left with fewest
            (leaf,) = {fabric.leaf_of(node) for node in free.likely}
            assert len(under[leaf]) == min(len(own) for own in under.values() if len(own) >= count)
    elif free.likely is not None:
        assert list(free.likely) == free_now[:count]  # wherever they are: it does not look at leaves
