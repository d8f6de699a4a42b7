"""One worker's KV events into the index: tokens become our names of blocks, what cannot be named is counted."""

from dataclasses import dataclass
from typing import Any

from hpcserve.routing.block_hashes import Key, chained_keys, packed_tokens, root_key
from hpcserve.routing.kv_events import Cleared, EventBatch, Removed, Stored, UnreadableEventsError
from hpcserve.routing.kv_index import KvIndex, Tier

__all__ = ["Intake", "IntakeCounts"]

_WHOLE_PREFIX = frozenset({None, "full_attention", "mla_attention", "sink_full_attention"})
"""Kinds of layers that need every block of a prefix (vLLM 0.32, v1/kv_cache_interface.py, KVCacheSpecKind).

The others keep a window or a state only: what they hold says nothing of the blocks before.
"""

_TIERS: dict[str | None, Tier] = {None: "device", "GPU": "device", "CPU": "host"}
"""By an event's `medium`; whatever else there is, is a storage."""


@dataclass(slots=True, kw_only=True)
class IntakeCounts:
    """Blocks so far, by what became of them, and events that nothing became of."""

    stored: int = 0
    removed: int = 0
    orphans: int = 0
    """Their parent is not known, so their place in a prompt is not: what was stored before the first event seen."""
    passed_over: int = 0
    """Of a group of layers that is not followed."""
    unusable: int = 0
    """Tokens and blocks do not fit together, or the block size is another one than the index has."""
    unknown_events: int = 0
    """Of a type that this release does not know."""


class Intake:
    """Takes in the batches of one life of a worker, in order."""

    def __init__(self, index: KvIndex, worker: str) -> None:
        self.counts = IntakeCounts()
        self._index = index
        self._worker = worker
        self._group: int | None = None
        self._grouped = False

    def take(self, batch: EventBatch) -> None:
        """Apply a batch; raises UnreadableEventsError at an event whose values make no sense."""
        self.counts.unknown_events += batch.unknown
        try:
            for event in batch.events:
                if isinstance(event, Stored):
                    self._stored(event)
                elif isinstance(event, Removed):
                    self._removed(event)
                elif isinstance(event, Cleared):
                    self.forget()
        except (OverflowError, TypeError) as error:
            raise UnreadableEventsError(
                f"a KV event of {self._worker} makes no sense: {error}",
                remedy="check that the engine's version is known",
            ) from None

    def forget(self) -> None:
        """Nothing is known of this worker any more: it cleared its cache, or batches were lost for good."""
        self._index.clear(self._worker)

    def _stored(self, event: Stored) -> None:
        count = len(event.block_hashes)
        tier = _TIERS.get(event.medium, "storage")
        if not self._is_followed(event):
            self.counts.passed_over += count
            return
        if not event.token_ids:
            self._named_only(event, tier)
            return
        if not self._fits(event):
            self.counts.unusable += count
            return
        parent = self._parent(event)
        if parent is None:
            self.counts.orphans += count
            return
        keys = chained_keys(parent, packed_tokens(event.token_ids), event.block_size, _extras(event))
        self._index.store(self._worker, event.block_hashes, keys, tier)
        self.counts.stored += count

    def _is_followed(self, event: Stored) -> bool:
        """Whether it is of the group that is followed: the first one that needs whole prefixes."""
        if event.kv_cache_spec_kind not in _WHOLE_PREFIX:
            return False
        if not self._grouped:
            self._grouped, self._group = True, event.group_idx
        return event.group_idx == self._group

    def _fits(self, event: Stored) -> bool:
        count, size = len(event.block_hashes), event.block_size
        if size <= 0 or len(event.token_ids) != count * size:
            return False
        if event.extra_keys is not None and len(event.extra_keys) != count:
            return False
        if self._index.block_size is None:
            self._index.block_size = size
        return self._index.block_size == size

    def _parent(self, event: Stored) -> Key | None:
        if event.parent_block_hash is None:
            return root_key(lora=event.lora_name)
        return self._index.key_of(self._worker, event.parent_block_hash)

    def _named_only(self, event: Stored, tier: Tier) -> None:
        """Blocks that went to another tier, named without their tokens: known while any tier holds them."""
        known = [(block, self._index.key_of(self._worker, block)) for block in event.block_hashes]
        found = [(block, key) for block, key in known if key is not None]
        self._index.store(self._worker, [block for block, _ in found], [key for _, key in found], tier)
        self.counts.stored += len(found)
        self.counts.orphans += len(known) - len(found)

    def _removed(self, event: Removed) -> None:
        if event.group_idx is not None and event.group_idx != self._group:
            return
        self._index.remove(self._worker, event.block_hashes, _TIERS.get(event.medium, "storage"))
        self.counts.removed += len(event.block_hashes)


def _extras(event: Stored) -> list[tuple[object, ...] | None] | None:
    """What else than its tokens each block depends on, the LoRA adapter aside: that is in the root already."""
    if event.extra_keys is None or not any(event.extra_keys):
        return None
    return [None if one is None else _without_lora(one, event.lora_name) for one in event.extra_keys]


def _without_lora(extra: list[Any], lora: str | None) -> tuple[object, ...]:
    named_first = lora is not None and extra[:1] == [lora]
    return tuple(_frozen(one) for one in (extra[1:] if named_first else extra))


def _frozen(value: object) -> object:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value
