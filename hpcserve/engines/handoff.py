"""Request bodies by splice: a client's JSON object in, the bodies of the prefill and the decode leg out.

A body is parsed once, into the spans of its top-level values; legs are put together from those spans, so nothing that a
client sent is written anew, and keys inside other values are never touched. Keys and values are those of vLLM's OpenAI
server and its NixlConnector (vLLM 0.32, `kv_transfer_params`).
"""

import json
from collections import Counter
from collections.abc import Mapping
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
    "salted",
    "whole_body",
]

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TRANSFER = "kv_transfer_params"
_SALT = "cache_salt"
_XARGS = "vllm_xargs"
_REFUSED_XARGS = frozenset({_TRANSFER, "ec_transfer_params", "kv_cache_report_mode"})
"""What vLLM 0.32 copies from `vllm_xargs` into a request unchecked (vllm/v1/request.py). A malformed transfer ends its
engine; the report mode makes it tell of KV blocks anew that are held already."""
_TRANSFER_NAME = b'"kv_transfer_params":'
_DROPPED_AT_PREFILL = frozenset({
    "max_completion_tokens",  # vLLM lets it win over max_tokens
    "min_tokens",  # more than max_tokens is refused
    "stream_options",  # refused without stream
})  # fmt: skip
_NEVER_NULL = frozenset({
    "add_generation_prompt", "add_special_tokens", "bad_words", "continue_final_message", "echo", "ignore_eos",
    "include_reasoning", "include_stop_str_in_output", "length_penalty", "min_tokens", "n", "priority", "request_id",
    "skip_special_tokens", "spaces_between_special_tokens", "use_beam_search",
})  # fmt: skip
"""What vLLM 0.32 refuses as null though clients write null for what they leave out (chat_completion/protocol.py,
completion/protocol.py); all else has a meaning of its own as null there, or none."""
_AT_PREFILL = {
    "max_tokens": msgspec.Raw(b"1"),
    "stream": msgspec.Raw(b"false"),
    _TRANSFER: msgspec.Raw(
        b'{"do_remote_decode":true,"do_remote_prefill":false,'
        b'"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}'
    ),
}
"""What stands in a prefill leg, in place of what a client may have sent."""
_ENCODER = msgspec.json.Encoder()
"""Copies the values as they stand."""


class BodyError(ValueError):
    """A body that is refused; `param` is the key at fault, None where it is the text as a whole."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """A request body that is one JSON object: its bytes, and the span of each top-level value."""

    text: bytes
    fields: Mapping[str, msgspec.Raw]


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What routing needs to know of a request. `whole`: why it cannot be split into two legs; empty where it can."""

    model: str | None
    stream: bool
    whole: str
    body_bytes: int


def read_body(text: bytes) -> Body:
    """The body as spans. Raises BodyError for everything but a JSON object in UTF-8 without a key said twice.

    Null is left out where it is as good as absent (`_NEVER_NULL`).

    Refused beyond what vLLM's own parser refuses: NaN and infinities, lone surrogates, a byte-order mark, and what
    vLLM's server passes to its engine unchecked (`_REFUSED_XARGS`).
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
    if not _NEVER_NULL.isdisjoint(fields):
        kept = {key: raw for key, raw in fields.items() if key not in _NEVER_NULL or bytes(raw) != b"null"}
        if len(kept) < len(fields):
            text, fields = _ENCODER.encode(kept), kept
    if _XARGS in fields:
        _refuse_transfer_in_xargs(fields[_XARGS])
    return Body(text=text, fields=fields)


def _refuse_transfer_in_xargs(raw: msgspec.Raw) -> None:
    """Raise BodyError where `vllm_xargs` says what only the router may; what is no object is the engine's to refuse."""
    try:
        names = _FIELDS.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return
    refused = sorted(_REFUSED_XARGS.intersection(names))
    if refused:
        raise BodyError(f"{_XARGS} may not hold {refused[0]}: leave it out.", param=_XARGS)


