from hypothesis import given
from hypothesis import strategies as st

from hpcserve.simengine.pool import Block, BlockPool, prefix_keys

TOKENS = st.lists(st.integers(0, 9), max_size=40)


@given(tokens=TOKENS, other=TOKENS, salt=st.sampled_from(["", "a"]))
def test_keys_are_equal_exactly_as_far_as_prefixes_are(tokens: list[int], other: list[int], salt: str) -> None:
    mine, theirs = prefix_keys(tokens, 4, ""), prefix_keys(other, 4, salt)
    for count in range(1, min(len(mine), len(theirs)) + 1):
        same = salt == "" and tokens[: count * 4] == other[: count * 4]
        assert (mine[:count] == theirs[:count]) == same


@given(steps=st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=60))
def test_no_block_is_lost_or_used_twice(steps: list[tuple[int, bool]]) -> None:
    pool = BlockPool(10, caching=True)
    held: list[list[Block]] = []
    for number, (count, give_back) in enumerate(steps):
        if give_back and held:
            pool.release(held.pop(number % len(held)))
            continue
        taken = pool.take(count)
        if taken is None:
            assert pool.free < count
        else:
            held.append(taken)
        numbers = [block.number for blocks in held for block in blocks]
        assert len(set(numbers)) == len(numbers)
        assert 0 not in numbers
        assert pool.free + len(numbers) == pool.size


def test_released_blocks_are_found_until_someone_fills_them() -> None:
    pool = BlockPool(3, caching=True)
    keys = prefix_keys(list(range(8)), 4, "")
    blocks = pool.take(2)
    assert blocks is not None
    for block, key in zip(blocks, keys, strict=True):
        block.digests = (key,)
        pool.remember(block, key)
    pool.release(blocks)
    assert pool.find(keys) == blocks
    pool.release(blocks)
    others = pool.take(2)  # the third block and the tail of the prefix: what was released first
    assert others is not None
    assert [block.number for block in others] == [3, 2]
    assert pool.find(keys) == blocks[:1]


def test_blocks_stay_readable_after_release_and_show_what_came_later() -> None:
    pool = BlockPool(1, caching=False)
    blocks = pool.take(1)
    assert blocks is not None
    blocks[0].digests = (b"first",)
    pool.release(blocks)
    assert pool.read([1]) == [(b"first",)]
    again = pool.take(1)
    assert again is not None
    assert pool.read([1]) == [(b"first",)]
    again[0].digests = (b"second",)
    assert pool.read([1]) == [(b"second",)]


def test_unknown_blocks_are_not_read() -> None:
    pool = BlockPool(2, caching=True)
    assert pool.read([3]) is None
    assert pool.read([-1]) is None


def test_two_blocks_of_one_key_are_found_until_both_are_gone() -> None:
    """Prompts that are computed at once leave two, as in vLLM; each that goes is told of."""
    gone: list[bytes] = []
    pool = BlockPool(2, caching=True, forgot=gone.append)
    (key,) = prefix_keys([1, 2, 3, 4], 4, "")
    for _ in range(2):
        (block,) = pool.take(1) or []
        pool.remember(block, key)
    pool.release([pool._blocks[1]])
    pool.release([pool._blocks[2]])
    (first,) = pool.take(1) or []
    assert (first.number, gone) == (1, [key])
    assert [block.number for block in pool.find([key])] == [2]
    pool.release([pool._blocks[2]])
    (second,) = pool.take(1) or []
    assert (second.number, gone) == (2, [key, key])
    assert pool.find([key]) == []


def test_a_cache_is_cleared_only_while_nobody_uses_it() -> None:
    pool = BlockPool(2, caching=True)
    keys = prefix_keys([1, 2, 3, 4], 4, "")
    blocks = pool.take(1) or []
    pool.remember(blocks[0], keys[0])
    assert not pool.clear()
    pool.release(blocks)
    assert pool.clear()
    assert pool.find(keys) == []
    taken = pool.take(2) or []
    assert len(taken) == 2
