"""A worker is proved by what it serves; every way of not serving is told in words."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hpcserve.agent.http import UnreachableError, ask
from hpcserve.agent.proof import is_healthy, prove
from hpcserve.errors import ServiceError

KEY = "engine-key"
Reply = tuple[int, str]
GOOD: dict[str, Any] = {
    "/v1/models": {"data": [{"id": "m", "max_model_len": 4096}]},
    "/v1/completions": {"choices": [{"text": " Paris"}], "usage": {"completion_tokens": 4}},
    "/metrics": "vllm:x 1\n",
    "/health": "",
}


@contextmanager
def worker(reply: Callable[[str], Reply]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            open_paths = {"/health", "/metrics"}
            allowed = self.path in open_paths or self.headers.get("Authorization") == f"Bearer {KEY}"
            status, text = reply(self.path) if allowed else (401, '{"error": "Unauthorized"}')
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = _answer  # noqa: N815 - names that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def answers(**changed: Any) -> Callable[[str], Reply]:
    def reply(path: str) -> Reply:
        found = changed.get(path.rpartition("/")[2], GOOD[path])
        if isinstance(found, tuple):
            return found
        return 200, found if isinstance(found, str) else json.dumps(found)

    return reply


def proved(reply: Callable[[str], Reply], *, key: str = KEY) -> Any:
    with worker(reply) as url:
        return asyncio.run(prove(url, model="m", key=key, timeout_s=5))


def test_a_worker_that_completes_a_prompt_is_proved() -> None:
    proof = proved(answers())
    assert proof.max_model_len == 4096
    assert proof.metrics_text == "vllm:x 1\n"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"models": {"data": [{"id": "other"}]}}, "serves other, not m"),
        ({"models": {"data": []}}, "serves no model"),
        ({"models": "<html>proxy</html>"}, "no JSON object"),
        ({"completions": {"choices": [{"text": ""}], "usage": {"completion_tokens": 0}}}, "no token"),
        ({"completions": {"choices": []}}, "no token"),
        ({"completions": "[]"}, "no JSON object"),
        ({"completions": (500, '{"error": "EngineDeadError"}')}, "500.*EngineDeadError"),
        ({"metrics": (404, "")}, "404"),
    ],
)
def test_a_worker_that_does_not_serve_is_not_ready(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ServiceError, match=words):
        proved(answers(**changed))


def test_an_engine_of_another_job_refuses_this_jobs_key() -> None:
    with pytest.raises(ServiceError, match="401"):
        proved(answers(), key="neighbours-key")


def test_health_is_a_200_and_nothing_else() -> None:
    async def check(url: str) -> bool:
        return await is_healthy(url, timeout_s=2)

    with worker(answers()) as url:
        assert asyncio.run(check(url))
    assert not asyncio.run(check(url))
    with worker(answers(health=(503, ""))) as url:
        assert not asyncio.run(check(url))


def test_a_worker_is_never_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with worker(answers()) as url:
        assert asyncio.run(ask(f"{url}/health")).status == 200


def test_nobody_there_and_a_time_out_are_no_answers() -> None:
    release = threading.Event()

    def slow(_: str) -> Reply:
        release.wait(5)
        return 200, ""

    with worker(slow) as url:
        with pytest.raises(UnreachableError, match="timed out"):
            asyncio.run(ask(f"{url}/health", timeout_s=0.2))
        release.set()
    with pytest.raises(UnreachableError, match="refused"):
        asyncio.run(ask(f"{url}/health", timeout_s=1))
