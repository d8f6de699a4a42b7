"""The two stages against every pair, the split against the whole, and what a user may prefer."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.nouns import Endpoint, Role
from hpcserve.routing import Demand, Estimate, Load, Preferences, Refusal, Route, Typical, choose, pair_of, table_of
from hpcserve.routing.draw import draw, taken, window
from hpcserve.routing.estimate import DELAY_SHARE, split_estimate, whole_estimate
from hpcserve.routing.search import Search
from hpcserve.routing.table import MOST_LOOKED_AT
from tests.routing.test_choose import endpoint

PREFILLS = [endpoint(Role.PREFILL, number) for number in range(4)]
DECODES = [endpoint(Role.DECODE, number) for number in range(4)]
TYPICAL = Typical(prefill_ms=200.0, decode_step_ms=20.0, prompt_tokens=1000.0, answer_tokens=100.0)
IDLE = Load()


def service(
    prefills: int, decodes: int, path_ms: Mapping[tuple[int, int], float] | None = None
) -> tuple[list[Endpoint], list[Endpoint], Any]:
    """Workers and a table in which every pair is proved; paths of 50 ms where nothing else is said."""
    ps, ds = PREFILLS[:prefills], DECODES[:decodes]
    costs = {(p.id, d.id): (path_ms or {}).get((i, j), 50.0) for i, p in enumerate(ps) for j, d in enumerate(ds)}
    return ps, ds, table_of([*ps, *ds], transfer_ms=costs, proved={pair_of(p, d) for p in ps for d in ds})


def chosen(*args: Any, **words: Any) -> Route:
    route = choose(*args, model=None, **words)
    assert isinstance(route, Route)
    return route


def load_of(*, serving: int, prefills: int, **counts: Any) -> Load:
    return Load(in_flight=serving + prefills, prefills=prefills, **counts)


loads_of = st.builds(
    load_of,
    serving=st.integers(0, 9),
    prefills=st.integers(0, 5),
    transfers=st.integers(0, 3),
    coming=st.integers(0, 3),
    prefill_tokens=st.one_of(st.none(), st.floats(0, 9000)),
    kv_tokens=st.floats(0, 9000),
    kv_room_tokens=st.one_of(st.none(), st.integers(100, 9000)),
)


@st.composite
def cases(draw_: st.DrawFn) -> dict[str, Any]:
    prefills, decodes = draw_(st.integers(1, 4)), draw_(st.integers(1, 4))
    paths = {(i, j): draw_(st.floats(1, 1000)) for i in range(prefills) for j in range(decodes)}
    ps, ds, table = service(prefills, decodes, paths)
    ids = [each.id for each in (*ps, *ds)]
    return {
        "ps": ps,
        "ds": ds,
        "table": table,
        "loads": {name: draw_(loads_of) for name in ids},
        "demand": Demand(
            prompt_tokens=draw_(st.floats(1, 5000)),
            answer_tokens=draw_(st.floats(0, 500)),
            overlap={name: draw_(st.integers(0, 4000)) for name in ids if draw_(st.booleans())},
        ),
        "preferences": Preferences(overlap_weight=draw_(st.floats(0, 3))),
        "turn": draw_(st.integers(0, 99)),
        "avoid": {name for name in ids if draw_(st.integers(0, 4)) == 0},
    }


def estimates(case: dict[str, Any]) -> dict[tuple[str, str], Estimate]:
    """Every pair that may be taken, by the formulas alone."""
    found = {}
    for row in case["table"].rows:
        for decode, path_ms in row.decodes:
            if {row.prefill.id, decode.id} & case["avoid"]:
                continue
            found[row.prefill.id, decode.id] = split_estimate(
                case["demand"],
                TYPICAL,
                prefill=(row.prefill.id, case["loads"].get(row.prefill.id, IDLE)),
                decode=(decode.id, case["loads"].get(decode.id, IDLE)),
                path_ms=path_ms,
                overlap_weight=case["preferences"].overlap_weight,
            )
    return found


def choice(case: dict[str, Any]) -> Route | Refusal:
    words = {key: case[key] for key in ("demand", "preferences", "turn", "avoid")}
    return choose(case["table"], case["loads"], TYPICAL, model=None, **words)


def up_to_prefill_ms(case: dict[str, Any], prefill: str, estimate: Estimate) -> float:
    """What a pair costs at its prefill worker: those who decode there are held up as well."""
    held_up: float = DELAY_SHARE * case["loads"].get(prefill, IDLE).decoding
    return estimate.queue_ms + estimate.prefill_ms * (1 + held_up)


def first_stage_gap(case: dict[str, Any], every: dict[tuple[str, str], Estimate]) -> float:
    """What the first stage's prefill worker costs with its best partner beyond its bound: all that may be lost."""
    demand, weight = case["demand"], case["preferences"].overlap_weight
    held = max(demand.overlap.values(), default=0)
    moved = max(demand.prompt_tokens - weight * held, min(demand.prompt_tokens, 1.0)) / TYPICAL.prompt_tokens
    bounds: dict[str, float] = {}  # what it costs up to the end of the prefill, and its nearest path, idle
    bests: dict[str, float] = {}
    for row in case["table"].rows:
        mine = [each for (prefill, _), each in every.items() if prefill == row.prefill.id]
        if mine:
            bounds[row.prefill.id] = up_to_prefill_ms(case, row.prefill.id, mine[0]) + row.nearest_ms * moved
            bests[row.prefill.id] = min(each.cost_ms for each in mine)
    first = min(bounds.values())
    return max(bests[name] - bound for name, bound in bounds.items() if bound <= first * (1 + 1e-12))


