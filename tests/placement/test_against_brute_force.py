"""`place` against trying every seating, on instances small enough for that."""

from importlib import import_module

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, fabric_of
from hpcserve.nouns import Plan
from hpcserve.placement import place
from hpcserve.placement.search import Search
from tests.placement.brute import Brute, in_order, placed
from tests.placement.fabrics import cases_of_all_kinds, measurements, renamed
from tests.strategies import Case, allocation_of

_MOST_SEATINGS = 8_000

slow = settings(
    max_examples=90, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def plan_of(case: Case, fabric: Fabric) -> Plan | None:
    try:
        return place(fabric=fabric, site=case.site, shape=case.shape, service=case.service)
    except PlacementError:
        return None


@slow
@given(case=cases_of_all_kinds(most_workers=3))
def test_no_seating_is_better_and_none_is_missed(case: Case) -> None:
    fabric = fabric_of(case.site)
    brute = Brute(case, fabric)
    assume(brute.count() <= _MOST_SEATINGS)
    plan = plan_of(case, fabric)
    found = None if plan is None else brute.cost(placed(plan))
    assert found == brute.best()
    if plan is not None:
        assert plan.assignment is not None
        assert plan.assignment.best


@slow
@given(case=cases_of_all_kinds(most_workers=3), data=st.data())
def test_nodes_that_a_measurement_tells_apart_are_not_taken_as_alike(case: Case, data: st.DataObject) -> None:
    fabric = fabric_of(case.site, measured=data.draw(measurements(case.site)))
    brute = Brute(case, fabric)
    assume(brute.count() <= _MOST_SEATINGS)
    plan = plan_of(case, fabric)
    assert (None if plan is None else brute.cost(placed(plan))) == brute.best()


@slow
@given(case=cases_of_all_kinds(), data=st.data(), roughly=st.booleans())
def test_where_the_search_gives_up_its_bounds_are_bounds(case: Case, data: st.DataObject, roughly: bool) -> None:
    fabric = fabric_of(case.site, measured=data.draw(measurements(case.site)))
    brute = Brute(case, fabric)
    assume(brute.count() <= _MOST_SEATINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search.__init__, "__kwdefaults__", {"limit": 0})
        if roughly:
            patch.setattr(import_module("hpcserve.placement.place"), "_MOST_UNLIKE", 0)
        plan = plan_of(case, fabric)
    assume(plan is not None)
    assert plan is not None
    found, best, said = brute.cost(placed(plan)), brute.best(), plan.assignment
    assert said is not None
    assert best is not None
    assert found is not None
    assert not said.best
    assert found[1:3] == (round((said.slowest_ms or 0) * 1e6), round((said.traffic_ms or 0) * 1e6))
    assert round((said.slowest_at_least_ms or 0) * 1e6) <= best[1]
    assert round((said.traffic_at_least_ms or 0) * 1e6) <= best[2]
    assert said.nodes == found[5]
    assert said.nodes_at_least <= brute.fewest_nodes()
    naive = in_order(case, fabric)
    cost = brute.cost(naive) if naive is not None else None
    assert cost is None or found <= cost


@slow
@given(case=cases_of_all_kinds())
def test_never_worse_than_filling_in_order(case: Case) -> None:
    fabric = fabric_of(case.site)
    brute = Brute(case, fabric)
    naive = in_order(case, fabric)
    cost = brute.cost(naive) if naive is not None else None
    assume(cost is not None)
    assert cost is not None
    plan = plan_of(case, fabric)
    assert plan is not None
    found = brute.cost(placed(plan))
    assert found is not None
    assert found <= cost


@slow
@given(case=cases_of_all_kinds(), data=st.data())
def test_names_and_order_of_nodes_do_not_change_the_cost(case: Case, data: st.DataObject) -> None:
    names = list(fabric_of(case.site).nodes)
    other_names = data.draw(st.permutations([f"x{number}" for number in range(len(names))]))
    other = Case(
        site=renamed(case.site, dict(zip(names, other_names, strict=True)), data.draw),
        shape=case.shape,
        service=case.service,
    )
    costs = []
    for one in (case, other):
        fabric = fabric_of(one.site)
        plan = plan_of(one, fabric)
        costs.append(None if plan is None else Brute(one, fabric).cost(placed(plan)))
    assert costs[0] == costs[1]


@slow
@given(case=cases_of_all_kinds(modes=("auto", "disaggregated", "aggregated")))
def test_the_nodes_asked_for_give_the_plan_that_was_promised(case: Case) -> None:
    fabric = fabric_of(case.site)
    asked = plan_of(case, fabric)
    assume(asked is not None)
    assert asked is not None
    granted = place(
        fabric=fabric,
        site=case.site,
        shape=case.shape,
        service=case.service,
        allocation=allocation_of(case.site, asked),
        asked=asked,
    )
    assert granted.granted
    assert all(worker.port is not None for worker in granted.workers)
    unported = tuple(worker.model_copy(update={"port": None, "side_channel_port": None}) for worker in granted.workers)
    router = granted.router.model_copy(update={"port": None})
    assert granted.model_copy(update={"granted": False, "workers": unported, "router": router}) == asked


@slow
@given(case=cases_of_all_kinds(modes=("disaggregated", "aggregated")))
def test_without_the_promise_the_same_nodes_give_the_same_plan(case: Case) -> None:
    """The answer is unique: it does not lean on the plan that was asked for."""
    fabric = fabric_of(case.site)
    asked = plan_of(case, fabric)
    assume(asked is not None)
    assert asked is not None
    assert asked.assignment is not None
    assume(asked.assignment.best)
    granted = place(
        fabric=fabric,
        site=case.site,
        shape=case.shape,
        service=case.service,
        allocation=allocation_of(case.site, asked),
    )
    assert placed(granted) == placed(asked)
