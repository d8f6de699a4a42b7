"""What an engine says of its KV cache: batches of vLLM's KV events, decoded from msgpack.

Format: vLLM 0.32, distributed/kv_events.py. A batch is an array [time, events, data-parallel rank]; an event is a map
with its `type`. Engines before that sent events as arrays, the type first, fields in the same order: read as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hpcserve.errors import ServiceError

__all__ = [
    "MOST_BATCH_BYTES",
    "BlockHash",
    "Cleared",
    "Event",
    "EventBatch",
    "Removed",
    "Stored",
    "UnreadableEventsError",
    "read_batch",
]

BlockHash = int | bytes
"""An engine's own name of a block: 64 bits, or the whole digest where it is told so."""

MOST_BATCH_BYTES = 64 << 20
"""Longest batch that is looked at: 64 MiB hold the events of some ten million tokens, no engine step makes more."""


class UnreadableEventsError(ServiceError):
    """A batch that is no batch of KV events."""


class Stored(msgspec.Struct, frozen=True, gc=False, tag="BlockStored", kw_only=True):
    """Blocks that became cached, one after another behind `parent_block_hash`; their tokens all together."""

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None = None
    token_ids: list[int]
    block_size: int
    medium: str | None = None
    """`GPU` (on a CPU too), `CPU`, `STORAGE`."""
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    """For each block: LoRA name, (multimodal id, offset) pairs, cache salt, digest of embeddings; those there are."""
    group_idx: int | None = None
    """Group of layers that share one block table; hybrid models have several."""
    kv_cache_spec_kind: str | None = None


class Removed(msgspec.Struct, frozen=True, gc=False, tag="BlockRemoved", kw_only=True):
    """Blocks that are cached no more."""

    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | None = None


class Cleared(msgspec.Struct, frozen=True, gc=False, tag="AllBlocksCleared"):
    """Nothing is cached any more."""


Event = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """The events of one engine step, in order."""

    events: Sequence[Event]
    rank: int
    """Data-parallel rank."""
    sent_unix_s: float = 0.0
    """The engine's clock when the batch was made."""
    unknown: int = 0
    """Events of a type that this release does not know; they are passed over."""


class _Batch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[Event]
    data_parallel_rank: int | None = None


class _AnyBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


_decode = msgspec.msgpack.Decoder(_Batch).decode
_decode_any = msgspec.msgpack.Decoder(_AnyBatch).decode

_UNREADABLE = (msgspec.MsgspecError, RecursionError, ValueError, OverflowError, TypeError)

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "BlockStored": (
        *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
        *("extra_keys", "group_idx", "kv_cache_spec_kind"),
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}
"""Names of an event's fields in the order of the array form."""


def read_batch(payload: bytes) -> EventBatch:
    """The batch; raises UnreadableEventsError for whatever is none."""
    if len(payload) > MOST_BATCH_BYTES:
        raise UnreadableEventsError(
            f"a batch of KV events has {len(payload)} bytes",
            remedy=f"at most {MOST_BATCH_BYTES} were wanted: check that the address is an engine's event publisher",
        )
    try:
        batch = _decode(payload)
    except _UNREADABLE:
        return _read_event_by_event(payload)
    return EventBatch(events=batch.events, rank=batch.data_parallel_rank or 0, sent_unix_s=batch.ts)


def _read_event_by_event(payload: bytes) -> EventBatch:
    """The slow way: for arrays, and for types that are not known."""
    try:
        batch = _decode_any(payload)
        found: list[Event] = []
        unknown = 0
        for one in batch.events:
            kind, fields = _named(one)
            if kind in _FIELDS:
                found.append(msgspec.convert({"type": kind, **fields}, Event))
            else:
                unknown += 1
    except _UNREADABLE as error:
        raise UnreadableEventsError(
            f"a batch of KV events cannot be read: {str(error)[:200]}",
            remedy="check that the engine's version is known and that the address is its event publisher",
        ) from None
    return EventBatch(events=found, rank=batch.data_parallel_rank or 0, sent_unix_s=batch.ts, unknown=unknown)


def _named(event: object) -> tuple[str, dict[str, Any]]:
    """Type and fields of an event in either form; raises ValueError where it has none."""
    if isinstance(event, dict) and isinstance(event.get("type"), str):
        return event["type"], {name: value for name, value in event.items() if isinstance(name, str)}
    if isinstance(event, list) and event and isinstance(event[0], str):
        return event[0], dict(zip(_FIELDS.get(event[0], ()), event[1:], strict=False))
    raise ValueError("an event is neither a map with a `type` nor an array that begins with one")
