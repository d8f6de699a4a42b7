"""Whatever comes over the wire is a batch, or is refused by our own error."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.routing.kv_events import Cleared, Removed, Stored, UnreadableEventsError, read_batch
from hpcserve.routing.kv_index import KvIndex
from hpcserve.routing.kv_intake import Intake
from tests.routing.kv_model import CLEARED, payload, stored

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(list(stored((1, 2, 3, 4), 0, 2)))
GOOD = payload(stored((1, 2, 3, 4), 0, 2), CLEARED)


def take(data: bytes) -> None:
    """Read it and apply it; only our own error may come of it."""
    try:
        batch = read_batch(data)
    except UnreadableEventsError:
        return
    try:
        Intake(KvIndex(), "prefill-0").take(batch)
    except UnreadableEventsError:
        return


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    take(data)


@given(ANYTHING)
def test_any_value(value: Any) -> None:
    take(msgspec.msgpack.encode(value))
    take(msgspec.msgpack.encode([0.0, [value], 0]))


@given(FIELDS, ANYTHING)
def test_any_value_in_any_field_of_an_event(name: str, value: Any) -> None:
    take(payload({**stored((1, 2, 3, 4), 0, 2), name: value}))


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=6), st.integers(0, len(GOOD)))
def test_a_good_batch_with_bytes_changed_or_its_end_missing(changes: list[tuple[int, int]], end: int) -> None:
    data = bytearray(GOOD)
    for place, value in changes:
        data[place] = value
    take(bytes(data[:end]))


def test_a_value_nested_beyond_measure_is_refused() -> None:
    with pytest.raises(UnreadableEventsError):
        read_batch(b"\x91" * 100_000 + b"\xc0")


def test_both_forms_of_events_say_the_same() -> None:
    hashes, tokens = [1 << 63, b"a whole digest of 32 bytes......"], [1, 2, 3, 4]
    now = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": 7, "token_ids": tokens, "block_size": 2,
           "lora_id": None, "medium": "GPU"}  # fmt: skip
    as_maps = [now, {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"}, CLEARED]
    as_arrays = [
        ["BlockStored", hashes, 7, tokens, 2, None, "GPU"],
        ["BlockRemoved", hashes, "GPU"],
        ["AllBlocksCleared"],
    ]
    batches = [read_batch(msgspec.msgpack.encode([1.0, events, 0])) for events in (as_maps, as_arrays)]
    assert batches[0] == batches[1]
    first, second, third = batches[0].events
    assert isinstance(first, Stored)
    assert first.token_ids == tokens
    assert first.block_hashes == hashes
    assert isinstance(second, Removed)
    assert isinstance(third, Cleared)


def test_an_event_of_a_later_engine_is_passed_over_and_counted() -> None:
    batch = read_batch(payload({"type": "BlockMoved", "from": 1}, CLEARED))
    assert batch.events == [Cleared()]
    assert batch.unknown == 1


def test_fields_that_a_later_engine_adds_do_no_harm() -> None:
    event = {**stored((1, 2), 0, 1), "session_id": "s", "locality": "LOCAL", "news": {"a": 1}}
    assert read_batch(payload(event)).unknown == 0
