"""Bodies and headers by hypothesis, valid and almost: what is refused, what is passed on, and what never is.

HPCSERVE_FUZZ_INPUTS=20000 .venv/bin/pytest -m soak tests/router/test_fuzz_bodies.py --hypothesis-seed=2
"""

import asyncio
import json
import os
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.router.client import Answer, Connection, request
from tests.router.guard import ENGINE_ONLY, Guard
from tests.router.mangle import FORGED
from tests.router.processes import Job
from tests.router.rig import Rig
from tests.router.target import Target

EXAMPLES = int(os.environ.get("HPCSERVE_FUZZ_INPUTS", "20000"))
FEW = 40

_SPACE = st.sampled_from(["", "", "", " ", "\n", "\t \r\n", "\x0b", "\u00a0"])
_NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(["0", "-0", "01", "1.", ".5", "+1", "-", "1e400", "1E+2", "0x1", "Infinity", "NaN", "1" * 400]),
)
_WORDS = st.sampled_from(["true", "false", "null", "True", "nul", "truefalse", "undefined"])
_ESCAPES = [
    "\\n",
    "\\u0041",
    "\\ud800",
    "\\ud83d\\ude00",
    "\\/",
    "\\x",
    "\\",
    "\\u12",
    "\x01",
    "\x7f",
    "é",
    "\u2028",
    "\U0001f600",
]
_STRINGS = st.lists(st.one_of(st.sampled_from(_ESCAPES), st.sampled_from("abc \\\"'")), max_size=5).map(
    lambda parts: '"' + "".join(parts).replace('"', '\\"') + '"'
)
_NAMES = st.sampled_from(
    [
        *('"prompt"', '"messages"', '"max_tokens"', '"stream"', '"model"', '"n"', '"echo"', '"best_of"', '"logprobs"'),
        *('"tool_choice"', '"stream_options"', '"cache_salt"', '"min_tokens"', '"max_completion_tokens"'),
        *('"kv_transfer_params"', '"kv_transfer_p\\u0061rams"', '"vllm_xargs"', '"ec_transfer_params"'),
        *('"kv_cache_report_mode"', '"pr\\u006fmpt"', '"\\u0073tream"', '""', '"a"'),
    ]
)
_KNOWN = st.sampled_from(['"tiny"', '"nope"', '"almost"', "2", "true", "false", "null", FORGED, "[]", "{}"])
_SCALARS = st.one_of(_KNOWN, _NUMBERS, _WORDS, _STRINGS)


def _list_of(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.lists(values, max_size=3), _SPACE).map(lambda made: f"[{made[1]}" + ",".join(made[0]) + "]")


def _object_of(values: st.SearchStrategy[str], *, most: int) -> st.SearchStrategy[str]:
    member = st.tuples(_SPACE, st.one_of(_NAMES, _STRINGS), _SPACE, values, _SPACE)
    return st.lists(member.map(lambda made: f"{made[0]}{made[1]}{made[2]}:{made[3]}{made[4]}"), max_size=most).map(
        lambda members: "{" + ",".join(members) + "}"
    )


_VALUES = st.recursive(_SCALARS, lambda inner: st.one_of(_list_of(inner), _object_of(inner, most=3)), max_leaves=6)
_GOOD = st.sampled_from(['"prompt":"almost"', '"model":"tiny"', '"max_tokens":2', '"stream":true', '"stream":false'])
_MOSTLY_GOOD = st.tuples(st.lists(_GOOD, max_size=4, unique_by=lambda text: text[:6]), _object_of(_VALUES, most=2)).map(
    lambda made: "{" + ",".join([*made[0], made[1][1:-1]]).rstrip(",") + "}"
)
_TEXTS = st.one_of(_MOSTLY_GOOD, _MOSTLY_GOOD, _object_of(_VALUES, most=6), _VALUES)
_AROUND = st.sampled_from(["", "", "", "", "", " ", "\r\n", "\ufeff", "\0", ",", "}", "{}", "x"])
_BODIES = st.one_of(
    st.tuples(_AROUND, _TEXTS, _AROUND).map(lambda made: "".join(made).encode("utf-8", "surrogatepass")),
    st.tuples(_TEXTS, st.sampled_from(["utf-16", "latin-1", "utf-8-sig"])).map(
        lambda made: made[0].encode(made[1], "replace")
    ),
    st.binary(max_size=30),
)


class _RefusedError(Exception):
    """The body is one that docs/router.md refuses."""


def _no_constant(name: str) -> None:
    raise _RefusedError(name)


def _lone_surrogates(value: Any) -> bool:
    return re.search("[\ud800-\udfff]", json.dumps(value, ensure_ascii=False)) is not None


