"""Who holds the blocks of a prompt, as bit masks along it: asked for in as few steps of Python as can be."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import cast

from hpcserve.routing.block_hashes import Key

__all__ = ["end_of_run", "last_there", "masks_of", "united"]


def united(tables: Sequence[dict[Key, int]]) -> Callable[..., int | None]:
    """One question to several tables."""

    def look(key: Key, default: None = None) -> int | None:
        mask = 0
        for table in tables:
            mask |= table.get(key, 0)
        return mask or default

    return look


def masks_of(table: dict[Key, int], look: Callable[..., int | None], keys: Sequence[Key]) -> Sequence[int | None]:
    """Who holds each of the keys; `look` asks `table` alone, or several."""
    if len(keys) > 1 and look == table.get:
        try:  # nearly always all of them are there, and this is the quickest way to ask
            return cast("tuple[int, ...]", itemgetter(*keys)(table))
        except KeyError:
            return list(map(look, keys))
    return list(map(look, keys))


def end_of_run(masks: Sequence[int | None], start: int) -> int:
    """Where the run of equal masks that begins at `start` ends, if each run is of other masks than all before it."""
    mask, there, end = masks[start], start, len(masks)
    if masks[-1] == mask:
        return end
    while end - there > 1:
        middle = (there + end) >> 1
        if masks[middle] == mask:
            there = middle
        else:
            end = middle
    return end


def last_there(look: Callable[..., int | None], keys: Sequence[Key]) -> int:
    """A number of keys beyond which no prefix reaches: where one key is missing, nobody has the prompt that far."""
    if look(keys[-1], None) is not None:
        return len(keys)
    there, missing = 0, len(keys) - 1  # the first one is there
    while missing - there > 1:
        middle = (there + missing) >> 1
        if look(keys[middle], None) is None:
            missing = middle
        else:
            there = middle
    return missing
