"""Which shared links were the limit of the flows over them, and which only carried what the ends could send."""

from datetime import date
from statistics import median

import pytest

from hpcserve.fabric import fabric_of
from hpcserve.measure import Errand, Flow, Reading, measurement_of, measurement_text, plan_errand
from hpcserve.measure.carried import links_carried
from hpcserve.measure.outliers import SLOW
from hpcserve.nouns import LinkMeasured, Rate, Site
from tests.measure.grounds import fat_tree, nodes_of

NIC_GB_PER_S = 48.0
ACROSS = {"leaf0 up", "leaf1 down", "leaf1 up", "leaf0 down"}
NONE: set[str] = set()
BATCH = 2**24


def tree(uplink_gb_per_s: float | None, *, nodes_per_leaf: int = 2) -> Site:
    """Two leaves, as many NICs of 48 GB/s under each, one uplink."""
    unknown = Rate(unknown=True, source="nobody has measured it")
    known = Rate(effective_gb_per_s=uplink_gb_per_s, source="test") if uplink_gb_per_s else unknown
    return fat_tree(leaves=2, nodes_per_leaf=nodes_per_leaf, uplink=known)


def errand_of(site: Site) -> Errand:
    return plan_errand(site, nodes=nodes_of(site), seconds=1.0)


def reading(number: int, task: int, flow: Flow, gb_per_s: float, *, start_s: float = 0.5) -> Reading:
    took = BATCH / gb_per_s / 1e9
    spans = tuple((start_s + place * took, start_s + (place + 1) * took) for place in range(4))
    return Reading(round=number, task=task, flow=flow, attempt=1, batch_bytes=BATCH, batches_s=spans)


def readings(errand: Errand, *, alone: float | None, together: float) -> list[Reading]:
    """Every pair alone at one rate (None: none was measured alone), and each flow of the shared tasks at another."""
    made = []
    for number, tasks in enumerate(errand.rounds):
        for place, task in enumerate(tasks):
            rate = together if task.links else alone
            made += [reading(number, place, flow, rate) for flow in task.flows if rate is not None]
    return made


def carried(
    site: Site, *, alone: float | None, together: float
) -> tuple[dict[str, LinkMeasured], dict[str, LinkMeasured]]:
    errand = errand_of(site)
    held, not_filled = links_carried(errand, readings(errand, alone=alone, together=together), fabric=fabric_of(site))
    return {one.name: one for one in held}, {one.name: one for one in not_filled}


def test_flows_that_their_nics_bind_are_no_limit_of_the_link() -> None:
    held, not_filled = carried(tree(400.0), alone=45.0, together=44.0)
    assert (set(held), set(not_filled)) == (NONE, ACROSS)
    assert not_filled["leaf0 up"].gb_per_s == pytest.approx(88.0)
    assert not_filled["leaf0 up"].static_gb_per_s == pytest.approx(2 * NIC_GB_PER_S)


def test_a_link_that_slows_its_flows_is_their_limit() -> None:
    held, not_filled = carried(tree(48.0), alone=45.0, together=23.0)
    assert (set(held), set(not_filled)) == (ACROSS, NONE)
    assert held["leaf0 up"].gb_per_s == pytest.approx(46.0)
    assert held["leaf0 up"].static_gb_per_s == pytest.approx(48.0)


def test_a_link_is_a_limit_below_a_clear_part_of_what_its_flows_reach_apart() -> None:
    assert carried(tree(48.0), alone=40.0, together=40.0 * (SLOW - 0.01))[0].keys() == ACROSS
    assert carried(tree(48.0), alone=40.0, together=40.0 * (SLOW + 0.01))[1].keys() == ACROSS


def test_where_no_pair_was_measured_alone_the_sites_nics_say_what_would_be_apart() -> None:
    assert carried(tree(48.0), alone=None, together=23.0)[0].keys() == ACROSS
    assert carried(tree(400.0), alone=None, together=46.0)[1].keys() == ACROSS


