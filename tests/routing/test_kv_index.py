"""The index says what a plain model says, whatever the workers do."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.routing.block_hashes import block_keys, packed_tokens
from hpcserve.routing.kv_events import read_batch
from hpcserve.routing.kv_index import KvIndex, Tier
from hpcserve.routing.kv_intake import Intake
from tests.routing.kv_model import BLOCK, CLEARED, Model, contents, engine_name, payload, removed, stored

WORKERS = ("prefill-0", "prefill-1", "decode-0")
PROMPTS = (
    (1, 2, 3, 4, 5, 6, 7, 8),
    (1, 2, 3, 4, 9, 9, 9, 9),
    (1, 2, 7, 7),
    (5, 5, 5, 5, 5, 5, 5),
)
VARIANTS: tuple[dict[str, str], ...] = ({}, {"salt": "tenant-a"}, {"lora": "chemist"}, {"lora": "chemist", "salt": "b"})
MEDIA: dict[str, Tier] = {"GPU": "device", "CPU": "host", "STORAGE": "storage"}


def held_by(index: KvIndex, worker: str, tier: Tier) -> int:
    """How many blocks this worker holds in a tier."""
    holder = index._holders.get(worker)
    return 0 if holder is None else len(holder.held[tier])


def keys_of(tokens: tuple[int, ...], **variant: str) -> list[int]:
    return block_keys(packed_tokens(tokens), BLOCK, lora=variant.get("lora"), salt=variant.get("salt"))


@st.composite
def steps(draw: st.DrawFn) -> tuple[Any, ...]:
    kind = draw(st.sampled_from(["store"] * 6 + ["remove"] * 4 + ["clear", "sweep"]))
    worker = draw(st.sampled_from(WORKERS))
    tokens = draw(st.sampled_from(PROMPTS))
    variant = draw(st.sampled_from(VARIANTS))
    medium = draw(st.sampled_from(list(MEDIA)))
    start = draw(st.integers(0, len(tokens) // BLOCK - 1))
    end = draw(st.integers(start + 1, len(tokens) // BLOCK))
    return kind, worker, tokens, variant, medium, start, end


def said(model: Model, step: tuple[Any, ...]) -> dict[str, Any]:
    """What the worker says of a step that the model takes as well."""
    kind, worker, tokens, variant, medium, start, end = step
    blocks = contents(tokens, **variant)
    if kind == "store":
        if start == 0 or model.knows(worker, blocks[start - 1]):
            model.store(worker, medium, blocks[start:end])
        return stored(tokens, start, end, medium=medium, **variant)
    if kind == "remove":
        model.remove(worker, medium, blocks[start])
        return removed(blocks[start], medium=medium)
    model.clear(worker)
    return CLEARED


@settings(max_examples=150, deadline=None)
@given(st.lists(steps(), max_size=40))
def test_the_index_equals_the_model(taken: list[tuple[Any, ...]]) -> None:
    index, model = KvIndex(), Model()
    intakes = {worker: Intake(index, worker) for worker in WORKERS}
    for step in taken:
        if step[0] == "sweep":
            index.sweep(step[-1])
        else:
            intakes[step[1]].take(read_batch(payload(said(model, step))))
        for asked in PROMPTS:
            for each in VARIANTS:
                assert index.find(keys_of(asked, **each)) == model.find(contents(asked, **each))
                on_device = model.find(contents(asked, **each), ["GPU"])
                assert index.find(keys_of(asked, **each), ["device"]) == on_device
    while index.sweep(1):
        pass
    assert index.blocks == sum(len(counter) for media in model.held.values() for counter in media.values())
    for worker in WORKERS:
        for medium, tier in MEDIA.items():
            assert held_by(index, worker, tier) == len(model.of(worker, medium))


@given(st.integers(1, 300), st.integers(0, 300), st.data())
def test_depths_are_right_for_long_prompts_and_many_workers(length: int, gap: int, data: st.DataObject) -> None:
    index = KvIndex()
    tokens = tuple(range(length * BLOCK))
    keys = keys_of(tokens)
    depths = data.draw(st.lists(st.integers(0, length), min_size=1, max_size=70))
    for number, depth in enumerate(depths):
        index.store(f"w{number}", [-key for key in keys[:depth]], keys[:depth])
    assert index.find(keys) == {f"w{number}": depth for number, depth in enumerate(depths) if depth}
    if gap < length:  # one block in the middle goes: nobody's prefix goes beyond it
        for number in range(len(depths)):
            index.remove(f"w{number}", [-keys[gap]])
        cut = {f"w{number}": min(depth, gap) for number, depth in enumerate(depths) if min(depth, gap)}
        assert index.find(keys) == cut


def test_a_salt_or_an_adapter_separates_from_the_first_block_on() -> None:
    tokens = PROMPTS[0]
    names = [keys_of(tokens, **variant)[0] for variant in VARIANTS]
    assert len(set(names)) == len(names)


def test_nothing_is_shared_by_prompts_that_part_before_a_blocks_end() -> None:
    here, there = keys_of((1, 2, 3, 4, 5, 6)), keys_of((1, 2, 3, 9, 5, 6))
    assert here[0] == there[0]
    assert set(here[1:]).isdisjoint(there[1:])


def test_a_block_that_is_there_twice_stays_until_both_copies_are_gone() -> None:
    """Two equal prompts that are computed at once leave two blocks of one name, and vLLM tells of each removal."""
    index = KvIndex()
    intake = Intake(index, "prefill-0")
    tokens = PROMPTS[0]
    intake.take(read_batch(payload(stored(tokens, 0, 2), stored(tokens, 0, 2))))
    gone = [removed(block) for block in contents(tokens)[:2]]
    intake.take(read_batch(payload(*gone)))
    assert index.find(keys_of(tokens)) == {"prefill-0": 2}
    intake.take(read_batch(payload(*gone)))
    assert index.find(keys_of(tokens)) == {}


def test_a_cleared_worker_is_gone_at_once_and_freed_in_slices() -> None:
    index = KvIndex()
    keys = keys_of(tuple(range(200)))
    index.store("prefill-0", list(range(100)), keys)
    index.store("prefill-1", list(range(100)), keys)
    index.clear("prefill-0")
    assert index.find(keys) == {"prefill-1": 100}
    assert index.blocks == 200
    assert index.sweep(60)
    assert index.blocks == 140
    index.store("prefill-0", [1], keys[:1])  # its next life, while the last one is still being freed
    assert index.find(keys) == {"prefill-0": 1, "prefill-1": 100}
    assert not index.sweep(60)
    assert index.blocks == 101
    assert index.find(keys) == {"prefill-0": 1, "prefill-1": 100}


def test_a_full_index_takes_no_more_and_says_how_many_it_refused() -> None:
    index = KvIndex(most_blocks=10)
    keys = keys_of(tuple(range(40)))
    index.store("prefill-0", list(range(8)), keys[:8])
    index.store("prefill-0", list(range(8, 20)), keys[8:20])
    assert (index.blocks, index.refused_blocks) == (8, 12)
    assert index.find(keys) == {"prefill-0": 8}
    index.remove("prefill-0", [7])
    index.store("prefill-0", [7, 8, 9], keys[7:10])
    assert index.find(keys) == {"prefill-0": 10}


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({"kv_cache_spec_kind": "sliding_window"}, "passed_over"),
        ({"group_idx": 1}, "passed_over"),
        ({"block_size": 4}, "unusable"),
        ({"block_size": 0}, "unusable"),
        ({"token_ids": [1, 2, 3]}, "unusable"),
        ({"extra_keys": [None]}, "unusable"),
        ({"parent_block_hash": 5}, "orphans"),
    ],
)
def test_what_cannot_be_placed_is_counted_and_not_stored(change: dict[str, Any], count: str) -> None:
    index = KvIndex()
    intake = Intake(index, "prefill-0")
    intake.take(read_batch(payload(stored((8, 8), 0, 1))))
    intake.take(read_batch(payload(stored(PROMPTS[0], 0, 2, **change))))
    assert getattr(intake.counts, count) == 2
    assert index.find(keys_of(PROMPTS[0])) == {}


def test_an_offloaded_block_is_known_by_its_name_alone() -> None:
    """vLLM's offloading connector sends names without tokens unless it is told to describe them."""
    index = KvIndex()
    intake = Intake(index, "prefill-0")
    tokens = PROMPTS[0]
    blocks = contents(tokens)
    intake.take(read_batch(payload(stored(tokens, 0, 2))))
    named: dict[str, Any] = {
        "token_ids": [],
        "block_size": 0,
        "parent_block_hash": None,
        "extra_keys": None,
        "kv_cache_spec_kind": None,
    }
    intake.take(read_batch(payload(stored(tokens, 1, 2, medium="CPU", **named))))
    intake.take(read_batch(payload(removed(blocks[1]), removed(blocks[0]))))
    intake.take(read_batch(payload(stored(tokens, 2, 3, medium="CPU", **named))))  # never seen with its tokens
    assert index.find(keys_of(tokens)) == {}
    assert held_by(index, "prefill-0", "host") == 1
    assert intake.counts.orphans == 1
    intake.take(read_batch(payload(stored(tokens, 0, 1))))
    assert index.find(keys_of(tokens)) == {"prefill-0": 2}
    assert index.find(keys_of(tokens), ["device"]) == {"prefill-0": 1}


def test_a_repointed_name_of_a_group_that_is_not_followed_removes_nothing() -> None:
    index = KvIndex()
    intake = Intake(index, "prefill-0")
    tokens = PROMPTS[0]
    intake.take(read_batch(payload(stored(tokens, 0, 1))))
    other_group = {"type": "BlockRemoved", "block_hashes": [engine_name(contents(tokens)[0])], "group_idx": 3}
    intake.take(read_batch(payload(other_group)))
    assert index.find(keys_of(tokens)) == {"prefill-0": 1}