@given(cases())
def test_a_pair_costs_no_more_than_the_best_and_the_stated_gap(case: dict[str, Any]) -> None:
    every, route = estimates(case), choice(case)
    if not every:
        assert not isinstance(route, Route) or route.prefill is None
        return
    assert isinstance(route, Route)
    assert route.prefill is not None
    mine = every[route.prefill.id, route.decode.id]
    assert route.estimate == mine
    best = min(each.cost_ms for each in every.values())
    assert mine.cost_ms <= best + first_stage_gap(case, every) + 1e-6
    row = case["table"].row_of[route.prefill.id]
    partners = [every[row.prefill.id, d.id].cost_ms for d, _ in row.decodes if (row.prefill.id, d.id) in every]
    assert mine.cost_ms == pytest.approx(min(partners))


@given(cases())
def test_an_idle_service_gets_the_best_of_all_pairs(case: dict[str, Any]) -> None:
    case |= {"loads": {}, "avoid": set()}
    case["demand"] = Demand(prompt_tokens=case["demand"].prompt_tokens)
    every = estimates(case)
    route = choice(case)
    assert isinstance(route, Route)
    assert route.estimate.cost_ms == pytest.approx(min(each.cost_ms for each in every.values()))


@given(cases(), st.randoms(use_true_random=False))
def test_order_and_names_do_not_matter(case: dict[str, Any], random: Any) -> None:
    """The same workers in another order, under other names: a choice of the same cost."""
    route = choice(case)
    costs = {(row.prefill.id, decode.id): path_ms for row in case["table"].rows for decode, path_ms in row.decodes}
    everybody = [*case["ps"], *case["ds"]]
    names = [each.id for each in everybody]
    new = dict(zip(names, random.sample([f"w{place}" for place in range(len(names))], len(names)), strict=True))
    renamed = [each.model_copy(update={"id": new[each.id]}) for each in everybody]
    random.shuffle(renamed)
    pairs = [(p, d) for p in renamed for d in renamed if (p.role, d.role) == (Role.PREFILL, Role.DECODE)]
    other = case | {
        "table": table_of(
            renamed,
            transfer_ms={(new[p], new[d]): ms for (p, d), ms in costs.items()},
            proved={pair_of(p, d) for p, d in pairs},
        ),
        "loads": {new[name]: load for name, load in case["loads"].items()},
        "avoid": {new[name] for name in case["avoid"]},
        "turn": 0,
        "demand": Demand(
            prompt_tokens=case["demand"].prompt_tokens,
            answer_tokens=case["demand"].answer_tokens,
            overlap={new[name]: held for name, held in case["demand"].overlap.items()},
        ),
    }
    again = choice(other)
    assert isinstance(again, Route) == isinstance(route, Route)
    if isinstance(route, Route) and isinstance(again, Route):
        assert (again.prefill is None) == (route.prefill is None)
        bounds = sorted(round(each.cost_ms, 6) for each in estimates(case).values())
        if len(set(bounds)) == len(bounds):  # without ties the two stages see the same
            assert again.estimate.cost_ms == pytest.approx(route.estimate.cost_ms)


