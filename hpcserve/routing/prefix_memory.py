"""Where prefixes went lately: a guess of what is cached, for when no engine tells and no tokenizer is there.

A prompt is cut into blocks of text; a block's name is a hash of it and of all before it. What was routed is remembered
for the TTL at least and one and a half of it at most: of three generations of tables the oldest is dropped every half
TTL, so that nothing is done per entry.
"""

from collections.abc import Hashable, Sequence
from math import inf

from hpcserve.routing.block_hashes import NAME_BITS

__all__ = ["PrefixMemory"]

_TTL_S = 120.0
"""Longer than a user takes to answer in most conversations, shorter than a busy engine keeps a block."""
_SMALL_BYTES = 512
_LARGE_BYTES = 2048
_SMALL_BLOCKS = 8
"""A short prompt is cut finely; beyond 4 KiB in blocks of 2 KiB, which cost a quarter of the time."""
_MOST_BYTES = 256 << 10
"""What stands behind 256 KiB of text does not change where a prompt goes."""
_MOST_ENTRIES = 43_000
"""Of each generation: some 1,900 different prompts of 32 KiB; three of them take about 8 MB."""
_MOST_MASKS = 1024


class PrefixMemory:
    """Remembers routes by text. Not safe for threads: one loop owns it."""

    def __init__(self, *, ttl_s: float = _TTL_S, most_entries: int = _MOST_ENTRIES) -> None:
        """`most_entries`: block names in one generation; a full one makes room by the oldest being dropped early."""
        self._half_s = ttl_s / 2
        self._most = most_entries
        self._tables: list[dict[int, int]] = [{}, {}, {}]
        """Youngest first: block name to a bit mask of workers."""
        self._turns_at_s = -inf
        """When the oldest table is dropped next."""
        self._places: dict[str, int] = {}
        self._names: list[str] = []
        self._workers_of: dict[int, tuple[str, ...]] = {}
        """Who stands in a mask, of those that were asked for since a worker came or left."""
        self._free: list[int] = []
        self._turns = 0
        self._gone: list[tuple[int, int]] = []
        """(turn, place) of workers that left: the place is free once every table of that time was dropped."""

    def __len__(self) -> int:
        """Entries of all generations."""
        return sum(len(table) for table in self._tables)

    def names(self, text: bytes, root: Hashable = None) -> list[int]:
        """Names of the text's whole blocks; `root`: what else must be equal (model, adapter, salt, tools)."""
        name = hash(("text", root))
        names = []
        small_end = min(len(text), _SMALL_BYTES * _SMALL_BLOCKS)
        for start in range(0, small_end - _SMALL_BYTES + 1, _SMALL_BYTES):
            name = hash((name, text[start : start + _SMALL_BYTES])) & NAME_BITS
            names.append(name)
        end = min(len(text), _MOST_BYTES)
        for start in range(_SMALL_BYTES * _SMALL_BLOCKS, end - _LARGE_BYTES + 1, _LARGE_BYTES):
            name = hash((name, text[start : start + _LARGE_BYTES])) & NAME_BITS
            names.append(name)
        return names

    def remember(self, names: Sequence[int], worker: str, *, now_s: float) -> None:
        """A prompt of these blocks went to this worker now."""
        if now_s >= self._turns_at_s:
            self._turn(now_s)
        place = self._places.get(worker)
        bit = 1 << (self._new_place(worker) if place is None else place)
        young = self._tables[0]
        if len(young) + len(names) > self._most:
            self._drop_oldest()
            young = self._tables[0]
        for name in reversed(names[: self._most]):
            mask = young.get(name, 0)
            if mask & bit:
                break  # whoever was sent this block was sent all before it, and they stand in the same table
            young[name] = mask | bit

    def find(self, names: Sequence[int], *, now_s: float) -> dict[str, int]:
        """Bytes of the prompt's beginning that each worker has been sent within the TTL; others are left out."""
        if now_s >= self._turns_at_s:
            self._turn(now_s)
        found: dict[str, int] = {}
        left = self._mask(names[0]) if names else 0
        depth, count = 0, len(names)
        while left:
            # Whoever was sent a block was sent all before it: so the first that some lack is found by halving.
            end = count
            if self._mask(names[-1]) & left != left:
                low, end = depth, count - 1
                while end - low > 1:
                    between = (low + end) // 2
                    if self._mask(names[between]) & left == left:
                        low = between
                    else:
                        end = between
            now = left & self._mask(names[end]) if end < count else 0
            large = max(0, end - _SMALL_BLOCKS)
            size = (end - large) * _SMALL_BYTES + large * _LARGE_BYTES
            for worker in self._workers(left & ~now):
                found[worker] = size
            depth, left = end, now
        return found

    def _mask(self, name: int) -> int:
        """Workers that were sent this block."""
        young, middle, old = self._tables
        return young.get(name, 0) | middle.get(name, 0) | old.get(name, 0)

    def forget(self, worker: str) -> None:
        """This worker has lost what it had: it was started anew, or is gone."""
        place = self._places.pop(worker, None)
        if place is not None:
            self._names[place] = ""
            self._workers_of.clear()
            self._gone.append((self._turns, place))

    def _workers(self, mask: int) -> tuple[str, ...]:
        found = self._workers_of.get(mask)
        if found is None:
            if len(self._workers_of) >= _MOST_MASKS:
                self._workers_of.clear()
            names, rest = [], mask
            while rest:  # as many steps as it has workers, however many others there are
                lowest = rest & -rest
                names.append(self._names[lowest.bit_length() - 1])
                rest ^= lowest
            found = self._workers_of[mask] = tuple(filter(None, names))
        return found

    def _turn(self, now_s: float) -> None:
        for _ in self._tables:
            self._drop_oldest()
            self._turns_at_s += self._half_s
            if now_s < self._turns_at_s:
                return
        self._turns_at_s = now_s + self._half_s  # nobody asked for long: all of it is too old

    def _drop_oldest(self) -> None:
        self._tables = [{}, *self._tables[:-1]]
        self._turns += 1
        while self._gone and self._turns - self._gone[0][0] >= len(self._tables):
            self._free.append(self._gone.pop(0)[1])

    def _new_place(self, worker: str) -> int:
        self._workers_of.clear()
        if self._free:
            place = self._free.pop()
            self._names[place] = worker
        else:
            place = len(self._names)
            self._names.append(worker)
        self._places[worker] = place
        return place
