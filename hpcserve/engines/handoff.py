"""Request bodies by splice: a client's JSON object in, the bodies of the prefill and the decode leg out.

A body is parsed once, into the spans of its top-level values; legs are put together from those spans, so nothing that a
client sent is written anew, and keys inside other values are never touched. Keys and values are those of vLLM's OpenAI
server and its NixlConnector (vLLM 0.32, `kv_transfer_params`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

__all__ = [
    "Answer",
    "Body",
    "BodyError",
    "RequestFacts",
    "decode_body",
    "prefill_body",
    "read_answer",
    "read_body",
    "read_facts",
    "whole_body",
]

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TRANSFER = "kv_transfer_params"
_DROPPED_AT_PREFILL = frozenset({
    "max_tokens",
    "max_completion_tokens",  # vLLM lets it win over max_tokens
    "min_tokens",  # more than max_tokens is refused
    "stream",
    "stream_options",  # refused without stream
    _TRANSFER,
})  # fmt: skip
_PREFILL_TAIL = (
    b'"max_tokens":1,"stream":false,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,'
    b'"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}}'
)


class BodyError(ValueError):
    """A body that is refused; `param` is the key at fault, None where it is the text as a whole."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request body that is one JSON object: its bytes, and the span of each top-level value."""

    text: bytes
    fields: Mapping[str, msgspec.Raw]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What routing needs to know of a request. `whole`: why it cannot be split into two legs; empty where it can."""

    model: str | None
    stream: bool
    whole: str
    body_bytes: int


def read_body(text: bytes) -> Body:
    """The body as spans. Raises BodyError for everything but a JSON object in UTF-8 without a key said twice.

    Refused beyond what vLLM's own parser refuses: NaN and infinities, lone surrogates, a byte-order mark.
    """
    try:
        if not text.isascii():
            text.decode()
        fields = _FIELDS.decode(text)
    except UnicodeDecodeError as error:
        raise BodyError(f"The body is not UTF-8: byte {error.start}.") from None
    except msgspec.ValidationError:
        raise BodyError("The body is not a JSON object.") from None
    except msgspec.DecodeError as error:
        raise BodyError(f"The body is not JSON: {error}.") from None
    except RecursionError:
        raise BodyError("The body is nested too deeply.") from None
    _refuse_repeated_keys(text, fields)
    return Body(text=text, fields=fields)


def _refuse_repeated_keys(text: bytes, fields: Mapping[str, msgspec.Raw]) -> None:
    """Raise BodyError where a top-level key stands twice: engines differ on which of the two counts.

    The parser keeps the last of two. If keys, values, colons and commas make up the whole text, no member was dropped;
    if not, there is white space, an escape in a key or a dropped member, and a slower look says which.
    """
    compact = 1 + sum(len(key) + 4 + len(memoryview(value)) for key, value in fields.items()) + (not fields)
    if compact == len(text):
        return
    seen: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        seen[:] = [key for key, _ in pairs]  # the outermost object is closed last

    try:
        json.loads(text, object_pairs_hook=note, parse_int=str, parse_float=str)
    except RecursionError:
        raise BodyError("The body is nested too deeply.") from None
    if len(seen) != len(fields):
        repeated = next(key for key in seen if seen.count(key) > 1)
        raise BodyError(f"The key {repeated[:60]!r} stands twice in the body.", param=repeated[:60])


_FLAGS = {b"true": True, b"false": False, b"null": False}
_HARMLESS = (
    ("n", frozenset({b"", b"null", b"1"})),
    ("best_of", frozenset({b"", b"null", b"1"})),
    ("use_beam_search", frozenset({b"", b"null", b"false"})),
    ("echo", frozenset({b"", b"null", b"false"})),
    ("prompt_logprobs", frozenset({b"", b"null"})),
    ("prompt_embeds", frozenset({b"", b"null"})),
)
_MODEL = msgspec.json.Decoder(str | None)


def read_facts(body: Body, *, kind: Literal["chat", "completions"]) -> RequestFacts:
    """What routing needs to know; raises BodyError where `model` or `stream` is of the wrong type."""
    fields = body.fields
    stream = _FLAGS.get(_text(fields, "stream") or b"null")
    if stream is None:
        raise BodyError("stream is neither true nor false.", param="stream")
    try:
        model = _MODEL.decode(fields["model"]) if "model" in fields else None
    except msgspec.DecodeError:
        raise BodyError("model is not a string.", param="model") from None
    return RequestFacts(model=model, stream=stream, whole=_why_whole(fields, kind), body_bytes=len(body.text))


def _text(fields: Mapping[str, msgspec.Raw], key: str) -> bytes:
    raw = fields.get(key)
    return b"" if raw is None else bytes(raw)


def _why_whole(fields: Mapping[str, msgspec.Raw], kind: Literal["chat", "completions"]) -> str:
    """Why one prefill leg cannot stand for this request: several sequences, or a prompt that is also answered."""
    for key, harmless in _HARMLESS:
        if _text(fields, key) not in harmless:
            return key
    if kind == "chat":
        # A forced call is parsed as a whole; the one token of a prefill leg is none, and vLLM answers with an error.
        choice = _text(fields, "tool_choice")
        return "tool_choice" if choice[:1] == b"{" or choice == b'"required"' else ""
    prompt = _text(fields, "prompt")
    if prompt[:1] == b'"':
        return ""
    first = prompt[1:].lstrip()[:1]
    if prompt[:1] == b"[" and (first.isdigit() or first == b"-"):
        return ""  # one prompt as token ids
    return "prompt"


def prefill_body(body: Body) -> bytes:
    """The prefill leg: one token, not streamed, KV kept for a decode worker."""
    members = [
        b"".join((msgspec.json.encode(key), b":", memoryview(value), b","))
        for key, value in body.fields.items()
        if key not in _DROPPED_AT_PREFILL
    ]
    return b"{" + b"".join(members) + _PREFILL_TAIL


def decode_body(body: Body, transfer: bytes) -> bytes:
    """The decode leg: what the client sent, with the prefill's `kv_transfer_params` in place of any of its own."""
    text = whole_body(body)
    end = text.rindex(b"}")
    comma = b"," if body.fields.keys() - {_TRANSFER} else b""
    return b'%b%b"%b":%b}' % (text[:end], comma, _TRANSFER.encode(), transfer)