@given(cases(), st.floats(0, 5000))
def test_every_refusal_says_what_and_when(case: dict[str, Any], limit_ms: float) -> None:
    case["preferences"] = Preferences(ttft_limit_ms=limit_ms)
    found = choice(case)
    if isinstance(found, Route):
        assert found.estimate.ttft_ms <= limit_ms
        assert found.decode.id not in case["avoid"]
        return
    assert (found.status, found.code) in {(503, "no_worker"), (429, "overloaded")}
    assert found.retry_after_s is not None
    assert 1 <= found.retry_after_s <= 60
    assert found.message


@pytest.mark.parametrize(
    ("tokens", "held", "queued", "path_ms", "reason"),
    [
        (1000, 0, 0, 50, ""),  # 270 ms split; 200 ms and a tenth of it for each of five whole
        (1000, 950, 0, 50, "prefix_at_decode"),
        (1000, 0, 3000, 50, "prefill_queue"),
        (1000, 0, 0, 500, "slow_path"),
        (20, 0, 0, 50, "short_prompt"),
    ],
)
def test_a_prompt_is_not_split_where_that_costs_more(
    tokens: int, held: int, queued: float, path_ms: float, reason: str
) -> None:
    (prefill,), (decode,), table = service(1, 1, {(0, 0): path_ms})
    typical = Typical(prefill_ms=200.0, decode_step_ms=20.0, prompt_tokens=1000.0, answer_tokens=100.0, handoff_ms=20.0)
    loads = {prefill.id: Load(in_flight=1, prefills=1, prefill_tokens=queued), decode.id: Load(in_flight=5)}
    demand = Demand(prompt_tokens=tokens, overlap={decode.id: held} if held else {})
    route = chosen(table, loads, typical, demand=demand, preferences=Preferences(split_when_cheaper=True))
    assert (route.prefill is None, route.reason) == (bool(reason), reason)
    split = chosen(table, loads, typical, demand=demand)
    assert split.prefill == prefill, "nobody asked for it"
    assert route.estimate.cost_ms <= split.estimate.cost_ms


@given(cases())
def test_the_conditional_split_never_costs_more(case: dict[str, Any]) -> None:
    always = choice(case)
    case["preferences"] = Preferences(overlap_weight=case["preferences"].overlap_weight, split_when_cheaper=True)
    route = choice(case)
    if isinstance(always, Refusal) or isinstance(route, Refusal):
        assert always == route
        return
    assert route.estimate.cost_ms <= always.estimate.cost_ms + 1e-6
    if route.prefill is None:
        assert route.reason
        again = whole_estimate(
            case["demand"],
            TYPICAL,
            worker=(route.decode.id, case["loads"][route.decode.id]),
            overlap_weight=case["preferences"].overlap_weight,
        )
        assert route.estimate == again


