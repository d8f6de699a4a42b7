"""What clients send, well and badly."""

import asyncio
import gzip
import json
from typing import Any

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hpcserve.nouns import Role
from hpcserve.router.desk import Limits
from hpcserve.router.keys import KeyRing
from tests.router.client import KEY, request
from tests.router.fake_engine import FakeEngine, prompt_of, tokens_of
from tests.router.faults import after
from tests.router.rig import Rig

BODY: dict[str, Any] = {"model": "tiny", "prompt": "a b c d e f", "max_tokens": 2}
RAW = json.dumps(BODY).encode()
RIGHT = "".join(tokens_of(prompt_of(BODY), 2))


@pytest.mark.parametrize("key", ["", "Bearer wrong", f"Basic {KEY}", KEY, f"Bearer {KEY}x", "Bearer"])
def test_without_the_key_nothing_is_served(key: str) -> None:
    async def run() -> None:
        async with Rig() as rig:
            for path, body in (("/v1/completions", BODY), ("/v1/models", None), ("/v1/nope", None)):
                answer = await rig.ask(path, body, Authorization=key)
                assert answer.status == 401
                assert answer.error["code"] == "invalid_api_key"
                assert answer.error["type"] == "invalid_request_error"
            assert not any(engine.calls for engine in rig.engines)

    asyncio.run(run())


def test_routes() -> None:
    wanted = {
        ("GET", "/v1/models"): 200,
        ("GET", "/health"): 200,
        ("GET", "/live"): 200,
        ("GET", "/metrics"): 200,
        ("POST", "/v1/responses"): 404,
        ("POST", "/inference/v1/generate"): 404,
        ("POST", "/tokenize"): 404,
        ("POST", "/v1/messages"): 404,
        ("POST", "/v1/completions/"): 404,
        ("POST", "//v1/completions"): 404,
        ("GET", "/v1/completions"): 405,
        ("POST", "/v1/models"): 405,
        ("POST", "/v1/completions?api-version=1"): 200,
    }

    async def run() -> None:
        async with Rig() as rig:
            for (method, path), status in wanted.items():
                client = await rig.connect()
                await client.write(request(method, path, BODY if method == "POST" else None))
                answer = await client.answer()
                assert answer.status == status, path
                if status >= 400:
                    assert answer.error["message"]
            assert [engine.legs() for engine in rig.engines] == [["prefill"], ["decode"]]
            assert rig.engines[0].calls[0].path == "/v1/completions"

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nope"])
def test_an_answer_to_head_has_no_body(path: str) -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            await client.write(request("HEAD", path) + request("GET", "/live"))
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 40")
            assert (await client.answer()).json == {"status": "live"}

    asyncio.run(run())


def test_health_and_metrics_need_no_key() -> None:
    async def run() -> None:
        async with Rig(proved=False) as rig:
            answer = await rig.ask("/health", Authorization="")
            assert answer.status == 503
            assert answer.json["status"] == "starting"
            assert len(answer.json["waiting_for"]) == 2
            rig.prove_all()
            await rig.ask("/v1/completions", BODY | {"stream": True})
            answer = await rig.ask("/health", Authorization="")
            assert (answer.status, answer.json) == (200, {"status": "ready", "waiting_for": []})
            text = (await rig.ask("/metrics", Authorization="")).body.decode()
            for line in (
                'hpcserve_router_requests_total{outcome="ok",route="disaggregated"} 1.0',
                "hpcserve_router_handoffs_total 1.0",
                "hpcserve_router_lease_drops_total 0.0",
                "hpcserve_router_in_flight_requests 0.0",
                "hpcserve_router_added_ttft_seconds_count 1.0",
                'hpcserve_router_ttft_seconds_count{route="disaggregated"} 1.0',
                'hpcserve_router_proved{route="prefill-0>decode-0"} 1.0',
                "hpcserve_router_ready 1.0",
            ):
                assert line in text.replace(
                    '{route="disaggregated",outcome="ok"}', '{outcome="ok",route="disaggregated"}'
                )

    asyncio.run(run())