def test_on_a_large_site_the_best_of_their_ends_stands_for_flows_that_were_not_measured_alone() -> None:
    """NICs that reach 20 GB/s anywhere: 19 each over the shared link is no limit, though the site says 48."""
    site = tree(2000.0, nodes_per_leaf=10)
    errand = errand_of(site)
    assert errand.scope != "every pair"
    alone = {task.flows[0] for tasks in errand.rounds for task in tasks if not task.links}
    shared = [flow for tasks in errand.rounds for task in tasks if task.links for flow in task.flows]
    assert not set(shared) <= alone
    held, not_filled = carried(site, alone=20.0, together=19.0)
    assert (set(held), set(not_filled)) == (NONE, ACROSS)


def test_of_an_unknown_rate_nothing_is_said_but_what_was_seen() -> None:
    held, not_filled = carried(tree(None), alone=45.0, together=23.0)
    assert (set(held), set(not_filled)) == (ACROSS, NONE)
    assert held["leaf0 up"].static_gb_per_s is None


def test_where_neither_flows_nor_ends_nor_nics_are_known_no_limit_is_claimed() -> None:
    site = tree(None)
    box = site.node_types["box"]
    nic = box.nics[0].model_copy(update={"rate": Rate(unknown=True, source="nobody has measured it")})
    site = site.model_copy(update={"node_types": {"box": box.model_copy(update={"nics": (nic,)})}})
    held, not_filled = carried(site, alone=None, together=1.0)
    assert (set(held), set(not_filled)) == (NONE, ACROSS)


@pytest.mark.parametrize("slow_first", [True, False])
def test_of_two_tasks_over_a_link_the_one_that_moved_more_has_the_word(slow_first: bool) -> None:
    site = tree(400.0)
    errand = errand_of(site)
    together = [tasks for tasks in errand.rounds if tasks[0].links]
    twice = errand.model_copy(update={"rounds": (*errand.rounds, *together)})
    mixed = [
        reading(one.round, one.task, one.flow, 10.0)
        if twice.rounds[one.round][one.task].links and (one.round < len(errand.rounds)) == slow_first
        else one
        for one in readings(twice, alone=45.0, together=44.0)
    ]
    held, not_filled = links_carried(twice, mixed, fabric=fabric_of(site))
    assert held == ()
    assert {one.name: one.gb_per_s for one in not_filled} == {name: pytest.approx(88.0) for name in ACROSS}


def test_flows_that_never_ran_at_the_same_time_say_nothing() -> None:
    site = tree(48.0)
    errand = errand_of(site)
    apart = [
        reading(one.round, one.task, one.flow, median(one.rates_gb_per_s), start_s=0.5 + 10 * one.flow.source)
        for one in readings(errand, alone=45.0, together=23.0)
    ]
    assert links_carried(errand, apart, fabric=fabric_of(site)) == ((), ())


def test_a_task_of_which_a_flow_is_missing_says_nothing() -> None:
    site = tree(48.0)
    errand = errand_of(site)
    without = [
        one
        for one in readings(errand, alone=45.0, together=23.0)
        if not (errand.rounds[one.round][one.task].links and one.flow.source == 0)
    ]
    held, not_filled = links_carried(errand, without, fabric=fabric_of(site))
    assert {one.name for one in (*held, *not_filled)} == {"leaf1 up", "leaf0 down"}


def test_the_text_shows_limits_and_what_was_not_filled_beside_the_site() -> None:
    def rows(uplink: float, together: float) -> list[list[str]]:
        site = tree(uplink)
        errand, fabric = errand_of(site), fabric_of(site)
        found = measurement_of(
            errand, readings(errand, alone=45.0, together=together), fabric=fabric, day=date(2026, 5, 31)
        )
        text = measurement_text(found, fabric=fabric)
        return [line.split() for line in text.splitlines() if line.startswith("leaf0 up")]

    assert rows(48.0, 23.0) == [["leaf0", "up", "46", "48", "96", "%", "what", "it", "carries"]]
    assert rows(400.0, 44.0) == [["leaf0", "up", "at", "least", "88", "96", "92", "%", "not", "the", "limit"]]
