"""What is seen from outside: metrics, the last choices; and that choices follow what the router counts."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hpcserve.engines import EngineCounters
from hpcserve.nouns import Role
from hpcserve.router import watching
from hpcserve.router.desk import Limits
from hpcserve.router.log import Log
from hpcserve.router.reports import Reports
from hpcserve.router.slots import LinkSlots, LinkTimes
from hpcserve.routing import Preferences
from tests.router.fake_engine import FakeEngine
from tests.router.faults import BODY, RIGHT, after, fail_500, hang
from tests.router.rig import Rig

PROMPT = "the red river runs to the sea"


async def samples(rig: Rig) -> dict[tuple[str, ...], float]:
    """Every sample by name and label values, without histograms' buckets."""
    text = (await rig.ask("/metrics")).body.decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def counters(**changes: Any) -> EngineCounters:
    facts: dict[str, Any] = dict.fromkeys(
        ("xfer_count", "xfer_bytes", "xfer_failed", "kv_expired", "late_notices", "external_hit_tokens"), 0
    )
    facts |= dict.fromkeys(("local_hit_tokens", "prompt_tokens", "generation_tokens", "running", "waiting"), 0)
    return EngineCounters(**(facts | {"xfer_seconds": 0.0, "block_size": 32} | changes))


def test_a_split_request_shows_in_every_histogram_and_its_path() -> None:
    async def run() -> None:
        async with Rig() as rig:
            for _ in range(3):
                await rig.ask("/v1/completions", BODY | {"stream": True, "max_tokens": 8})
            await rig.settle()
            found = await samples(rig)
            name = "hpcserve_router_"
            assert found[f"{name}ttft_seconds_count", "disaggregated"] == 3
            assert found[f"{name}queue_seconds_count", "prefill"] == 3
            assert found[f"{name}path_handoffs_total", "decode-0", "prefill-0"] == 3
            assert found[f"{name}path_failures_total", "decode-0", "prefill-0"] == 0
            assert found[f"{name}path_streams_total", "decode-0", "prefill-0"] == 3
            assert found[f"{name}path_seconds_total", "decode-0", "prefill-0"] > 0
            assert found[f"{name}path_tokens_total", "decode-0", "prefill-0"] > 0
            assert found[f"{name}prompt_tokens_total",] > 0
            assert found[f"{name}breaker_state", "decode-0", "worker"] == 0
            assert found[f"{name}breaker_state", "prefill-0>decode-0", "path"] == 0
            assert found[f"{name}worker_prefill_tokens", "prefill-0"] == 0
            assert found[f"{name}worker_kv_tokens", "decode-0"] == 0

    asyncio.run(run())


def test_failures_show_on_their_path_and_breaker() -> None:
    async def run() -> None:
        async with Rig() as rig:
            rig.engines[1].behave = fail_500
            await rig.ask("/v1/completions", BODY)
            found = await samples(rig)
            assert found["hpcserve_router_path_failures_total", "decode-0", "prefill-0"] == 1
            for _ in range(4):
                await rig.ask("/v1/completions", BODY)
            found = await samples(rig)
            assert found["hpcserve_router_breaker_state", "decode-0", "worker"] > 0
            await rig.settle()
            for load in rig.desk.roster.loads.values():
                assert (load.coming, load.prefill_tokens or 0.0, load.kv_tokens) == (0, 0.0, 0.0)

    asyncio.run(run())


def test_the_last_choices_are_told_with_their_costs_and_without_prompts() -> None:
    async def run() -> None:
        async with Rig() as rig:
            assert (await rig.ask("/debug/decision", Authorization="")).status == 401
            await rig.ask("/v1/completions", BODY | {"prompt": PROMPT}, x_request_id="mine")
            await rig.ask("/v1/completions", BODY | {"n": 2})
            await rig.ask("/v1/completions", BODY | {"model": "nope"})
            answer = await rig.ask("/debug/decision")
            assert "river" not in answer.body.decode()
            refused, whole, split = answer.json["decisions"]
            assert refused["refused"] == "model_not_found"
            assert (whole["prefill"], whole["decode"], whole["whole_because"]) == (None, "decode-0", "n")
            assert split["request_id"] == "mine"
            assert (split["prefill"], split["decode"]) == ("prefill-0", "decode-0")
            expected = split["expected"]
            parts = ("queue_ms", "prefill_ms", "transfer_ms", "room_ms")
            assert abs(expected["ttft_ms"] - sum(expected[part] for part in parts)) < 0.01
            assert expected["prefill_ms"] > 0
            assert expected["transfer_ms"] > 0
            for _ in range(80):
                await rig.ask("/v1/completions", BODY)
            assert len((await rig.ask("/debug/decision")).json["decisions"]) == 64
            assert (await rig.ask("/debug/decision", {})).status == 405

    asyncio.run(run())


