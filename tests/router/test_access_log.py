"""The structured access log, request ids and trace context from end to end."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

from hpcserve.router.access_log import AccessLog, Served
from tests.router.faults import BODY, RIGHT, fail_500
from tests.router.rig import Rig
from tests.router.test_keys import ANNA, bearer, ring

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_request_has_one_line_without_its_prompt(tmp_path: Path) -> None:
    path = tmp_path / "access.jsonl"

    async def run() -> None:
        async with Rig() as rig:
            rig.desk.access = log = AccessLog(path)
            rig.desk.keys = ring()
            secret = BODY | {"prompt": "the red river"}
            await rig.ask("/v1/completions?key=hidden", secret, x_request_id="one", traceparent=TRACE, **bearer(ANNA))
            await rig.ask("/v1/completions", BODY | {"stream": True})
            await rig.ask("/v1/completions", BODY, Authorization="Bearer nobody", x_request_id="two")
            await rig.ask("/v1/nope?q=hidden", BODY)
            await rig.ask("/v1/completions", b"{")
            rig.engines[1].behave = fail_500
            await rig.ask("/v1/completions", BODY)
            await rig.settle()
            log.close()

    asyncio.run(run())
    text = path.read_text()
    for hidden in ("river", "hidden", ANNA, "nobody"):
        assert hidden not in text
    first, second, third, fourth, fifth, last = lines(path)
    assert (first["request_id"], first["tenant"], first["path"]) == ("one", "anna", "/v1/completions")
    assert (first["route"], first["status"], first["end"]) == ("prefill-0>decode-0", 200, "ok")
    assert first["traceparent"] == TRACE
    assert 0 < first["ttft_ms"] <= first["total_ms"]
    assert (second["stream"], second["tenant"]) == (True, "")
    assert (third["status"], third["end"], third["request_id"]) == (401, "invalid_api_key", "two")
    assert (fourth["status"], fourth["path"]) == (404, "/v1/nope")
    assert (fifth["status"], fifth["end"]) == (400, "invalid_body")
    assert last["retries"] > 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_ids_and_trace_context_reach_both_engines() -> None:
    async def run() -> None:
        async with Rig() as rig:
            answer = await rig.ask(
                "/v1/completions", BODY, x_request_id="mine", traceparent=TRACE, tracestate="vendor=1"
            )
            assert answer.text == RIGHT
            assert answer.headers["x-request-id"] == "mine"
            for engine in rig.engines:
                headers = engine.calls[0].headers
                assert headers["x-request-id"] == "mine"
                assert (headers["traceparent"], headers["tracestate"]) == (TRACE, "vendor=1")
            made = (await rig.ask("/v1/completions", BODY)).headers["x-request-id"]
            for engine in rig.engines:
                assert engine.calls[1].headers["x-request-id"] == made
                assert "traceparent" not in engine.calls[1].headers
            decision = (await rig.ask("/debug/decision")).json["decisions"][0]
            assert decision["request_id"] == made

    asyncio.run(run())


def test_a_full_disk_stops_nobody() -> None:
    log = AccessLog(Path("/dev/full"))
    for _ in range(1000):
        log.add(Served(request_id="x", tenant="", path="/", route="-", status=200, end="ok"))
    log.close()