@pytest.mark.parametrize(
    ("at_prefill", "at_decode", "path_ms", "expected"),
    [
        (Load(), Load(in_flight=9), 50, ("prefill-0", "decode_load")),
        (Load(), Load(kv_tokens=9_000, kv_room_tokens=9_000), 50, ("prefill-0", "decode_load")),
        (Load(), Load(in_flight=1), 500, ("prefill-0", "slow_path")),
        (Load(in_flight=1, prefills=1, prefill_tokens=3000), Load(in_flight=2), 30, ("decode-0", "prefill_queue")),
        (Load(kv_tokens=9_000, kv_room_tokens=9_000), Load(in_flight=9), 50, None),  # no room for a stream there
    ],
)
def test_a_pool_borrows_from_the_other_where_that_costs_less(
    at_prefill: Load, at_decode: Load, path_ms: float, expected: tuple[str, str] | None
) -> None:
    (prefill,), (decode,), table = service(1, 1, {(0, 0): path_ms})
    loads = {prefill.id: at_prefill, decode.id: at_decode}
    demand = Demand(prompt_tokens=1000.0, answer_tokens=100.0)
    split = chosen(table, loads, TYPICAL, demand=demand)
    route = chosen(table, loads, TYPICAL, demand=demand, preferences=Preferences(borrow_when_cheaper=True))
    assert split.prefill == prefill, "nobody asked for it"
    if expected is None:
        assert route == split
    else:
        assert (route.prefill, route.decode.id, route.reason) == (None, *expected)
        assert route.estimate.cost_ms < split.estimate.cost_ms


@given(cases())
def test_borrowing_never_costs_more_than_not_borrowing(case: dict[str, Any]) -> None:
    """Neither more than pairs alone, nor more than what decode workers may do by themselves."""
    weight = case["preferences"].overlap_weight
    own = [choice(case | {"preferences": Preferences(overlap_weight=weight, split_when_cheaper=split)})
           for split in (False, True)]  # fmt: skip
    case["preferences"] = Preferences(overlap_weight=weight, borrow_when_cheaper=True)
    route = choice(case)
    for other in own:
        assert isinstance(route, Route) == isinstance(other, Route)
        if isinstance(route, Route) and isinstance(other, Route):
            assert route.estimate.cost_ms <= other.estimate.cost_ms + 1e-6
    if isinstance(route, Route) and route.prefill is None:
        assert route.reason
        assert route.decode.id not in case["avoid"]
        again = whole_estimate(
            case["demand"], TYPICAL, worker=(route.decode.id, case["loads"][route.decode.id]), overlap_weight=weight
        )
        assert route.estimate == again


def test_what_cannot_be_split_goes_to_an_idle_prefill_worker_only_where_pools_borrow() -> None:
    (prefill,), (decode,), table = service(1, 1)
    loads = {decode.id: Load(in_flight=50)}
    assert chosen(table, loads, TYPICAL, whole="n").decode == decode
    route = chosen(table, loads, TYPICAL, whole="n", preferences=Preferences(borrow_when_cheaper=True))
    assert (route.prefill, route.decode, route.reason) == (None, prefill, "n")


def test_prefill_legs_make_no_tokens_where_they_are() -> None:
    """A worker with prompts to hand over is a better place for a stream than one with as many streams."""
    (prefill,), (decode,), table = service(1, 1)
    loads = {prefill.id: Load(in_flight=5, prefills=5, prefill_tokens=10.0), decode.id: Load(in_flight=5)}
    route = chosen(table, loads, TYPICAL, preferences=Preferences(borrow_when_cheaper=True))
    assert route.decode == prefill


@given(cases())
def test_the_loops_of_the_search_reckon_what_the_formulas_say(case: dict[str, Any]) -> None:
    """They are written out there for speed: this holds the two equal, figure by figure."""
    words = {key: case[key] for key in ("demand", "preferences", "turn", "avoid")}
    table, every = case["table"], estimates(case)
    search = Search(table, case["loads"], TYPICAL, model=None, **words)
    rows = search._rows()
    for row, first_ms in zip(rows, search._bounds(rows)[0], strict=True):
        cost_ms, (decode, _) = search._decode(row)
        mine = every[row.prefill.id, decode.id]
        assert first_ms == pytest.approx(up_to_prefill_ms(case, row.prefill.id, mine))
        assert cost_ms == pytest.approx(mine.cost_ms - first_ms, abs=1e-6)
    for start, end in ((0, table.first_choice), (table.first_choice, len(table.whole))):
        found = search._cheapest_whole(start, end)
        costs = [
            whole_estimate(
                case["demand"],
                TYPICAL,
                worker=(each.id, case["loads"][each.id]),
                overlap_weight=case["preferences"].overlap_weight,
            ).cost_ms
            for each in table.whole[start:end]
            if each.id not in case["avoid"]
        ]
        assert (found is None) == (not costs)
        if found is not None:
            assert found[0] == pytest.approx(min(costs))