def test_an_overloaded_service_refuses_before_queues_explode() -> None:
    async def run() -> None:
        async with Rig() as rig:
            rig.desk.preferences = Preferences(ttft_limit_ms=1e9)
            assert (await rig.ask("/v1/completions", BODY)).status == 200
            rig.desk.preferences = Preferences(ttft_limit_ms=2000.0)
            rig.desk.roster.loads["prefill-0"].prefill_tokens = 100_000.0
            answer = await rig.ask("/v1/completions", BODY)
            assert (answer.status, answer.error["code"]) == (429, "overloaded")
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert len(rig.engines[0].legs()) == 1, "no engine was asked"
            assert (await rig.ask("/health")).status == 200, "health is something else"
            assert rig.desk.metrics.requests["none", "overloaded"] == 1
            rig.desk.roster.loads["prefill-0"].prefill_tokens = 0.0
            assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
            room = rig.desk.roster.loads["decode-0"]
            room.kv_room_tokens, room.kv_tokens = 1000, 1000.0
            rig.desk.roster.typical.decode_step_ms = 10_000.0
            answer = await rig.ask("/v1/completions", BODY)
            assert answer.status == 429
            assert "KV room" in answer.error["message"]

    asyncio.run(run())


def test_reports_of_engines_make_room_known_and_correct_paths() -> None:
    async def run() -> None:
        async with Rig() as rig:
            roster, decode = rig.desk.roster, rig.engines[1].endpoint
            reports = Reports(roster, rig.counters)
            rig.desk.further_series.append(reports.series)
            reports.take(decode, counters(kv_room_tokens=64_000))
            assert roster.loads["decode-0"].kv_room_tokens == 64_000
            assert roster.link_times("decode-0") is None
            before_ms = roster.table.rows[0].nearest_ms
            for turn in range(1, 9):
                for _ in range(5):
                    await rig.ask("/v1/completions", BODY | {"stream": True})
                reports.take(decode, counters(xfer_count=5 * turn, xfer_seconds=100.0 * turn, xfer_bytes=7))
            assert roster.table.rows[0].nearest_ms > 5 * before_ms
            times = roster.link_times("decode-0")
            assert times is not None
            assert times.pull_s == pytest.approx(roster.typical.handoff_ms / 1000), "legs are quicker than that"
            roster.typical.handoff_ms = 1e9
            times = roster.link_times("decode-0")
            assert times is not None
            assert times.pull_s > 5 * before_ms / 1000
            found = await samples(rig)
            assert found["hpcserve_router_worker_kv_transfers_total", "decode-0"] == 40
            assert found["hpcserve_router_path_correction", "decode-0", "prefill-0"] > 5
            again = decode.model_copy(update={"generation": "g2"})
            reports.take(again, counters(xfer_count=1))
            assert ("hpcserve_router_worker_kv_transfers_total", "decode-0") not in await samples(rig)

    asyncio.run(run())


def with_slots(rig: Rig) -> LinkSlots:
    """Few places, whatever is estimated."""
    times = LinkTimes(prefill_s=1e-9, pull_s=1e-6)
    slots = LinkSlots(lambda _: times, now_s=rig.desk.now_s, later=asyncio.get_running_loop().call_later)
    rig.desk.slots = slots
    return slots


def test_prompts_wait_for_their_place_and_all_are_answered() -> None:
    async def run() -> None:
        async with Rig() as rig:
            slots = with_slots(rig)
            prefill = rig.engines[0]
            most = 0

            async def slowly(_call: Any, _writer: asyncio.StreamWriter) -> bool:
                nonlocal most
                most = max(most, slots.held("decode-0"))
                await asyncio.sleep(0.01)
                return False

            prefill.behave = slowly
            answers = await asyncio.gather(*(rig.ask("/v1/completions", BODY) for _ in range(12)))
            assert [answer.text for answer in answers] == [RIGHT] * 12
            assert most == 4
            await rig.settle()
            assert (slots.held("decode-0"), slots.waiting("decode-0")) == (0, 0)
            assert (await samples(rig))["hpcserve_router_queue_seconds_count", "decode"] > 0

    asyncio.run(run())


def test_who_leaves_or_fails_gives_the_place_back() -> None:
    async def run() -> None:
        async with Rig() as rig:
            slots = with_slots(rig)
            prefill, decode = rig.engines
            hold = asyncio.Event()
            prefill.behave = after(hold)
            connections = [await rig.connect() for _ in range(6)]
            for connection in connections:
                await connection.post("/v1/completions", BODY)
            await asyncio.sleep(0.1)
            assert (slots.held("decode-0"), slots.waiting("decode-0")) == (4, 2)
            assert rig.desk.roster.loads["decode-0"].coming == 6
            for connection in (connections[0], connections[4]):  # one that holds a place, one that waits
                connection.close()
            await asyncio.sleep(0.1)
            assert (slots.held("decode-0"), slots.waiting("decode-0")) == (4, 0)
            assert rig.desk.roster.loads["decode-0"].coming == 4
            decode.behave = fail_500
            hold.set()
            for connection in (connections[1], connections[2], connections[3], connections[5]):
                assert (await asyncio.wait_for(connection.answer(), 5)).status in {200, 502}
            await rig.settle()
            assert (slots.held("decode-0"), slots.waiting("decode-0")) == (0, 0)
            for load in rig.desk.roster.loads.values():
                assert (load.coming, load.prefill_tokens or 0.0, load.kv_tokens) == (0, 0.0, 0.0)

    asyncio.run(run())