def test_every_line_of_the_metrics_is_prometheus_own() -> None:
    async def run() -> None:
        async with Rig() as rig:
            await rig.ask("/v1/completions", BODY)
            await rig.ask("/v1/completions", BODY | {"n": 2})
            await rig.ask("/v1/nope", BODY)
            text = (await rig.ask("/metrics")).body.decode()
            families = list(text_string_to_metric_families(text))
            assert all(family.documentation and family.type != "unknown" for family in families)
            samples = [
                (sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples
            ]
            assert len(samples) == len(set(samples)) == sum(not line.startswith("#") for line in text.splitlines())
            for family in families:
                if family.type == "histogram":
                    counts = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
                    bounds = [sample.labels["le"] for sample in family.samples if sample.name.endswith("_bucket")]
                    per_series = bounds.index("+Inf") + 1
                    for start in range(0, len(counts), per_series):
                        assert counts[start : start + per_series] == sorted(counts[start : start + per_series])

    asyncio.run(run())


@pytest.mark.parametrize("simulated", [False, True])
def test_a_simulated_service_says_so(simulated: bool) -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED, simulated=simulated)) as rig:
            (card,) = (await rig.ask("/v1/models")).json["data"]
            assert ("simulated" in card["owned_by"]) == simulated
            text = (await rig.ask("/metrics")).body.decode()
            assert f"hpcserve_router_simulated {float(simulated)}\n" in text

    asyncio.run(run())


def test_models_are_named_once() -> None:
    async def run() -> None:
        engines = (FakeEngine(Role.AGGREGATED, 0), FakeEngine(Role.AGGREGATED, 1, model="other"))
        async with Rig(*engines, FakeEngine(Role.AGGREGATED, 2)) as rig:
            answer = await rig.ask("/v1/models")
            assert [card["id"] for card in answer.json["data"]] == ["other", "tiny"]
            assert (await rig.ask("/v1/completions", BODY | {"model": "other"})).status == 200
            assert engines[1].legs() == ["whole"]

    asyncio.run(run())


def test_model_names() -> None:
    async def run() -> None:
        async with Rig() as rig:
            for name in ("nope", "../tiny", "tiny-lora"):
                answer = await rig.ask("/v1/completions", BODY | {"model": name})
                assert answer.status == 404
                assert answer.error["code"] == "model_not_found"
            missing = {key: value for key, value in BODY.items() if key != "model"}
            assert (await rig.ask("/v1/completions", missing)).status == 200

    asyncio.run(run())