def test_a_prompt_goes_where_its_beginning_is_until_the_queue_costs_more() -> None:
    (here, there), _, table = service(2, 1)
    demand = Demand(prompt_tokens=1000, overlap={there.id: 800})
    for queued, expected in ((0.0, there), (700.0, there), (900.0, here)):
        loads = {there.id: Load(prefill_tokens=queued)}
        assert chosen(table, loads, TYPICAL, demand=demand).prefill == expected
    ignored = Preferences(overlap_weight=0.0)
    loads = {there.id: Load(prefill_tokens=1.0)}
    assert chosen(table, loads, TYPICAL, demand=demand, preferences=ignored).prefill == here


def test_kv_room_counts_before_there_is_none() -> None:
    _, (full, free), table = service(1, 2)
    loads = {
        full.id: Load(in_flight=3, kv_tokens=9_500, kv_room_tokens=10_000),
        free.id: Load(in_flight=9, kv_tokens=2_000, kv_room_tokens=10_000),
    }
    demand = Demand(prompt_tokens=1000.0, answer_tokens=100.0)
    assert chosen(table, loads, TYPICAL, demand=demand).decode == free
    refused = choose(
        table, {full.id: loads[full.id], free.id: loads[full.id]}, TYPICAL, model=None, demand=demand,
        preferences=Preferences(ttft_limit_ms=300.0),
    )  # fmt: skip
    assert isinstance(refused, Refusal)
    assert (refused.status, refused.code, refused.retry_after_s) == (429, "overloaded", 1)
    # over by 600 of 9500 tokens, which come back within 100 steps of 20 ms: 126 ms beside 200 + 50 ms
    assert choose(
        table, loads | {free.id: loads[full.id]}, TYPICAL, model=None, demand=demand,
        preferences=Preferences(ttft_limit_ms=377.0),
    ) != refused  # fmt: skip


@pytest.mark.parametrize(
    ("load", "limit_ms", "why"),
    [
        (Load(), 200.0, "Prefill and transfer of this prompt take too long"),
        (Load(prefill_tokens=9000.0), 300.0, "Too many requests wait for a prefill worker"),
        (Load(kv_tokens=99_000.0, kv_room_tokens=100), 300.0, "Too many requests wait for KV room"),
    ],
)
def test_a_refusal_says_what_it_is_for(load: Load, limit_ms: float, why: str) -> None:
    """A prompt that is too long for the limit is told so, where nobody waits: it will not be served later either."""
    (prefill,), (decode,), table = service(1, 1)
    demand = Demand(prompt_tokens=1000.0, answer_tokens=100.0)
    loads = {prefill.id: load, decode.id: load}
    refused = choose(table, loads, TYPICAL, model=None, demand=demand, preferences=Preferences(ttft_limit_ms=limit_ms))
    assert isinstance(refused, Refusal)
    assert refused.message.startswith(why + ":")


def test_promised_pulls_are_seen_before_they_begin() -> None:
    _, (busy, other), table = service(1, 2)
    assert chosen(table, {busy.id: Load(coming=1)}, TYPICAL).decode == other


