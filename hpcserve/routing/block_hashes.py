"""Names for blocks of tokens: each is a hash of the block's tokens and of the name of the block before it.

Two prompts share a name exactly where they share all tokens up to the end of that block, the LoRA adapter and the cache
salt: vLLM's own identity of a block (v1/core/kv_cache_utils.py, hash_block_tokens). Names live in one process and are
never written or sent: an engine's events carry the tokens, so its hashes need not be made again.
"""

from array import array
from collections.abc import Iterable, Sequence

__all__ = ["NAME_BITS", "TOKEN_BYTES", "Key", "block_keys", "chained_keys", "packed_tokens", "root_key"]

Key = int
"""The name of a block: 60 bits of the hash of a tuple, in which bytes count by Python's keyed hash (SipHash).

Such an int takes 32 bytes, one bit more takes 48. Among 10 million blocks two share a name with a chance of 4 in
100,000; the harm is one wrong guess of what is cached.
"""

NAME_BITS = (1 << 60) - 1
"""What is kept of a hash."""

TOKEN_BYTES = array("I").itemsize
"""Bytes of one packed token."""


def packed_tokens(token_ids: Iterable[int]) -> bytes:
    """The token ids as bytes, `TOKEN_BYTES` each; raises OverflowError or TypeError where one is no token id."""
    return array("I", token_ids).tobytes()


def root_key(*, lora: str | None = None) -> Key:
    """What stands before the first block: the LoRA adapter's name, as its KV is another one."""
    return hash(("hpcserve", lora)) & NAME_BITS


def block_keys(tokens: bytes, block_size: int, *, lora: str | None = None, salt: str | None = None) -> list[Key]:
    """Names of the full blocks of a prompt of packed tokens; what remains at its end has none, as in the engine.

    `block_size` in tokens; `salt`: the request's `cache_salt`, which separates tenants from the first block on.
    """
    parent = root_key(lora=lora)
    first = parent if salt is None else _with_extra(parent, (salt,))
    return _chain(first, tokens, block_size * TOKEN_BYTES)


def chained_keys(
    parent: Key, tokens: bytes, block_size: int, extras: Sequence[tuple[object, ...] | None] | None = None
) -> list[Key]:
    """Names of the blocks that follow `parent`; `extras`: of each block what else its KV depends on, None for nothing.

    Raises TypeError where an extra cannot be hashed.
    """
    block_bytes = block_size * TOKEN_BYTES
    if extras is None or not any(extras):
        return _chain(parent, tokens, block_bytes)
    keys = []
    for index, extra in enumerate(extras):
        before = _with_extra(parent, extra) if extra else parent
        parent = hash((before, tokens[index * block_bytes : (index + 1) * block_bytes])) & NAME_BITS
        keys.append(parent)
    return keys


def _with_extra(parent: Key, extra: tuple[object, ...]) -> Key:
    return hash((parent, extra)) & NAME_BITS


def _chain(parent: Key, tokens: bytes, block_bytes: int) -> list[Key]:
    keys = []
    for start in range(0, len(tokens) - block_bytes + 1, block_bytes):
        parent = hash((parent, tokens[start : start + block_bytes])) & NAME_BITS
        keys.append(parent)
    return keys