BAD_BODIES = {
    "latin-1": b'{"model":"\xe9"}',
    "surrogate in utf-8": b'{"model":"\xed\xa0\x80"}',
    "text": b"hello",
    "empty": b"",
    "list": b"[]",
    "truncated": b'{"model":"tiny","prompt":"x"',
    "trailing": b'{"prompt":"x"}{}',
    "lone surrogate": b'{"model":"tiny","prompt":"\\ud800","max_tokens":1}',
    "nan": b'{"model":"tiny","prompt":"x","temperature":NaN}',
    "infinity": b'{"prompt":"x","temperature":-Infinity}',
    "bom": b"\xef\xbb\xbf{}",
    "twice": b'{"model":"tiny","prompt":"x","max_tokens":1,"prompt":"y"}',
    "twice by escape": b'{"prompt":"x","\\u0070rompt":"y"}',
    "twice with spaces": b'{"prompt" : "x", "a":1 , "b":2,"c":3,"d":4,"prompt":1}',
    "deep": b'{"prompt":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep with spaces": b'{"prompt": ' + b"[" * 900 + b"]" * 900 + b" }",
    "stream is a word": b'{"prompt":"x","stream":"yes"}',
    "stream is a number": b'{"prompt":"x","stream":1}',
    "model is a number": b'{"model":7,"prompt":"x"}',
    "transfer in extra arguments": b'{"model":"tiny","prompt":"x","n":2,"vllm_xargs":{"kv_transfer_params":""}}',
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_bodies_are_refused_and_the_connection_goes_on(name: str) -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            await client.post("/v1/completions", BAD_BODIES[name])
            answer = await client.answer()
            if name == "deep with spaces":  # deep, but within what the parser takes: the engine's to judge
                assert answer.status in {200, 400}
            else:
                assert answer.status == 400
                assert answer.error["code"] == "invalid_body"
                assert not any(engine.calls for engine in rig.engines)
            await client.post("/v1/completions", BODY)
            assert (await client.answer()).text == RIGHT
            await rig.settle()

    asyncio.run(run())


def test_compressed_bodies_are_refused() -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            await client.post("/v1/completions", gzip.compress(RAW), Content_Encoding="gzip")
            assert (await client.answer()).status == 415
            await client.post("/v1/completions", BODY, Content_Encoding="identity")
            assert (await client.answer()).text == RIGHT
            for engine in rig.engines:
                assert "content-encoding" not in engine.calls[0].headers

    asyncio.run(run())


def test_expect_100_continue() -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            whole = request("POST", "/v1/completions", BODY, Expect="100-continue")
            head, _, body = whole.partition(b"\r\n\r\n")
            for _ in range(2):
                await client.write(head + b"\r\n\r\n")
                assert (
                    await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 1) == b"HTTP/1.1 100 Continue\r\n\r\n"
                )
                await client.write(body)
                assert (await client.answer()).text == RIGHT
            assert "expect" not in rig.engines[0].calls[0].headers
            await client.write(whole)  # one that does not wait
            assert (await client.answer()).text == RIGHT
            await client.write(head.replace(b"100-continue", b"miracles") + b"\r\n\r\n")
            assert (await client.answer()).status == 417
            assert await client.is_closed()

    asyncio.run(run())


def test_an_http_1_0_client_is_told_of_no_continue() -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            whole = request("POST", "/v1/completions", BODY, Expect="100-continue").replace(b"HTTP/1.1", b"HTTP/1.0")
            await client.write(whole[:-1])
            await asyncio.sleep(0.05)
            await client.write(whole[-1:])
            answer = await client.answer()
            assert (answer.text, answer.interim) == (RIGHT, [])

    asyncio.run(run())


def test_a_refused_expectation_gets_its_final_answer_at_once() -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            whole = request("POST", "/v1/completions", BODY, Expect="100-continue", Authorization="")
            await client.write(whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, answer.interim) == (401, [])

    asyncio.run(run())


def test_the_body_of_a_refused_request_does_not_poison_the_next() -> None:
    async def run() -> None:
        for first in (
            request("POST", "/v1/nope", BODY),
            request("POST", "/v1/completions", BODY, Authorization=""),
            request("POST", "/v1/completions", b"hello"),
            request("POST", "/v1/completions", BODY, Content_Encoding="br"),
        ):
            for size in (1, 7, 10_000):
                async with Rig() as rig:
                    client = await rig.connect()
                    both = first + request("GET", "/v1/models")
                    for place in range(0, len(both), size):
                        await client.write(both[place : place + size])
                        await asyncio.sleep(0)
                    assert (await client.answer()).status in {400, 401, 404, 415}
                    assert (await client.answer()).json["data"][0]["id"] == "tiny"

    asyncio.run(run())


def test_a_huge_refused_body_is_answered_before_the_connection_closes() -> None:
    async def run() -> None:
        async with Rig(limits=Limits(body_bytes=1 << 20, drain_bytes=1 << 16)) as rig:
            big = b'{"prompt":"' + b"x" * (4 << 20) + b'"}'
            for data in (
                request("POST", "/v1/completions", big, Authorization=""),
                request("POST", "/v1/completions", big),
                request("POST", "/v1/completions", b"", Transfer_Encoding="chunked", Content_Length="")
                + b"%x\r\n%b\r\n0\r\n\r\n" % (len(big), big),
            ):
                client = await rig.connect()
                client.writer.write(data)
                answer = await asyncio.wait_for(client.answer(), 5)
                assert answer.status in {401, 413}
                assert answer.error
                client.close()
            await rig.settle()

    asyncio.run(run())


def test_chunked_requests_in_any_pieces() -> None:
    async def run() -> None:
        pieces = b"".join(b"%X;ext=1\r\n%b\r\n" % (len(RAW[i : i + 5]), RAW[i : i + 5]) for i in range(0, len(RAW), 5))
        head = request("POST", "/v1/completions", b"", Content_Length="", Transfer_Encoding="chunked")
        whole = head + pieces + b"0\r\nTrailer: x\r\n\r\n"
        async with Rig() as rig:
            client = await rig.connect()
            for size in (1, 3, 50, 5000):
                for place in range(0, len(whole), size):
                    await client.write(whole[place : place + size])
                    await asyncio.sleep(0)
                assert (await client.answer()).text == RIGHT
            call = rig.engines[1].calls[-1]
            assert "transfer-encoding" not in call.headers
            assert call.headers["content-length"] == str(len(call.raw))

    asyncio.run(run())


def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            bodies = [BODY | {"prompt": f"prompt {number}", "stream": number % 2 == 1} for number in range(30)]
            data = b"".join(request("POST", "/v1/completions", body) for body in bodies)
            await client.write(data + request("GET", "/v1/models"))
            for body in bodies:
                answer = await client.answer()
                text = (
                    "".join(json.loads(event[6:])["choices"][0]["text"] for event in answer.events[:-2])
                    if body["stream"]
                    else answer.text
                )
                assert text == "".join(tokens_of(prompt_of(body), 2))
            assert (await client.answer()).json["object"] == "list"

    asyncio.run(run())


BAD_HTTP = {
    "both lengths": b"POST /health HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length of 4,401 digits": b"POST /v1/completions HTTP/1.1\r\nContent-Length: " + b"0" * 4400 + b"2\r\n\r\n{}",
    "signed length": b"POST /v1/completions HTTP/1.1\r\nContent-Length: +2\r\n\r\n{}",
    "space before colon": b"POST /v1/completions HTTP/1.1\r\nContent-Length : 2\r\n\r\n{}",
    "bare line feeds": b"POST /v1/completions HTTP/1.1\nContent-Length: 2\n\n{}",
    "folded": b"GET /health HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
    "gzip, chunked": b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "bad chunk": b"POST /health HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "long head": b"GET /health HTTP/1.1\r\nA: " + b"x" * 70_000,
    "long url": b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\n" + b"".join(b"A%d: x\r\n" % n for n in range(400)) + b"\r\n",
}


@pytest.mark.parametrize("name", BAD_HTTP)
def test_bad_http_is_refused_and_closed(name: str) -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            await client.write(BAD_HTTP[name])
            answer = await asyncio.wait_for(client.answer(), 5)
            assert answer.status in {400, 431, 501}
            assert answer.error["code"] == "bad_request"
            assert await client.is_closed()
            assert not any(engine.calls for engine in rig.engines)

    asyncio.run(run())


def test_an_upgrade_is_not_made() -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            await client.write(b"GET /health HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n")
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await client.is_closed()

    asyncio.run(run())


def test_a_bad_request_behind_a_good_one_does_not_spoil_its_answer() -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            await client.write(request("POST", "/v1/completions", BODY) + b"GARBAGE\r\n\r\n")
            assert (await client.answer()).text == RIGHT
            assert (await client.answer()).status == 400
            assert await client.is_closed()
            await rig.settle()

    asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
def test_http_1_0_and_close(stream: bool) -> None:
    async def run() -> None:
        body = json.dumps(BODY | {"stream": stream}).encode()
        for head in ("HTTP/1.0\r\n", "HTTP/1.1\r\nConnection: close\r\n"):
            async with Rig() as rig:
                client = await rig.connect()
                rest = f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
                await client.write(f"POST /v1/completions {head}{rest}".encode() + body)
                answer = await client.answer()
                assert ("transfer-encoding" in answer.headers) == (stream and head.startswith("HTTP/1.1"))
                assert answer.headers["connection"] == "close"
                assert answer.whole
                if stream:
                    assert answer.events[-1] == b"data: [DONE]"
                else:
                    assert answer.text == RIGHT
                assert await client.is_closed()

    asyncio.run(run())


def test_slow_and_idle_connections_are_closed() -> None:
    async def run() -> None:
        async with Rig(limits=Limits(head_s=0.1, body_idle_s=0.1, connection_idle_s=0.2)) as rig:
            idle, slow_head, slow_body = [await rig.connect() for _ in range(3)]
            await slow_head.write(b"GET /health HT")
            await slow_body.write(request("POST", "/v1/completions", BODY)[:-5])
            assert (await asyncio.wait_for(slow_head.answer(), 2)).status == 408
            assert (await asyncio.wait_for(slow_body.answer(), 2)).status == 408
            assert await asyncio.wait_for(idle.is_closed(), 2)
            assert not rig.sessions

    asyncio.run(run())


def test_the_openai_client() -> None:
    async def run() -> None:
        async with Rig() as rig:
            async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{rig.port}/v1", api_key=KEY) as client:
                completion = await client.completions.create(model="tiny", prompt="a b c d e f", max_tokens=2)
                assert completion.choices[0].text == RIGHT
                messages: Any = [{"role": "user", "content": "hi é"}]
                stream = await client.chat.completions.create(
                    model="tiny", messages=messages, max_tokens=3, stream=True
                )
                said = [part.choices[0].delta.content or "" async for part in stream if part.choices]
                assert "".join(said) == "".join(tokens_of(prompt_of({"messages": messages}), 3))
                assert [model.id async for model in client.models.list()] == ["tiny"]
                with pytest.raises(openai.NotFoundError):
                    await client.completions.create(model="nope", prompt="x")
            async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{rig.port}/v1", api_key="no") as client:
                with pytest.raises(openai.AuthenticationError):
                    await client.models.list()
            assert rig.engines[1].legs() == ["decode", "decode"]
            await rig.settle()

    asyncio.run(run())


def test_draining_refuses_new_requests_and_finishes_old_ones() -> None:
    async def run() -> None:
        async with Rig() as rig:
            gate = asyncio.Event()
            rig.engines[1].behave = after(gate)
            old, new = await rig.connect(), await rig.connect()
            await old.post("/v1/completions", BODY)
            await asyncio.sleep(0.05)
            rig.desk.draining = True
            await new.post("/v1/completions", BODY)
            answer = await new.answer()
            assert (answer.status, answer.error["code"]) == (503, "draining")
            assert answer.headers["retry-after"]
            gate.set()
            assert (await old.answer()).text == RIGHT
            assert await old.is_closed()

    asyncio.run(run())


def test_a_head_that_was_right_is_judged_anew_with_other_keys_or_another_head() -> None:
    async def run() -> None:
        async with Rig() as rig:
            client = await rig.connect()

            async def status(**headers: str) -> int:
                await client.post("/v1/completions", BODY, **headers)
                return (await client.answer()).status

            assert [await status(), await status(), await status(Authorization="Bearer no")] == [200, 200, 401]
            assert [await status(), await status(Content_Encoding="br"), await status()] == [200, 415, 200]
            rig.desk.keys = KeyRing(b"another")
            assert [await status(), await status()] == [401, 401]
            rig.desk.keys = KeyRing(KEY.encode())
            assert await status() == 200

    asyncio.run(run())