def status_of(body: bytes) -> int:
    """What Python's own JSON reader makes of a body by the rules of docs/router.md: 400, 404, or 200 for an engine."""
    keys: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys[:] = [key for key, _ in pairs]  # the outermost object is closed last
        return dict(pairs)

    try:
        found = json.loads(body.decode(), object_pairs_hook=note, parse_constant=_no_constant)
    except (ValueError, _RefusedError):
        return 400
    if not isinstance(found, dict) or len(keys) != len(set(keys)) or _lone_surrogates(found):
        return 400
    xargs = found.get("vllm_xargs")
    if isinstance(xargs, dict) and not ENGINE_ONLY.isdisjoint(xargs):
        return 400
    if not isinstance(found.get("stream"), bool | None) or not isinstance(found.get("model"), str | None):
        return 400
    return 404 if found.get("model") not in {None, "tiny"} else 200


_HEADER_NAMES = st.one_of(
    st.sampled_from(
        ["X-Request-Id", "traceparent", "tracestate", "Cookie", "X-Hpcserve-Route", "X-Data-Parallel-Rank", "Via", "Te"]
    ),
    st.from_regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}", fullmatch=True),
)
_HEADER_VALUES = st.one_of(
    st.sampled_from(["", "a", "forged", "a" * 129, "a:b.c-d_e", "a b", "a\tb"]),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20).map(str.strip),
)
_JUDGED = frozenset(
    {
        *("content-length", "transfer-encoding", "connection", "expect", "upgrade", "content-encoding"),
        *("authorization", "content-type", "proxy-connection", "keep-alive", "host"),
    }
)
_HEADERS = st.lists(
    st.tuples(_HEADER_NAMES.filter(lambda name: name.lower() not in _JUDGED), _HEADER_VALUES),
    max_size=6,
    unique_by=lambda pair: pair[0].lower(),
)


class Asking:
    """One kept connection to the router, opened anew where it was closed."""

    def __init__(self, port: int, run: Callable[..., Any]) -> None:
        self._port = port
        self._run = run
        self._connection: Connection | None = None

    def __call__(self, body: bytes, **headers: str) -> Answer:
        answer: Answer = self._run(asyncio.wait_for(self._ask(request("POST", "/v1/completions", body, **headers)), 30))
        return answer

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            await self._connection.writer.wait_closed()

    async def _ask(self, message: bytes) -> Answer:
        if self._connection is None:
            self._connection = Connection(*await asyncio.open_connection("127.0.0.1", self._port))
        await self._connection.write(message)
        answer = await self._connection.answer()
        assert answer.headers["connection"] == "keep-alive", "no body spoils the connection"
        return answer


def hold(asking: Asking, guard: Guard, *, examples: int) -> None:
    """The properties, on a router before guarded engines."""
    thorough = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)

    @thorough
    @given(_BODIES)
    def bodies(body: bytes) -> None:
        answer = asking(body)
        assert not guard.found
        wanted = status_of(body)
        refused = answer.status == 400 and answer.json["error"]["code"] == "invalid_body"
        assert refused == (wanted == 400), answer.body
        assert (answer.status == 404) == (wanted == 404), answer.body
        assert answer.status in {200, 400, 404}

    @thorough
    @given(_HEADERS)
    def headers(pairs: list[tuple[str, str]]) -> None:
        answer = asking(b'{"prompt":"almost","max_tokens":1}', **dict(pairs))
        assert not guard.found
        assert answer.status == 200
        given_id = next((value for name, value in pairs if name.lower() == "x-request-id"), "")
        taken = re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", given_id) is not None
        assert (answer.headers["x-request-id"] == given_id) == taken

    bodies()
    headers()


def test_some_bodies_and_headers() -> None:
    with asyncio.Runner() as runner:

        async def start(stack: AsyncExitStack) -> tuple[Rig, Guard]:
            rig = await stack.enter_async_context(Rig())
            return rig, Guard(rig.engines)

        stack = AsyncExitStack()
        rig, guard = runner.run(start(stack))
        asking = Asking(rig.port, runner.run)
        stack.push_async_callback(asking.close)
        try:
            hold(asking, guard, examples=FEW)
        finally:
            runner.run(stack.aclose())


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_bodies_and_headers_by_the_thousand(job: Job) -> None:
    with asyncio.Runner() as runner:
        target, stack = Target(job), AsyncExitStack()
        runner.run(target.start(stack))
        asking = Asking(job.port, runner.run)
        stack.push_async_callback(asking.close)
        try:
            hold(asking, target.guard, examples=EXAMPLES // 2)
            target.check(EXAMPLES)
        finally:
            runner.run(stack.aclose())
