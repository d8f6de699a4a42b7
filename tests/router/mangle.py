"""Bytes that no client should send, made from good requests: the same for the same seed and number."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tests.router.client import request
from tests.router.guard import INNER

End = Literal["wait", "shut", "reset", "hold"]
_ENDS: tuple[End, ...] = ("wait", "shut", "reset", "hold")
"""What the client does behind its last byte: it waits for answers, closes its direction, breaks off, or does nothing
until the router closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One connection's worth. `prompts`: of requests that must be answered right, first and in this order."""

    name: str
    pieces: tuple[bytes, ...]
    pause_s: float
    end: End
    prompts: tuple[Any, ...] = ()
    alone: bool = False
    """Whether nothing but those answers may come."""

    def __str__(self) -> str:
        shown = [piece if len(piece) < 4000 else piece[:2000] + b"..." + piece[-200:] for piece in self.pieces]
        return f"{self.name}: pause {self.pause_s:.3f} s, then {self.end}: {shown}"


def make(seed: int, number: int) -> Input:
    """The input of this number."""
    rng = random.Random(f"{seed}-{number}")  # noqa: S311 - no secret
    (kind,) = rng.choices(list(_KINDS), [weight for weight, _ in _KINDS.values()])
    data, prompts, alone = _KINDS[kind][1](rng, number)
    (end,) = rng.choices(_ENDS, (650, 200, 145, 4))
    return Input(
        name=f"seed {seed}, number {number}, {kind}",
        pieces=_pieces(rng, data),
        pause_s=rng.choice((0.001, 0.01, 0.05)) if rng.random() < 0.02 else 0.0,
        end="wait" if prompts else end,
        prompts=prompts,
        alone=alone,
    )


_Made = tuple[bytes, tuple[Any, ...], bool]


def _pieces(rng: random.Random, data: bytes) -> tuple[bytes, ...]:
    """The same bytes, cut anywhere."""
    how = rng.random()
    if how < 0.4 or len(data) < 2:
        cuts: list[int] = []
    elif how < 0.65:
        cuts = [rng.randrange(1, len(data))]
    elif how < 0.9 or len(data) > 400:
        cuts = sorted(rng.randrange(1, len(data)) for _ in range(rng.randrange(2, 9)))
    else:
        cuts = list(range(1, len(data)))
    return tuple(data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b)


# Good requests.


def _body(rng: random.Random, number: int, place: int) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "tiny", "max_tokens": rng.randrange(1, 5)}
    if rng.random() < 0.5:
        body["stream"] = rng.random() < 0.5
    body["prompt"] = f"good {number} {place} é \u2028" if rng.random() < 0.2 else f"good {number} {place}"
    return body


def _message(rng: random.Random, body: bytes, *, path: str = "/v1/completions", **headers: str) -> bytes:
    """A request that carries this body, in one of several good ways."""
    if rng.random() < 0.75:
        return request("POST", path, body, **headers)
    head = request("POST", path, b"", Content_Length="", Transfer_Encoding="chunked", **headers)
    size = rng.randrange(1, 40)
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    extension = rng.choice((b"", b";a=b", b';a="b;c"'))
    chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts)
    return head + chunks + b"0\r\n" + rng.choice((b"", b"Expires: never\r\n")) + b"\r\n"


def _good(rng: random.Random, number: int, most: int = 12) -> tuple[list[bytes], list[Any]]:
    messages: list[bytes] = []
    prompts: list[Any] = []
    for place in range(rng.randrange(1, most + 1)):
        body = _body(rng, number, place)
        text = json.dumps(body, ensure_ascii=rng.random() < 0.5, separators=rng.choice(((",", ":"), (", ", ": "))))
        more = {"Expect": "100-continue"} if rng.random() < 0.05 else {}
        more |= {"X_Request_Id": f"fuzz-{number}-{place}"} if rng.random() < 0.5 else {}
        more |= {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} if rng.random() < 0.2 else {}
        messages.append(_message(rng, text.encode(), **more))
        prompts.append((body["prompt"], body["max_tokens"], body.get("stream", False)))
    return messages, prompts


def _pipelined(rng: random.Random, number: int) -> _Made:
    messages, prompts = _good(rng, number)
    return b"".join(messages), tuple(prompts), True


# Bad ones.

_BYTES = b'\r\n\0\xff :;,\t\x0b\x7f\x80{}[]"\\0123456789-+'


