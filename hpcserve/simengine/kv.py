"""What stands in a simulated KV cache, and the tokens that follow from it.

The KV of 16 tokens is a digest of them and of all tokens before them, as real KV depends on the whole prefix. The
output is a function of every digest of the prompt: KV of another prompt, of a later one in the same blocks, or in
another order gives other tokens; the right KV gives the same tokens on every engine, whatever its block size.
"""

from collections.abc import Sequence
from hashlib import blake2b

from hpcserve.simengine.tokens import EOS, VOCABULARY

__all__ = ["CHUNK", "extend", "next_state", "start_state", "token_at"]

CHUNK = 16
"""Tokens per digest; block sizes are multiples of it."""

_EOS_EVERY = 64
"""One output token in so many ends the answer, where the request lets it."""

_DIGEST_BYTES = 8


def extend(before: bytes, tokens: Sequence[int]) -> tuple[bytes, ...]:
    """Digests of `tokens`, 16 a digest, that follow a prefix whose last digest is `before` (empty at the start)."""
    digests: list[bytes] = []
    for start in range(0, len(tokens), CHUNK):
        chunk = tokens[start : start + CHUNK]
        content = b"".join(token.to_bytes(4, "big") for token in chunk)
        before = blake2b(before + content, digest_size=_DIGEST_BYTES).digest()
        digests.append(before)
    return tuple(digests)


def start_state(model: str, digests: Sequence[bytes], sample: int) -> bytes:
    """The state from which the first output token follows; `sample` tells the answers of one request apart."""
    return blake2b(b"".join(digests) + sample.to_bytes(4, "big"), digest_size=16, key=model.encode()[:64]).digest()


def token_at(state: bytes, *, may_end: bool) -> int:
    """The output token of a state."""
    number = int.from_bytes(state[:8], "big")
    if may_end and number % _EOS_EVERY == 0:
        return EOS
    return 3 + number // _EOS_EVERY % (VOCABULARY - 3)


def next_state(state: bytes, token: int) -> bytes:
    """The state after `token` was put out."""
    return blake2b(state + token.to_bytes(4, "big"), digest_size=16).digest()
