"""What a simulated engine tells of its prefix cache: batches of vLLM 0.32's KV events (distributed/kv_events.py).

Events are gathered while a step goes on; `take` makes one batch of them, as vLLM makes one at the end of a step.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

__all__ = ["KvEvents"]

_MEDIUM = "GPU"
"""vLLM says so on its CPU platform as well."""
_GROUP = 0
_NAME_BYTES = 8
"""VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES, as it is by default: the low 64 bits of a block's key, as an int."""


class KvEvents:
    """The events since the last batch."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._events: list[dict[str, Any]] = []

    def stored(self, tokens: Sequence[int], keys: Sequence[bytes], *, first: int, count: int, salt: str) -> None:
        """`count` blocks of these tokens were put into the cache, from number `first` on; nothing where it is 0."""
        if not count:
            return
        salted = [salt] if salt and not first else None
        self._events.append({
            "type": "BlockStored",
            "block_hashes": [_name(key) for key in keys[first : first + count]],
            "parent_block_hash": _name(keys[first - 1]) if first else None,
            "token_ids": list(tokens[first * self._size : (first + count) * self._size]),
            "block_size": self._size,
            "lora_id": None,
            "medium": _MEDIUM,
            "lora_name": None,
            "extra_keys": [salted, *[None] * (count - 1)],
            "group_idx": _GROUP,
            "kv_cache_spec_kind": "full_attention",
        })  # fmt: skip

    def removed(self, key: bytes) -> None:
        """A cached block is another's now."""
        self._events.append({
            "type": "BlockRemoved", "block_hashes": [_name(key)], "medium": _MEDIUM, "group_idx": _GROUP,
        })  # fmt: skip

    def cleared(self) -> None:
        """Nothing is cached any more."""
        self._events.append({"type": "AllBlocksCleared"})

    def take(self, now_unix_s: float) -> bytes | None:
        """The batch of what happened since the last one, in MessagePack; None where nothing did."""
        if not self._events:
            return None
        events, self._events = self._events, []
        return msgspec.msgpack.encode([now_unix_s, events, 0])


def _name(key: bytes) -> int:
    return int.from_bytes(key[-_NAME_BYTES:], "big")
