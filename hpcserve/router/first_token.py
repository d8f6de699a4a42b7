"""When a decode leg has its first token, or has failed instead: read from the beginning of its event stream.

vLLM 0.32 answers 200 to a stream whose KV could not be loaded, and sends an error event; for chats an event with
nothing but the role comes before it. So events are looked at until one says more than a role.
"""

from enum import Enum

import msgspec

__all__ = ["FirstToken", "StreamStart"]


class FirstToken(Enum):
    """What the beginning of a stream says."""

    PENDING = "pending"
    CAME = "came"
    FAILED = "failed"


_NULL = msgspec.Raw(b"null")


class _Choice(msgspec.Struct):
    delta: dict[str, msgspec.Raw] | None = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    error: msgspec.Raw = _NULL
    object: str | None = None


_DECODER = msgspec.json.Decoder(_Event)
_EMPTY = frozenset({b'""', b"null", b"[]"})
_LONGEST_START_BYTES = 1 << 20


class StreamStart:
    """Takes the beginning of a stream piece by piece until it is `CAME` or `FAILED`."""

    __slots__ = ("_text",)

    def __init__(self) -> None:
        self._text = b""

    def feed(self, payload: bytes) -> FirstToken:
        """Look at what came. A stream that begins like no stream of events counts as come: it is passed on as it is."""
        self._text += payload
        while True:
            event, mark, rest = self._text.partition(b"\n\n")
            if not mark:
                return FirstToken.CAME if len(self._text) > _LONGEST_START_BYTES else FirstToken.PENDING
            self._text = rest
            verdict = self._judge(event)
            if verdict is not FirstToken.PENDING:
                return verdict

    def _judge(self, event: bytes) -> FirstToken:
        if not event.startswith(b"data:"):
            comment = event.startswith(b":")  # sent to keep a connection alive
            return FirstToken.PENDING if comment else FirstToken.CAME
        text = event[5:].strip()
        try:
            decoded = _DECODER.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return FirstToken.CAME
        choices = decoded.choices or ()
        if (
            decoded.object == "error"
            or any(choice.finish_reason == "error" for choice in choices)
            or bytes(decoded.error) != b"null"
        ):
            return FirstToken.FAILED
        only_roles = bool(choices) and all(_only_role(choice) for choice in choices)
        return FirstToken.PENDING if only_roles else FirstToken.CAME


def _only_role(choice: _Choice) -> bool:
    delta = choice.delta
    if delta is None or choice.finish_reason is not None or "role" not in delta:
        return False
    return all(key == "role" or bytes(value) in _EMPTY for key, value in delta.items())