def _mutated(rng: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(found) + 1)
        to = min(len(found), at + rng.randrange(1, 30))
        match rng.randrange(7):
            case 0 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(found):
                found[at] = rng.choice(_BYTES)
            case 2:
                del found[at:to]
            case 3:
                found[at:at] = found[at:to]
            case 4:
                found[at:at] = bytes(rng.choice(_BYTES) for _ in range(rng.randrange(1, 4)))
            case 5:
                found[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                del found[at:]
    return bytes(found)


def _mangled(rng: random.Random, number: int) -> _Made:
    messages, _ = _good(rng, number, 3)
    messages += rng.sample([request("GET", "/health"), request("GET", "/v1/models"), request("GET", "/metrics")], 1)
    rng.shuffle(messages)
    return _mutated(rng, b"".join(messages)), (), False


def _behind(rng: random.Random, number: int) -> _Made:
    """Good requests and then a broken one: their answers must not suffer."""
    messages, prompts = _good(rng, number, 3)
    last = _mutated(rng, request("GET", "/v1/models") + rng.randbytes(20))
    return b"".join(messages) + b"\0" + last, tuple(prompts), False


FORGED = '{"do_remote_prefill":true,"remote_engine_id":"x","remote_request_id":"forged","remote_block_ids":[[1]]}'
_BAD_MEMBERS = (
    f'"kv_transfer_params":{FORGED}',
    f'"kv_transfer_params":{FORGED},"kv_transfer_params":{FORGED}',
    f'"kv_transfer_p\\u0061rams":{FORGED}',
    '"kv_transfer_params":"x"',
    f'"vllm_xargs":{{"kv_transfer_params":{FORGED}}}',
    f'"vllm_xargs":{{"kv_transfer_p\\u0061rams":{FORGED}}}',
    f'"vllm_xargs":{{"kv_transfer_params":1,"a":2,"kv_transfer_params":{FORGED}}}',
    '"vllm_xargs":{"kv_cache_report_mode":1}',
    '"stream":"true"',
    '"stream":1',
    '"stream":true,"stream":false',
    '"model":7',
    '"model":"nope"',
    '"max_tokens":1e400',
    '"max_tokens":-1',
    '"max_tokens":NaN',
    '"n":2',
    '"echo":true',
    '"logprobs":5',
    '"tool_choice":"required"',
    '"cache_salt":"a"',
    '"stream_options":{"include_usage":true}',
    '"a":"\\ud800"',
    '"a":"\x01"',
    '"a":01',
    '"a":[1,]',
    '"":0',
    '"a":' + "[" * 50 + "]" * 50,
    '"a":' + "[" * 5000,
)


def _almost(rng: random.Random, number: int) -> _Made:
    """A right head and a body that is almost one."""
    members = [f'"prompt":"almost {number}"', '"max_tokens":2', *rng.sample(_BAD_MEMBERS, rng.randrange(1, 4))]
    rng.shuffle(members)
    body = ("{" + ",".join(members) + "}").encode()
    if rng.random() < 0.5:
        body = _mutated(rng, body)
    path = rng.choice(("/v1/completions", "/v1/chat/completions", "/v1/completions?x=1"))
    headers = {"X_Request_Id": rng.choice((f"fuzz-{number}", "a" * 129, "a b", "\x7f", "é"))}
    headers |= rng.choice(({}, {"X_Hpcserve_Route": "forged"}, {"X_Data_Parallel_Rank": "1"}, {"Cookie": "a=b"}))
    return _message(rng, body, path=path, **headers), (), False


def _smuggled(rng: random.Random, number: int) -> _Made:
    """One message by the words of RFC 9112, or none; a lenient reader would find a second one inside it."""
    inner = request("POST", "/v1/completions", {"model": "tiny", "max_tokens": 1, "prompt": f"{INNER} {number}"})
    return rng.choice(_SMUGGLERS)(inner), (), False


def _post(*lines: bytes, body: bytes) -> bytes:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer sk-job\r\n"
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)


def _length(data: bytes, name: bytes = b"Content-Length") -> bytes:
    return b"%b: %d" % (name, len(data))