def test_a_temperature_spreads_by_cost() -> None:
    ps, _, table = service(3, 1, {(0, 0): 10.0, (1, 0): 31.0, (2, 0): 1000.0})
    least = 200.0 + 10.0
    counts: Counter[str] = Counter()
    for turn in range(3000):
        route = chosen(table, {}, TYPICAL, turn=turn, preferences=Preferences(temperature=0.1))
        assert route.prefill is not None
        counts[route.prefill.id] += 1
    # 21 ms are a tenth of 210 ms: e times as seldom; 990 ms are 47 tenths
    assert counts[ps[0].id] / counts[ps[1].id] == pytest.approx(2.718, rel=0.05)
    assert counts[ps[2].id] == 0
    assert least == 210.0


@given(
    st.lists(st.floats(0, 1e6) | st.just(float("inf")), min_size=1, max_size=9), st.floats(0, 1), st.floats(0.001, 9)
)
def test_a_draw_is_a_place_and_never_one_without_a_path(costs: list[float], chance: float, temperature: float) -> None:
    place = draw(costs, temperature=temperature, chance=chance)
    assert costs[place] < float("inf") or min(costs) == float("inf")
    assert costs[taken(costs, int(temperature * 1000))] == min(costs)


@given(st.integers(0, 300), st.integers(0, 10_000), st.integers(0, 8))
def test_a_window_holds_each_once_and_reaches_everybody(count: int, turn: int, kept: int) -> None:
    items = list(range(count))
    part = list(window(items, turn, kept=kept))
    assert len(part) == len(set(part)) == min(count, MOST_LOOKED_AT)
    assert set(part) <= set(items)
    if count > MOST_LOOKED_AT:
        assert part[:kept] == items[:kept]
        seen = {each for step in range(count) for each in window(items, turn + step, kept=kept)}
        assert seen == set(items)


def test_among_very_many_the_holder_of_a_prefix_and_the_near_ones_are_found() -> None:
    ps = [endpoint(Role.PREFILL, number) for number in range(200)]
    ds = [endpoint(Role.DECODE, number) for number in range(200)]
    near = {(p.id, ds[number].id): 5.0 for number, p in enumerate(ps)}
    costs = {(p.id, d.id): near.get((p.id, d.id), 80.0) for p in ps for d in ds}
    table = table_of([*ps, *ds], transfer_ms=costs, proved={pair_of(p, d) for p in ps for d in ds})
    demand = Demand(prompt_tokens=1000, overlap={ps[150].id: 900})
    for turn in range(0, 50, 7):
        route = chosen(table, {}, TYPICAL, demand=demand, turn=turn)
        assert (route.prefill, route.decode) == (ps[150], ds[150])
    loads: dict[str, Load] = {}
    for turn in range(800):
        route = chosen(table, loads, TYPICAL, turn=turn)
        assert route.prefill is not None
        loads.setdefault(route.prefill.id, Load()).in_flight += 1
    assert max(load.in_flight for load in loads.values()) <= 5, "a part that moves on spreads as all together would"


def test_among_very_many_that_serve_whole_the_holder_of_a_prefix_is_found() -> None:
    workers = [endpoint(Role.AGGREGATED, number) for number in range(200)]
    table = table_of(workers, transfer_ms={}, proved=set())
    loads = {worker.id: Load(in_flight=1) for worker in workers}
    demand = Demand(prompt_tokens=1000, overlap={worker.id: 100 + number for number, worker in enumerate(workers)})
    for turn in range(0, 50, 7):
        assert chosen(table, loads, TYPICAL, demand=demand, turn=turn).decode == workers[-1]
        second = chosen(table, loads, TYPICAL, demand=demand, turn=turn, avoid={workers[-1].id})
        assert second.decode == workers[-2]


def test_the_second_prefill_worker_that_is_tried_is_another_one() -> None:
    """The first holds the prefix, and is one of those whose turn it is anyway; its paths turn out to be slow."""
    ps = [endpoint(Role.PREFILL, number) for number in range(MOST_LOOKED_AT + 1)]
    near, far = DECODES[:2]
    costs = {(p.id, near.id): 10.0 for p in ps} | {(p.id, far.id): 10.0 for p in ps} | {(ps[0].id, far.id): 900.0}
    table = table_of(
        [*ps, near, far], transfer_ms=costs, proved={pair_of(p, decode) for p in ps for decode in (near, far)}
    )
    demand = Demand(prompt_tokens=1000, overlap={ps[0].id: 900})
    route = chosen(table, {near.id: Load(in_flight=200)}, TYPICAL, demand=demand, turn=0)
    assert route.prefill != ps[0]
    assert route.decode == far


