"""Fake engines that judge whatever reaches them: only the router's own may, whatever its clients sent."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from tests.router.fake_engine import ENGINE_KEY, KV, Call, FakeEngine, send

INNER = "MUST-NOT-BE-RUN"
"""Stands in requests that lie inside another message."""
_PATHS = frozenset({"/v1/completions", "/v1/chat/completions"})
_HEADERS = frozenset({"host", "content-type", "content-length", "authorization", "x-request-id"})
_TRACE = frozenset({"traceparent", "tracestate"})
_AT_PREFILL = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    **dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")),
}
ENGINE_ONLY = frozenset({"kv_transfer_params", "ec_transfer_params", "kv_cache_report_mode"})
"""Keys of `vllm_xargs` that no client may set."""
_MOST_TOKENS = 50


class Guard:
    """Sets itself before the engines' answers; `found` are what should not have come."""

    def __init__(self, engines: Sequence[FakeEngine]) -> None:
        self.found: list[str] = []
        self.calls = 0
        for engine in engines:
            engine.behave = self._look
            engine.calls = _Forgotten()

    async def _look(self, call: Call, writer: asyncio.StreamWriter) -> bool:
        self.calls += 1
        wrong = _what_is_wrong(call)
        if wrong:
            self.found.append(f"{wrong}: {call.path} {call.headers} {call.raw[:2000]!r}")
        if _is_valid(call.body):
            return False
        await send(writer, 400, b'{"error":{"message":"no","type":"BadRequestError","param":null,"code":400}}')
        return True


class _Forgotten(list[Call]):
    """Hours of calls are not kept."""

    def append(self, call: Call) -> None:
        del call


def _what_is_wrong(call: Call) -> str:
    names = set(call.headers)
    if call.path not in _PATHS:
        return "a path that is not served"
    if not names >= _HEADERS or not names <= _HEADERS | _TRACE:
        return "other headers than the router's"
    if call.headers["authorization"] != f"bearer {ENGINE_KEY}" or call.headers["content-type"] != "application/json":
        return "headers of a client"
    if INNER in json.dumps([call.body.get("prompt"), call.body.get("messages")]):
        return "a request from inside another message"
    return _what_is_wrong_in(call.body, call.raw)


def _what_is_wrong_in(body: dict[str, Any], raw: bytes) -> str:
    keys: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        keys[:] = [key for key, _ in pairs]  # the outermost object is closed last

    json.loads(raw, object_pairs_hook=note)
    if len(keys) != len(set(keys)):
        return "a key that stands twice"
    params = body.get("kv_transfer_params")
    ours = params is None or params == _AT_PREFILL or (isinstance(params, dict) and params["remote_request_id"] in KV)
    if not ours:
        return "a client's kv_transfer_params"
    more = body.get("vllm_xargs")
    if isinstance(more, dict) and not ENGINE_ONLY.isdisjoint(more):
        return "a client's vllm_xargs"
    if body.get("stream") not in {None, True, False}:
        return "a stream that is neither true nor false"
    return ""


def _is_valid(body: dict[str, Any]) -> bool:
    """Whether an engine would take it, as far as the fake one's arithmetic needs that."""
    counts = [body.get(name) for name in ("max_tokens", "max_completion_tokens")]
    fine = all(count is None or (type(count) is int and 0 < count <= _MOST_TOKENS) for count in counts)
    return fine and ("prompt" in body or "messages" in body)
