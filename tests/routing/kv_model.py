"""A model of what workers hold, as plain as can be, and an engine that tells of itself in KV events."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

BLOCK = 2
"""Tokens of a block."""

Content = tuple[object, ...]
"""What identifies a block: LoRA adapter, salt, all tokens up to its end."""


def contents(tokens: Sequence[int], *, lora: str | None = None, salt: str | None = None) -> list[Content]:
    """The full blocks of a prompt."""
    ends = range(BLOCK, len(tokens) + 1, BLOCK)
    return [(lora, salt, *tokens[:end]) for end in ends]


@dataclass
class Model:
    """Copies of blocks by worker and medium."""

    held: dict[str, dict[str, Counter[Content]]] = field(default_factory=dict)

    def of(self, worker: str, medium: str) -> Counter[Content]:
        return self.held.setdefault(worker, {}).setdefault(medium, Counter())

    def knows(self, worker: str, block: Content) -> bool:
        return any(block in counter for counter in self.held.get(worker, {}).values())

    def store(self, worker: str, medium: str, blocks: Iterable[Content]) -> None:
        self.of(worker, medium).update(blocks)

    def remove(self, worker: str, medium: str, block: Content) -> None:
        counter = self.of(worker, medium)
        if block in counter:
            counter[block] -= 1
            if not counter[block]:
                del counter[block]

    def clear(self, worker: str) -> None:
        self.held.pop(worker, None)

    def find(self, blocks: Sequence[Content], media: Sequence[str] = ("GPU", "CPU", "STORAGE")) -> dict[str, int]:
        found = {}
        for worker, by_medium in self.held.items():
            depth = 0
            while depth < len(blocks) and any(blocks[depth] in by_medium.get(medium, ()) for medium in media):
                depth += 1
            if depth:
                found[worker] = depth
        return found


_NAMES: dict[Content, int] = {}


def engine_name(block: Content) -> int:
    """The engine's own name of a block: anything, as long as it is the same each time."""
    return _NAMES.setdefault(block, (1 << 63) + 977 * len(_NAMES))


def stored(
    tokens: Sequence[int],
    start: int,
    end: int,
    *,
    medium: str = "GPU",
    lora: str | None = None,
    salt: str | None = None,
    **change: Any,
) -> dict[str, Any]:
    """A BlockStored event for blocks `start` to `end` of a prompt, as vLLM 0.32 sends it."""
    blocks = contents(tokens, lora=lora, salt=salt)
    extras = [
        [*([lora] if lora else []), *([salt] if salt and place == 0 else [])] or None for place in range(start, end)
    ]
    return {
        "type": "BlockStored",
        "block_hashes": [engine_name(block) for block in blocks[start:end]],
        "parent_block_hash": engine_name(blocks[start - 1]) if start else None,
        "token_ids": list(tokens[start * BLOCK : end * BLOCK]),
        "block_size": BLOCK,
        "lora_id": None,
        "medium": medium,
        "lora_name": lora,
        "extra_keys": extras,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
        **change,
    }


def removed(block: Content, *, medium: str = "GPU") -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": [engine_name(block)], "medium": medium, "group_idx": 0}


CLEARED = {"type": "AllBlocksCleared"}


def payload(*events: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), 0])