def _refuse_repeated_keys(text: bytes, fields: Mapping[str, msgspec.Raw]) -> None:
    """Raise BodyError where a top-level key stands twice: engines differ on which of the two counts.

    The parser keeps the last of two. Nothing is shorter than the members that were kept, written anew: so if the text
    is no longer than that, none was dropped. If it is, there is white space, an escape in a key or a dropped member,
    and a slower look says which.
    """
    if len(_ENCODER.encode(fields)) == len(text):
        return
    seen: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        seen[:] = [key for key, _ in pairs]  # the outermost object is closed last

    try:
        json.loads(text, object_pairs_hook=note, parse_int=str, parse_float=str)
    except RecursionError:
        raise BodyError("The body is nested too deeply.") from None
    if len(seen) != len(fields):
        times = Counter(seen)
        repeated = next(key for key in seen if times[key] > 1)
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
_LOOKED_AT = frozenset({"tool_choice", *(key for key, _ in _HARMLESS)})
"""What can make a chat one that cannot be split; most requests have none of these."""
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
    if not _LOOKED_AT.isdisjoint(fields):
        for key, harmless in _HARMLESS:
            if _text(fields, key) not in harmless:
                return key
    elif kind == "chat":
        return ""
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
    fields = {**body.fields, **_AT_PREFILL}
    if not _DROPPED_AT_PREFILL.isdisjoint(fields):
        for key in _DROPPED_AT_PREFILL:
            fields.pop(key, None)
    return _ENCODER.encode(fields)


def decode_body(body: Body, transfer: bytes) -> bytes:
    """The decode leg: what the client sent, with the prefill's `kv_transfer_params` in place of any of its own."""
    text = whole_body(body)
    comma = b"," if len(body.fields) > (_TRANSFER in body.fields) else b""
    return b"".join((memoryview(text)[: text.rindex(b"}")], comma, _TRANSFER_NAME, transfer, b"}"))


def whole_body(body: Body) -> bytes:
    """One leg for both phases: what the client sent, unchanged but for a `kv_transfer_params`, which is dropped."""
    if _TRANSFER not in body.fields:
        return body.text
    return _ENCODER.encode({key: value for key, value in body.fields.items() if key != _TRANSFER})


def salted(body: Body, salt: str) -> Body:
    """The same request with this `cache_salt` in place of any of its own; `salt` is plain ASCII without quotes."""
    raw = msgspec.Raw(b'"%b"' % salt.encode("ascii"))
    fields = {**body.fields, _SALT: raw}
    if _SALT in body.fields:
        return Body(text=_ENCODER.encode(fields), fields=fields)
    text = body.text
    comma = b"," if body.fields else b""
    parts = (memoryview(text)[: text.rindex(b"}")], comma, b'"cache_salt":', memoryview(raw), b"}")
    return Body(text=b"".join(parts), fields=fields)


class _Transfer(msgspec.Struct):
    """What a decode engine reads without checking; a malformed one ends its process (seen with vLLM 0.32)."""

    do_remote_prefill: bool
    remote_block_ids: list[list[int]]
    remote_engine_id: str
    remote_host: str
    remote_port: int
    remote_num_tokens: int | None = None


class _PrefillAnswer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


_ANSWER = msgspec.json.Decoder(_PrefillAnswer)
_TRANSFER_PARAMS = msgspec.json.Decoder(_Transfer)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a prefill leg answered: the span to hand on, or why there is none."""

    transfer: bytes | None
    reason: str = ""
    tokens: int = 0
    """Of the prompt whose KV is handed on; 0 where the engine does not say."""


def read_answer(text: bytes) -> Answer:
    """The `kv_transfer_params` of a prefill answer, checked for what a decode engine takes on trust.

    There is none where the engine kept nothing; vLLM 0.32 keeps it also where the first token ended the answer.
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
    return Answer(transfer=bytes(raw), tokens=params.remote_num_tokens or 0)
