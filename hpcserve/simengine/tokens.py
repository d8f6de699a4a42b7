"""Text and token ids of the simulated model: no vocabulary file, the same ids for the same text in every process."""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

__all__ = ["EOS", "VOCABULARY", "MadeUpTokens", "Tokens", "encode", "encode_chat", "text_of"]

VOCABULARY = 49152
"""As many ids as SmolLM2 has, so that prompts of ids made for the one fit the other."""

EOS = 2

# A word that the model itself wrote is one token again; other text is cut into pieces of about a token's usual length.
_PIECE = re.compile(r" t[0-9a-f]{4}(?![0-9a-f])|\s?[^\s]{1,4}|\s")
_OWN_WORD = re.compile(r" t([0-9a-f]{4})")


class Tokens(Protocol):
    """How prompts become token ids; `special`: with special tokens at its ends, where there are such."""

    @property
    def vocabulary(self) -> int:
        """Ids from this one on are refused in a prompt."""
        ...

    def of_text(self, text: str, *, special: bool) -> list[int]:
        """Of a text."""
        ...

    def of_chat(self, data: Mapping[str, Any], messages: Sequence[tuple[str, str]], /, *, special: bool) -> list[int]:
        """Of a chat's body, and of its messages as (role, content)."""
        ...


class MadeUpTokens:
    """By the rule below."""

    vocabulary = VOCABULARY

    def of_text(self, text: str, *, special: bool) -> list[int]:  # noqa: ARG002 - it has no such tokens
        """See `Tokens`."""
        return encode(text)

    def of_chat(
        self,
        _data: Mapping[str, Any],
        messages: Sequence[tuple[str, str]],
        /,
        *,
        special: bool,  # noqa: ARG002 - it has no such tokens
    ) -> list[int]:
        """See `Tokens`."""
        return encode_chat(messages)


def text_of(token: int) -> str:
    """The text of one output token; the end-of-sequence token has none."""
    return "" if token == EOS else f" t{token:04x}"


def encode(text: str) -> list[int]:
    """Token ids of a text."""
    return [_token(piece) for piece in _PIECE.findall(text)]


def encode_chat(messages: Iterable[tuple[str, str]]) -> list[int]:
    """Token ids of a conversation of (role, content), ending where the assistant is to speak."""
    ids: list[int] = []
    for role, content in messages:
        ids += [1, *encode(role), *encode(content), EOS]
    return [*ids, 1, *encode("assistant")]


def joined(tokens: Sequence[int]) -> str:
    """The text of several tokens."""
    return "".join(text_of(token) for token in tokens)


def _token(piece: str) -> int:
    own = _OWN_WORD.fullmatch(piece)
    if own and int(own[1], 16) < VOCABULARY:
        return int(own[1], 16)
    digest = blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return 3 + int.from_bytes(digest, "big") % (VOCABULARY - 3)
