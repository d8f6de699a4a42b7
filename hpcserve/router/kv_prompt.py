"""One request's prompt, as far as it is needed to ask who holds its KV."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from hpcserve.routing import Key

__all__ = ["CHANGES_THE_PROMPT", "Kind", "Known", "Prompt", "is_long", "salt_of", "text_of"]

Kind = Literal["chat", "completions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a prompt's tokens."""

    tokens: bytes
    """Packed ids from the prompt's beginning to the first piece that is not known; all of them if there is none."""
    unknown: tuple[str, ...] = ()
    """Pieces that are to be tokenized."""


class Prompt(msgspec.Struct, kw_only=True):
    """Names of its blocks, by text and, as far as they are known, by tokens."""

    text_bytes: int
    names: list[int] = []  # msgspec makes a new one each time, and of those below
    """Of its blocks of text; none where all workers tell of its tokens."""
    keys: list[Key] = []
    """Of its leading full blocks of tokens."""
    tokens: int | None = None
    """Its length; None where not all of it is tokenized."""
    predicted: dict[str, int] = {}
    """Tokens that the index said each worker holds: what its counters must show."""


_PROMPT = {"chat": "messages", "completions": "prompt"}
CHANGES_THE_PROMPT = (
    *("tools", "chat_template_kwargs", "chat_template", "reasoning_effort", "documents", "add_special_tokens"),
    *("add_generation_prompt", "continue_final_message", "truncate_prompt_tokens", "mm_processor_kwargs"),
)
"""Keys by which a request makes another prompt of the same messages."""
_CHANGES = frozenset(CHANGES_THE_PROMPT)
_NULL = b"null"
_RENDERED = ("messages", "prompt", "tools", "chat_template_kwargs")
_LONG_BYTES = 128 << 10
_LONG_MESSAGES = 500
"""Up to these a prompt takes the loop 1 to 3 ms: 4 us a KiB and 5 us a message, 20 us a KiB where a text is nothing but
special tokens (measured on one core with a template of ChatML whose pieces are all known)."""


def text_of(kind: Kind, fields: Mapping[str, msgspec.Raw]) -> tuple[bytes, object]:
    """(what is remembered as the prompt's text: the client's own JSON, what else must be equal).

    Nothing is decoded: a client that goes on with a conversation sends its beginning in the same bytes.
    """
    raw = fields.get(_PROMPT[kind], _NULL)
    changes: tuple[bytes, ...] = ()
    if not _CHANGES.isdisjoint(fields):
        changes = tuple(bytes(fields[name]) for name in CHANGES_THE_PROMPT if name in fields)
    salt = fields.get("cache_salt")
    return bytes(raw), (kind, None if salt is None else bytes(salt), changes)


def salt_of(fields: Mapping[str, msgspec.Raw]) -> str | None:
    """The request's cache salt; None where it has none, or none that an engine takes."""
    raw = fields.get("cache_salt")
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=str | None) or None
    except msgspec.DecodeError:
        return None


def is_long(kind: Kind, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether it would take the loop too long to render this prompt."""
    if sum(len(memoryview(fields[name])) for name in _RENDERED if name in fields) > _LONG_BYTES:
        return True
    messages = bytes(fields.get("messages", _NULL)) if kind == "chat" else _NULL
    if messages.count(b"{") <= _LONG_MESSAGES:
        return False
    try:
        return len(msgspec.json.decode(messages, type=list[msgspec.Raw])) > _LONG_MESSAGES
    except msgspec.DecodeError:  # whoever reads them says so
        return False