@given(st.floats(0.01, 9), st.floats(1, 20), st.integers(10, 4000))
def test_means_follow_tokens(ms_per_token: float, bytes_per_token: float, tokens: int) -> None:
    typical = Typical(prefill_ms=100.0, decode_step_ms=20.0, prompt_tokens=1000.0)
    for place in range(300):
        now = tokens + place % 7
        typical.saw_prefill(ms_per_token * now, tokens=now)
        typical.saw_prompt(body_bytes=round(bytes_per_token * now), tokens=now)
    assert typical.prefill_ms_per_token == pytest.approx(ms_per_token, rel=0.01)
    assert typical.bytes_per_token == pytest.approx(bytes_per_token, rel=0.1)
    assert typical.tokens_of(1_000_000, longest=2048) == 2048.0
    assert typical.tokens_of(0) == 1.0


def gap_after(*gaps_ms: float) -> Typical:
    typical, at_ms = Typical(prefill_ms=100.0, decode_step_ms=20.0, prompt_tokens=1000.0), 5000.0
    typical.saw_request(at_ms=at_ms, tokens=1000.0)
    for gap_ms in gaps_ms:
        at_ms += gap_ms
        typical.saw_request(at_ms=at_ms, tokens=1000.0)
    return typical


HOUR_MS = 3_600_000.0


@pytest.mark.parametrize("before", [[], [150.0] * 200])
def test_a_quiet_hour_is_soon_forgotten(before: list[float]) -> None:
    """The first gap may be one: somebody tries the service, and the load comes later."""
    typical = gap_after(*before, HOUR_MS, *[150.0] * 80)
    assert typical.gap_ms == pytest.approx(150.0, rel=0.3)
    assert typical.prefill_share(1) == pytest.approx(100 / 150, rel=0.3)


@pytest.mark.parametrize("gap_ms", [0.0, 0.1, 2.0, 150.0, 60_000.0, HOUR_MS])
def test_gaps_are_followed_wherever_they_go(gap_ms: float) -> None:
    for before in ([], [0.0] * 100, [HOUR_MS] * 100):
        typical = gap_after(*before, *[gap_ms] * 400)
        assert typical.gap_ms == pytest.approx(gap_ms, rel=0.01, abs=0.01)
        assert 0.0 <= typical.prefill_share(2) <= 1.0


def test_bursts_are_as_busy_as_they_are() -> None:
    """Fifty at once, and again: a pause that is as long as the burst takes to compute is no idle time."""
    typical = gap_after(*([10_000.0] + [0.0] * 49) * 20, 10_000.0)
    assert typical.gap_ms > 50.0
    assert typical.prefill_share(2) < 1.0


def test_the_least_handoff_is_kept_and_slowly_forgotten() -> None:
    typical = Typical(prefill_ms=100.0, decode_step_ms=20.0)
    for ms in (80.0, 30.0, 90.0):
        typical.saw_handoff(ms)
    assert 30.0 <= typical.handoff_ms < 31.0
    for _ in range(2000):
        typical.saw_handoff(50.0)
    assert typical.handoff_ms == pytest.approx(50.0, rel=0.01)


def test_what_stands_still_is_told_from_a_queue_that_grows() -> None:
    load = Load()
    assert load.stalls_after_s(1.0) == float("inf")
    load.saw_first_token(0.05)
    assert load.stalls_after_s(0.0) == 6.0
    assert load.stalls_after_s(2.0) == 40.0
    wait_s = 0.05
    for _ in range(200):
        wait_s += 0.05
        assert wait_s < load.stalls_after_s(0.0)
        load.saw_first_token(wait_s)
