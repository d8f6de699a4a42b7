"""`place` against trying every seating, on instances small enough for that."""

from itertools import combinations, product

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, GpuAt, fabric_of
from hpcserve.nouns import Distance, Plan, Role
from hpcserve.placement import place
from hpcserve.placement.cost import handover
from hpcserve.placement.ground import Candidate, Ground
from tests.strategies import Case, allocation_of, cases

Placed = tuple[tuple[str, tuple[int, ...]], ...]
Cost = tuple[int, int, int, int]

slow = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def placed(plan: Plan) -> Placed:
    return tuple((worker.ranks[0].node, worker.ranks[0].gpus) for worker in plan.workers)


def cost_of(case: Case, fabric: Fabric, roles: list[Role], seating: Placed) -> Cost | None:
    """What `search` says is best, computed from the definition."""
    taken = [(node, gpu) for node, gpus in seating for gpu in gpus]
    if len(taken) != len(set(taken)):
        return None
    times: list[int] = []
    for (prefill, prefill_role), (decode, decode_role) in product(zip(seating, roles, strict=True), repeat=2):
        if (prefill_role, decode_role) != (Role.PREFILL, Role.DECODE):
            continue
        if case.service.distance not in (Distance.BEST, fabric.distance(prefill[0], decode[0])):
            return None
        try:
            one = handover(
                fabric,
                case.shape,
                tokens=case.service.workload.input_tokens,
                prefill=tuple(GpuAt(prefill[0], gpu) for gpu in prefill[1]),
                decode=tuple(GpuAt(decode[0], gpu) for gpu in decode[1]),
            )
        except PlacementError:
            return None
        times.append(round(one.transfer_ms * 1e6))
    split = 0
    for node, gpus in seating:
        islands = fabric.node_type(node).nvlink
        split += len(gpus) > 1 and bool(islands) and not any(set(gpus) <= set(island.gpus) for island in islands)
    return split, max(times), sum(times), len({node for node, _ in seating})


def all_seats(fabric: Fabric, ranks: int) -> list[tuple[str, tuple[int, ...]]]:
    """Every seat, its GPUs in the rank order that placement uses."""
    seats = []
    for name in fabric.nodes:
        gpus = tuple(range(fabric.node_type(name).gpu.count))
        ground = Ground(fabric, [Candidate(name=name, gpus=gpus, cores=(0,))], workers=1)
        for chosen in combinations(gpus, ranks):
            [seat] = ground.seats(0, frozenset(gpus) - frozenset(chosen), ranks)
            seats.append((name, seat.gpus))
    return seats


def brute_force(case: Case, fabric: Fabric, roles: list[Role]) -> Cost | None:
    ranks = {pool.role: pool.tensor_parallel for pool in case.service.pools}
    seats = {role: all_seats(fabric, ranks[role]) for role in ranks}
    assume(
        len(seats[Role.PREFILL]) ** roles.count(Role.PREFILL) * len(seats[Role.DECODE]) ** roles.count(Role.DECODE)
        < 30_000
    )
    costs = (cost_of(case, fabric, roles, seating) for seating in product(*(seats[role] for role in roles)))
    return min((cost for cost in costs if cost is not None), default=None)


def in_order(case: Case, fabric: Fabric, roles: list[Role]) -> Placed | None:
    """Nodes filled in the order of the host list, prefill first: what a script without a model of the fabric does."""
    ranks = {pool.role: pool.tensor_parallel for pool in case.service.pools}
    free = {name: list(range(fabric.node_type(name).gpu.count)) for name in fabric.nodes}
    seating = []
    for role in roles:
        node = next((name for name, gpus in free.items() if len(gpus) >= ranks[role]), None)
        if node is None:
            return None
        seating.append((node, tuple(free[node][: ranks[role]])))
        free[node] = free[node][ranks[role] :]
    return tuple(seating)


def plan_of(case: Case, fabric: Fabric) -> Plan | None:
    try:
        return place(fabric=fabric, site=case.site, shape=case.shape, service=case.service)
    except PlacementError:
        return None


def roles_of(case: Case) -> list[Role]:
    return [pool.role for pool in case.service.pools for _ in range(pool.workers)]


@slow
@given(case=cases(joined=False, most_workers=3))
def test_no_seating_is_better_and_none_is_missed(case: Case) -> None:
    fabric = fabric_of(case.site)
    plan = plan_of(case, fabric)
    best = brute_force(case, fabric, roles_of(case))
    found = None if plan is None else cost_of(case, fabric, roles_of(case), placed(plan))
    assert found == best


@slow
@given(case=cases())
def test_never_worse_than_filling_in_order(case: Case) -> None:
    fabric = fabric_of(case.site)
    naive = in_order(case, fabric, roles_of(case))
    assume(naive is not None)
    assert naive is not None
    cost = cost_of(case, fabric, roles_of(case), naive)
    assume(cost is not None)
    plan = plan_of(case, fabric)
    assert plan is not None
    found = cost_of(case, fabric, roles_of(case), placed(plan))
    assert found is not None
    assert cost is not None
    assert found <= cost


@slow
@given(case=cases(joined=False), data=st.data())
def test_names_and_order_of_nodes_do_not_change_the_cost(case: Case, data: st.DataObject) -> None:
    names = list(fabric_of(case.site).nodes)
    renamed = dict(zip(names, data.draw(st.permutations([f"x{number}" for number in range(len(names))])), strict=True))
    site = case.site.model_copy(
        update={
            "nodes": tuple(
                group.model_copy(update={"hosts": renamed[group.hosts]})
                for group in data.draw(st.permutations(case.site.nodes))
            ),
            "partitions": {
                name: one.model_copy(update={"hosts": ",".join(renamed.values())})
                for name, one in case.site.partitions.items()
            },
            "switches": tuple(
                switch
                if switch.hosts is None
                else switch.model_copy(update={"hosts": ",".join(renamed[host] for host in switch.hosts.split(","))})
                for switch in data.draw(st.permutations(case.site.switches))
            ),
        }
    )
    other = Case(site=site, shape=case.shape, service=case.service)
    costs = []
    for one in (case, other):
        fabric = fabric_of(one.site)
        plan = plan_of(one, fabric)
        costs.append(None if plan is None else cost_of(one, fabric, roles_of(one), placed(plan)))
    assert costs[0] == costs[1]


@slow
@given(case=cases(modes=("auto", "disaggregated", "aggregated")))
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
@given(case=cases(modes=("disaggregated", "aggregated")))
def test_without_the_promise_the_same_nodes_give_the_same_plan(case: Case) -> None:
    """The answer is unique: it does not lean on the plan that was asked for."""
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
    )
    assert placed(granted) == placed(asked)