def whole_body(body: Body) -> bytes:
    """One leg for both phases: what the client sent, unchanged but for a `kv_transfer_params`, which is dropped."""
    if _TRANSFER not in body.fields:
        return body.text
    members = (
        b"".join((msgspec.json.encode(key), b":", memoryview(value)))
        for key, value in body.fields.items()
        if key != _TRANSFER
    )
    return b"{" + b",".join(members) + b"}"


class _Transfer(msgspec.Struct):
    """What a decode engine reads without checking; a malformed one ends its process (seen with vLLM 0.32)."""

    do_remote_prefill: bool
    remote_block_ids: list[list[int]]
    remote_engine_id: str
    remote_host: str
    remote_port: int


class _PrefillAnswer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


_ANSWER = msgspec.json.Decoder(_PrefillAnswer)
_TRANSFER_PARAMS = msgspec.json.Decoder(_Transfer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a prefill leg answered: the span to hand on, or why there is none."""

    transfer: bytes | None
    reason: str = ""


def read_answer(text: bytes) -> Answer:
    """The `kv_transfer_params` of a prefill answer, checked for what a decode engine takes on trust.

    There is none where the engine kept nothing: the first token ended the answer.
    """
    try:
        raw = _ANSWER.decode(text).kv_transfer_params
        if bytes(raw) == b"null":
            return Answer(transfer=None, reason="no_handoff")
        params = _TRANSFER_PARAMS.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return Answer(transfer=None, reason="bad_handoff")
    if not params.do_remote_prefill or not params.remote_block_ids or not all(params.remote_block_ids):
        return Answer(transfer=None, reason="no_handoff")
    return Answer(transfer=bytes(raw))
