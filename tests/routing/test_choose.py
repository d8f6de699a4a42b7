from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.nouns import Endpoint, Handoff, Role
from hpcserve.routing import Load, Refusal, Route, Typical, choose, mismatch, pair_of, table_of
from tests import synthetic

TYPICAL = Typical(prefill_ms=100.0, decode_step_ms=20.0)


def endpoint(role: Role, number: int = 0, **changes: Any) -> Endpoint:
    facts = {key: value for key, value in changes.items() if key in Handoff.model_fields}
    handoff = synthetic.handoff(**{"block_size": 16, "tensor_parallel": 4, **facts})
    return Endpoint(
        id=f"{role}-{number}",
        generation="g",
        role=role,
        url="http://10.0.0.1:8000",
        node="node01",
        pid=1,
        model="tiny",
        engine="vllm",
        engine_version="0.32.0",
        handoff=None if role == Role.AGGREGATED else handoff,
    ).model_copy(update={key: value for key, value in changes.items() if key in Endpoint.model_fields})


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({}, ""),
        ({"block_size": 128}, "block_size"),
        ({"kv_dtype": "fp8"}, "kv_dtype"),
        ({"model": "m-v2"}, "model"),
        ({"engine_version": "0.31.0"}, "engine version"),
        ({"connector": "LMCacheConnector"}, "connector"),
        ({"connector_version": "2"}, "connector version"),
        ({"tensor_parallel": 8}, ""),
        ({"tensor_parallel": 1}, ""),
        ({"tensor_parallel": 6}, "tensor_parallel"),
        ({"handoff": None}, "no KV connector"),
    ],
)
def test_engines_that_differ_are_never_paired(change: dict[str, Any], word: str) -> None:
    prefill, decode = endpoint(Role.PREFILL), endpoint(Role.DECODE, **change)
    reason = mismatch(prefill, decode)
    assert word in reason
    assert bool(reason) == bool(word)
    table = table_of((prefill, decode), transfer_ms={}, proved={pair_of(prefill, decode)})
    assert len(table.rows) == (not word)
    assert len(table.mismatches) == bool(word)


def seats(route: Route | Refusal) -> tuple[Endpoint | None, Endpoint, str]:
    assert isinstance(route, Route)
    return route.prefill, route.decode, route.reason


def some(prefills: int, decodes: int, aggregated: int = 0) -> tuple[list[Endpoint], list[Endpoint], list[Endpoint]]:
    return (
        [endpoint(Role.PREFILL, number) for number in range(prefills)],
        [endpoint(Role.DECODE, number) for number in range(decodes)],
        [endpoint(Role.AGGREGATED, number) for number in range(aggregated)],
    )


def test_the_nearer_pair_until_its_queue_costs_more() -> None:
    (prefill,), (near, far), _ = some(1, 2)
    table = table_of(
        (prefill, near, far),
        transfer_ms={(prefill.id, near.id): 50.0, (prefill.id, far.id): 250.0},
        proved={pair_of(prefill, near), pair_of(prefill, far)},
    )
    loads = {near.id: Load()}
    picked = []
    for _ in range(8):
        route = choose(table, loads, TYPICAL, model="tiny")
        assert isinstance(route, Route)
        picked.append(route.decode.id)
        load = loads.setdefault(route.decode.id, Load())
        load.in_flight += 1
        load.transfers += 1
    # near: 50, then 20 + 100, 40 + 150, 60 + 200; far: 250
    assert picked[:4] == [near.id, near.id, near.id, far.id]


def test_requests_that_cannot_be_split_go_to_decode_workers_first() -> None:
    (prefill,), (decode,), _ = some(1, 1)
    table = table_of((prefill, decode), transfer_ms={}, proved={pair_of(prefill, decode)})
    route = choose(table, {decode.id: Load(in_flight=50)}, TYPICAL, model=None, whole="n")
    assert seats(route) == (None, decode, "n")
    route = choose(table, {}, TYPICAL, model=None, whole="n", avoid={decode.id})
    assert seats(route) == (None, prefill, "n")


def test_while_no_pair_is_proved_prefill_workers_share_the_work() -> None:
    prefills, decodes, _ = some(2, 2)
    workers = [*prefills, *decodes]
    table = table_of(workers, transfer_ms={}, proved=set())
    loads: dict[str, Load] = {}
    served = []
    for turn in range(8):
        route = choose(table, loads, TYPICAL, model=None, turn=turn)
        assert isinstance(route, Route)
        assert (route.prefill, route.reason) == (None, "no_pair")
        served.append(route.decode.id)
        loads.setdefault(route.decode.id, Load()).in_flight += 1
    assert served[0].startswith("decode")
    assert sorted(served) == sorted([each.id for each in workers] * 2)