def test_who_waited_and_is_then_served_whole_holds_no_place() -> None:
    async def run() -> None:
        async with Rig() as rig:
            slots = with_slots(rig)
            prefill, decode = rig.engines
            prefills, wholes = asyncio.Event(), asyncio.Event()

            async def held(call: Any, _writer: asyncio.StreamWriter) -> bool:
                await (wholes if call.leg == "whole" else prefills).wait()
                return False

            prefill.behave = held
            decode.behave = held
            connections = [await rig.connect() for _ in range(6)]
            for connection in connections:
                await connection.post("/v1/completions", BODY)
            await asyncio.sleep(0.1)
            assert (slots.held("decode-0"), slots.waiting("decode-0")) == (4, 2)
            for _ in range(3):  # the pair loses its proof, and there is no other
                rig.desk.roster.handoff_failed(prefill.endpoint, decode.endpoint, now_s=rig.desk.now_s())
            prefills.set()
            for connection in connections[:4]:
                assert (await asyncio.wait_for(connection.answer(), 5)).status == 200
            await asyncio.sleep(0.05)
            assert [*prefill.legs(), *decode.legs()].count("whole") == 2
            assert (slots.held("decode-0"), slots.waiting("decode-0")) == (0, 0)
            wholes.set()
            for connection in connections[4:]:
                assert (await asyncio.wait_for(connection.answer(), 5)).status == 200
            await rig.settle()

    asyncio.run(run())


def test_a_pull_that_hangs_is_given_up_long_before_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcserve.routing.load._SHORTEST_STALL_S", 0.3)

    async def run() -> None:
        engines = [FakeEngine(Role.PREFILL), FakeEngine(Role.DECODE, 0), FakeEngine(Role.DECODE, 1)]
        near = {("prefill-0", "decode-0"): 0.01, ("prefill-0", "decode-1"): 1e5}
        async with Rig(*engines, limits=Limits(handoff_s=60.0), transfer_ms=near) as rig:
            cut = engines[1]
            body = BODY | {"stream": True}

            cut.behave = hang
            client = await rig.connect()
            await client.post("/v1/completions", body)
            await asyncio.sleep(0.7)
            assert cut.legs() == ["decode"], "nothing came there yet: nobody knows what is usual"
            assert not rig.desk.metrics.retries
            client.close()
            cut.behave = None
            for _ in range(3):
                assert (await rig.ask("/v1/completions", body)).whole
            cut.behave = hang
            answer = await asyncio.wait_for(rig.ask("/v1/completions", body), 5)
            assert (answer.status, answer.whole) == (200, True)
            assert answer.headers["x-hpcserve-route"] == "prefill-0>decode-1"
            assert rig.desk.metrics.retries == {"stalled": 1}
            assert rig.desk.metrics.lease_drops == 0
            assert cut.calls[-1].closed_early, "its engine aborts"

    asyncio.run(run())


def test_a_short_prompt_is_not_split_when_that_is_cheaper() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.PREFILL), FakeEngine(Role.DECODE)) as rig:
            rig.desk.preferences = Preferences(split_when_cheaper=True)
            rig.desk.roster.typical.handoff_ms = 50.0
            answer = await rig.ask("/v1/completions", BODY)
            assert (answer.text, answer.headers["x-hpcserve-route"]) == (RIGHT, "decode-0")
            assert rig.desk.metrics.whole == {"short_prompt": 1}
            long = BODY | {"prompt": "river " * 20_000}
            rig.desk.roster.loads["decode-0"].in_flight += 5
            assert (await rig.ask("/v1/completions", long)).headers["x-hpcserve-route"] == "prefill-0>decode-0"
            rig.desk.roster.loads["decode-0"].in_flight -= 5
            decision = json.loads((await rig.ask("/debug/decision")).body)["decisions"][1]
            assert decision["whole_because"] == "short_prompt"

    asyncio.run(run())


def test_a_service_that_cannot_serve_is_live_all_the_same() -> None:
    async def run() -> None:
        async with Rig(proved=False) as rig:
            assert (await rig.ask("/health", Authorization="")).status == 503
            assert (await rig.ask("/live", Authorization="")).status == 200
            rig.desk.draining = True
            assert (await rig.ask("/live", Authorization="")).status == 200

    asyncio.run(run())


def test_a_state_file_that_cannot_be_written_is_told_once_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(watching, "_DISCOVERY_S", 0.01)
    folder = tmp_path / "gone"

    async def run() -> None:
        async with Rig() as rig:
            said: list[str] = []
            monkeypatch.setattr(Log, "event", lambda _, text: said.append(text))
            watcher = rig.watcher(folder / "router.state.json")
            task = asyncio.create_task(watcher.run())
            await asyncio.sleep(0.3)
            assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
            folder.mkdir()
            await asyncio.sleep(0.3)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            told = [text for text in said if "router.state.json" in text]
            assert [text.split(" be written")[0] for text in told] == [
                "router.state.json cannot",
                "router.state.json can",
            ]
            assert json.loads((folder / "router.state.json").read_text())["ready"]

    asyncio.run(run())