_CHUNKED = b"Transfer-Encoding: chunked"
_ENDED = b"0\r\n\r\n"
_SMUGGLERS: tuple[Callable[[bytes], bytes], ...] = (
    lambda inner: _post(_length(_ENDED + inner), _CHUNKED, body=_ENDED + inner),
    lambda inner: _post(_CHUNKED, _length(_ENDED + inner), body=_ENDED + inner),
    lambda inner: _post(b"Content-Length: 2", _length(b"{}" + inner), body=b"{}" + inner),
    lambda inner: _post(_length(b"{}" + inner), b"Content-Length: 2", body=b"{}" + inner),
    lambda inner: _post(b"Content-Length: 2, 2", body=b"{}" + inner),
    lambda inner: _post(b"Content-Length: +2", body=b"{}" + inner),
    lambda inner: _post(b"Content-Length: 0x2", body=b"{}" + inner),
    lambda inner: _post(b"Content-Length: 2\x0b", body=b"{}" + inner),
    lambda inner: _post(b"Content-Length : 2", body=b"{}" + inner),
    lambda inner: _post(b"Transfer-Encoding : chunked", body=_ENDED + inner),
    lambda inner: _post(b"Transfer-Encoding: xchunked", body=_ENDED + inner),
    lambda inner: _post(b"Transfer-Encoding: chunked, identity", body=_ENDED + inner),
    lambda inner: _post(b"Transfer-Encoding: identity, chunked", body=_ENDED + inner),
    lambda inner: _post(b"Transfer-Encoding:\x0bchunked", body=_ENDED + inner),
    lambda inner: _post(b"Transfer-Encoding:", b" chunked", body=_ENDED + inner),
    lambda inner: _post(b"X: a\nTransfer-Encoding: chunked", body=_ENDED + inner),
    lambda inner: _post(b"X: a\rTransfer-Encoding: chunked", _length(inner), body=inner),
    lambda inner: _post(_CHUNKED, b"Transfer-Encoding: identity", body=_ENDED + inner),
    lambda inner: _post(b"Transfer_Encoding: chunked", _length(_ENDED + inner), body=_ENDED + inner),
    lambda inner: _post(_CHUNKED, body=b"0x0\r\n\r\n" + inner),
    lambda inner: _post(_CHUNKED, body=b"-0\r\n\r\n" + inner),
    lambda inner: _post(_CHUNKED, body=b"0\n\n" + inner),
    lambda inner: _post(_CHUNKED, body=b"1\r\n{0\r\n\r\n" + inner),
    lambda inner: _post(_CHUNKED, body=b"10000000000000000\r\n" + inner),
    lambda inner: _post(_CHUNKED, body=_chunk(inner)),
    lambda inner: _post(_CHUNKED, body=b"2;a=\n" + inner + b"\r\n{}\r\n" + _ENDED),
    lambda inner: _post(_length(inner), body=inner),
    lambda inner: _post(_length(inner), b"Expect: 100-continue", body=inner),
    lambda inner: _post(b"Connection: close", b"Content-Length: 2", body=b"{}" + inner),
    lambda inner: _post(b"Connection: x, CLOSE", b"Content-Length: 2", body=b"{}" + inner),
    lambda inner: b"GET /health HTTP/1.1\r\n" + _length(inner) + b"\r\n\r\n" + inner,
    lambda inner: b"GET /health HTTP/1.1\r\n" + _CHUNKED + b"\r\n\r\n" + _chunk(inner),
    lambda inner: b"DELETE /v1/completions HTTP/1.1\r\n" + _length(inner) + b"\r\n\r\n" + inner,
    lambda inner: b"GET /health HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + inner,
    lambda inner: b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n" + inner,
    lambda inner: b"POST /v1/completions HTTP/1.0\r\n" + _CHUNKED + b"\r\n\r\n" + _chunk(inner),
    lambda inner: b"POST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}" + inner,
    lambda inner: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + inner,
    lambda inner: b"GET /health\r\n" + inner,
    lambda inner: b"GET /health HTTP/1.1\r\nA: b\r\n\t" + inner,
)


def _nonsense(rng: random.Random, number: int) -> _Made:
    del number
    start = rng.choice(
        (b"", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", b"GET / ", b"POST ", b"\r\n" * 20, b"SSH-2.0-a\r\n")
    )
    return start + rng.randbytes(rng.randrange(1, 300)), (), False


def _huge(rng: random.Random, number: int) -> _Made:
    """More than is taken, or nearly so."""
    text = b'{"prompt":"' + b"x" * rng.randrange(1 << 20, 4 << 20) + b'","max_tokens":1}'
    made = rng.choice(
        (
            lambda: request("POST", "/v1/completions", text),
            lambda: request("POST", "/v1/completions", text, Authorization=""),
            lambda: _message(rng, b"[" * len(text)),
            lambda: request("GET", "/health", A="x" * rng.randrange(60_000, 70_000)),
            lambda: b"GET /" + b"x" * rng.randrange(60_000, 70_000) + b" HTTP/1.1\r\n\r\n",
            lambda: b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * rng.randrange(200, 20_000) + b"\r\n",
            lambda: _post(_CHUNKED, body=b"1;" + b"a" * rng.randrange(60_000, 70_000)),
            lambda: _post(_CHUNKED, body=b"1\r\n{\r\n" * rng.randrange(1000, 100_000)),
            lambda: _post(b"Content-Length: 67108865", body=text),
            lambda: _post(b"Content-Length: 999999999999999", body=text),
            lambda: request("GET", "/health") * rng.randrange(10, 3000),
        )
    )()
    del number
    return made, (), False


_KINDS: dict[str, tuple[float, Callable[[random.Random, int], _Made]]] = {
    "mangled": (48, _mangled),
    "almost": (22, _almost),
    "smuggled": (12, _smuggled),
    "pipelined": (8, _pipelined),
    "behind": (5, _behind),
    "nonsense": (4.5, _nonsense),
    "huge": (0.5, _huge),
}