def test_unproved_pairs_and_draining_or_skipped_workers_are_left_out() -> None:
    (prefill,), (decode,), _ = some(1, 1)
    proved = {pair_of(prefill, decode)}
    unproved = table_of((prefill, decode), transfer_ms={}, proved=set())
    assert seats(choose(unproved, {}, TYPICAL, model="tiny")) == (None, decode, "no_pair")
    assert unproved.untried == ((prefill, decode),)
    draining = prefill.model_copy(update={"draining": True})
    table = table_of((draining, decode), transfer_ms={}, proved=proved)
    assert seats(choose(table, {}, TYPICAL, model="tiny")) == (None, decode, "no_pair")
    table = table_of((prefill, decode), transfer_ms={}, proved=proved, skipped={decode.id})
    assert seats(choose(table, {}, TYPICAL, model="tiny")) == (None, prefill, "no_pair")
    table = table_of((prefill, decode), transfer_ms={}, proved=proved, skipped={decode.id, prefill.id})
    refusal = choose(table, {}, TYPICAL, model="tiny")
    assert isinstance(refusal, Refusal)
    assert (refusal.status, bool(refusal.retry_after_s)) == (503, True)
    again = decode.model_copy(update={"generation": "h"})
    assert table_of((prefill, again), transfer_ms={}, proved=proved).rows == ()


def test_unknown_models_are_not_found() -> None:
    table = table_of(some(0, 0, 1)[2], transfer_ms={}, proved=set(), models=("later",))
    refusal = choose(table, {}, TYPICAL, model="nope")
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (404, "model_not_found")
    assert isinstance(choose(table, {}, TYPICAL, model=None), Route)
    later = choose(table, {}, TYPICAL, model="later")
    assert isinstance(later, Refusal)
    assert later.status == 503


def test_equals_take_turns() -> None:
    prefills, decodes, _ = some(3, 3)
    table = table_of(
        (*prefills, *decodes),
        transfer_ms=dict.fromkeys([(p.id, d.id) for p in prefills for d in decodes], 5.0),
        proved={pair_of(p, d) for p in prefills for d in decodes},
    )
    found = set()
    for turn in range(3):
        route = choose(table, {}, TYPICAL, model="tiny", turn=turn)
        assert isinstance(route, Route)
        assert route.prefill is not None
        found.add((route.prefill.id, route.decode.id))
    assert len({p for p, _ in found}) == len({d for _, d in found}) == 3


@given(st.data())
def test_a_route_is_always_allowed_and_never_dearer_than_its_row(data: st.DataObject) -> None:
    prefills, decodes, _ = some(data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4)))
    everybody = [*prefills, *decodes]
    pairs = [(p, d) for p in prefills for d in decodes]
    proved = {pair_of(p, d) for p, d in pairs if data.draw(st.booleans())}
    transfer_ms = {(p.id, d.id): data.draw(st.floats(0.1, 1000)) for p, d in pairs if data.draw(st.booleans())}
    skipped = {e.id for e in everybody if data.draw(st.integers(0, 3)) == 0}
    avoid = {e.id for e in everybody if data.draw(st.integers(0, 3)) == 0}
    loads = {
        e.id: Load(in_flight=data.draw(st.integers(0, 9)), transfers=data.draw(st.integers(0, 3))) for e in everybody
    }
    table = table_of(everybody, transfer_ms=transfer_ms, proved=proved, skipped=skipped)
    route = choose(table, loads, TYPICAL, model=None, avoid=avoid, turn=data.draw(st.integers(0, 99)))
    allowed = {e.id for e in everybody} - skipped - avoid
    possible = [(p, d) for p, d in pairs if {p.id, d.id} <= allowed and pair_of(p, d) in proved]
    if isinstance(route, Refusal):
        assert not allowed
        assert route.status == 503
        return
    assert route.decode.id in allowed
    if route.prefill is None:
        assert not possible
        return
    assert (route.prefill, route.decode) in possible

    def cost(decode: Endpoint) -> float:
        load = loads[decode.id]
        assert route.prefill is not None
        transfer = transfer_ms.get((route.prefill.id, decode.id), float("inf"))
        return load.in_flight * TYPICAL.decode_step_ms + transfer * (load.transfers + 1)

    assert cost(route.decode) == min(cost(d) for p, d in possible if p.id == route.prefill.id)


def test_means_follow_what_is_seen() -> None:
    typical = Typical(prefill_ms=100.0, decode_step_ms=20.0)
    for _ in range(200):
        typical.saw_prefill(400.0)
        typical.saw_decode_step(5.0)
    assert typical.prefill_ms == pytest.approx(400.0, rel=0.01)
    assert typical.decode_step_ms == pytest.approx(5.0, rel=0.01)
