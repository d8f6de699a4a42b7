"""Which worker holds which blocks, in which tier, and how long a prefix of a prompt each of them has.

One table for each tier maps a block's name to a bit mask of workers: a query for all workers at once is one walk along
the prompt's names. Beside it each worker has the engine's own names, for removals. Speed: `benchmarks/kv_index.py`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, repeat
from operator import and_
from typing import Literal

from hpcserve.routing.block_hashes import NAME_BITS, Key
from hpcserve.routing.kv_events import BlockHash
from hpcserve.routing.kv_masks import end_of_run, last_there, masks_of, united

__all__ = ["KvIndex", "Tier"]

Tier = Literal["device", "host", "storage"]
TIERS: tuple[Tier, ...] = ("device", "host", "storage")

_MOST_BLOCKS = 1_000_000
"""16 million tokens in blocks of 16; the index then takes about 160 MB (`benchmarks/kv_index.py`)."""
_AT_ONCE = 1024
_RUNS = 3
_MOST_NAMED_MASKS = 4096


class _Holder:
    """What one life of a worker holds."""

    __slots__ = ("bit", "copies", "held", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.bit = 1 << place
        self.held: dict[Tier, dict[int, Key]] = {tier: {} for tier in TIERS}
        self.copies: dict[Tier, Counter[int]] = {tier: Counter() for tier in TIERS}
        """Further copies of a block: two prompts that were computed at the same time leave two, removed one by one."""


class KvIndex:
    """The blocks of all workers. Not safe for threads: one loop owns it."""

    def __init__(self, *, most_blocks: int = _MOST_BLOCKS) -> None:
        """`most_blocks`: stored (worker, block) entries; beyond it blocks are not taken in, and counted as refused."""
        self.block_size: int | None = None
        """Tokens of a block, as the first event said it; the same for all workers."""
        self.refused_blocks = 0
        """Blocks that were not taken in for want of room."""
        self._most = most_blocks
        self._tables: dict[Tier, dict[Key, int]] = {tier: {} for tier in TIERS}
        self._holders: dict[str, _Holder] = {}
        self._leaving: list[_Holder] = []
        self._names: list[str] = []
        self._free: list[int] = []
        self._alive = 0
        self._blocks = 0
        self._named: dict[int, tuple[str, ...]] = {}

    @property
    def blocks(self) -> int:
        """Entries (worker, tier, block), those of dropped workers that are not swept yet among them."""
        return self._blocks

    def knows(self, worker: str) -> bool:
        """Whether this worker has stored anything since it was last cleared."""
        return worker in self._holders

    def key_of(self, worker: str, block: BlockHash) -> Key | None:
        """Our name of a block that this worker holds in any tier; None where it holds none of that name."""
        holder = self._holders.get(worker)
        if holder is None:
            return None
        (name,) = _short((block,))
        for tier in TIERS:
            key = holder.held[tier].get(name)
            if key is not None:
                return key
        return None

    # Changes.

    def store(self, worker: str, hashes: Sequence[BlockHash], keys: Sequence[Key], tier: Tier = "device") -> None:
        """This worker holds these blocks now: the engine's names, and ours in the same order."""
        holder = self._holders.get(worker) or self._admit(worker)
        held, table = holder.held[tier], self._tables[tier]
        if self._blocks + len(hashes) > self._most:
            self.refused_blocks += len(hashes)
            return
        bit, blocks = holder.bit, len(table)
        were = list(map(table.setdefault, keys, repeat(bit)))
        names: Sequence[int] = _short(hashes)
        if len(table) - blocks < len(were):  # somebody holds some of them already, perhaps this very worker
            self._share(table, keys, were, bit)
            if not held.keys().isdisjoint(names):
                names, keys = _new_ones(holder, tier, names, keys)
        before = len(held)
        held.update(zip(names, keys, strict=True))
        self._blocks += len(held) - before
        if len(held) - before < len(names):  # one stood twice
            holder.copies[tier].update(Counter(names) - Counter(set(names)))

    @staticmethod
    def _share(table: dict[Key, int], keys: Sequence[Key], were: Sequence[int], bit: int) -> None:
        """Add a worker to the blocks that others hold. A run of blocks has mostly the same holders: one int for all."""
        start = 0
        while start < len(were):
            mask = were[start]
            end = end_of_run(were, start)
            if were[start:end].count(mask) < end - start:
                break
            if not mask & bit:
                table.update(zip(keys[start:end], repeat(mask | bit)))
            start = end
        for key, mask in zip(keys[start:], were[start:], strict=True):
            table[key] = mask | bit

    def remove(self, worker: str, hashes: Iterable[BlockHash], tier: Tier = "device") -> None:
        """This worker holds these blocks no more; names that it does not hold are passed over."""
        holder = self._holders.get(worker)
        if holder is None:
            return
        held, copies = holder.held[tier], holder.copies[tier]
        gone = []
        for block in _short(hashes):
            if copies and block in copies:
                copies[block] -= 1
                if not copies[block]:
                    del copies[block]
                continue
            key = held.pop(block, None)
            if key is not None:
                gone.append(key)
        self._forget(holder, tier, gone)

    def clear(self, worker: str) -> None:
        """This worker holds nothing any more, seen at once; its memory is freed by `sweep`."""
        holder = self._holders.pop(worker, None)
        if holder is None:
            return
        self._alive &= ~holder.bit
        self._leaving.append(holder)

    def sweep(self, most_blocks: int = 1000) -> bool:
        """Free at most so many entries of workers that were cleared; whether some are left for another time."""
        while self._leaving and most_blocks > 0:
            holder = self._leaving[-1]
            for tier in TIERS:
                held = holder.held[tier]
                take = min(most_blocks, len(held))
                self._forget(holder, tier, [held.popitem()[1] for _ in range(take)])
                most_blocks -= take
            if not any(holder.held.values()):
                self._leaving.pop()
                self._names[holder.place] = ""
                self._free.append(holder.place)
        return bool(self._leaving)

    # Questions.

    def find(self, keys: Sequence[Key], tiers: Sequence[Tier] = TIERS) -> dict[str, int]:
        """How many of the prompt's first blocks each worker holds without a gap, in these tiers taken together.

        Workers that do not hold the first block are left out.
        """
        used = [self._tables[tier] for tier in tiers if self._tables[tier]]
        found: dict[str, int] = {}
        if not keys or not used:
            return found
        look = used[0].get if len(used) == 1 else united(used)
        left = (look(keys[0], None) or 0) & self._alive
        depth, last = 0, last_there(look, keys) if left else 0
        while left and depth < last:
            piece = keys[depth : min(depth + _AT_ONCE, last)] if depth or last > _AT_ONCE or last < len(keys) else keys
            left, depth = self._walk(masks_of(used[0], look, piece), left, depth, found)
        if left:
            self._note(left, depth, found)
        return found

    def _walk(self, masks: Sequence[int | None], left: int, depth: int, found: dict[str, int]) -> tuple[int, int]:
        """Who is left after these blocks, and how deep; who left on the way is noted with the depth reached."""
        start = 0
        for _ in range(_RUNS):  # most prompts have few holders: counting a run is quicker than looking at each block
            mask = masks[start]
            end = end_of_run(masks, start)
            if mask is None or masks[start:end].count(mask) < end - start:
                break
            if left & ~mask:
                self._note(left & ~mask, depth + start, found)
                left &= mask
            if end == len(masks) or not left:
                return left, depth + end
            start = end
        depth += start
        for mask, run in groupby(masks[start:]):
            now = left & (mask or 0)
            if now != left:
                self._note(left & ~now, depth, found)
                left = now
                if not left:
                    break
            depth += len(list(run))
        return left, depth

    def _note(self, mask: int, depth: int, found: dict[str, int]) -> None:
        if mask and depth:
            found.update(dict.fromkeys(self._named.get(mask) or self._name(mask), depth))

    def _name(self, mask: int) -> tuple[str, ...]:
        """The workers of a mask; kept, as the same ones come again."""
        if len(self._named) >= _MOST_NAMED_MASKS:
            self._named.clear()
        names, rest = [], mask
        while rest:
            lowest = rest & -rest
            names.append(self._names[lowest.bit_length() - 1])
            rest ^= lowest
        self._named[mask] = tuple(names)
        return self._named[mask]

    # Places.

    def _admit(self, worker: str) -> _Holder:
        if self._free:
            place = self._free.pop()
            self._names[place] = worker
        else:
            place = len(self._names)
            self._names.append(worker)
        self._named.clear()
        holder = self._holders[worker] = _Holder(place)
        self._alive |= holder.bit
        return holder

    def _forget(self, holder: _Holder, tier: Tier, keys: Iterable[Key]) -> None:
        table, bit = self._tables[tier], holder.bit
        for key in keys:
            self._blocks -= 1
            mask = table.get(key, 0) & ~bit
            if mask:
                table[key] = mask
            else:
                table.pop(key, None)


def _short(hashes: Iterable[BlockHash]) -> list[int]:
    """The engine's names cut to 60 bits: such an int takes 32 bytes, one of 64 bits takes 48."""
    try:
        return list(map(and_, hashes, repeat(NAME_BITS)))
    except TypeError:  # whole digests
        return [(block if isinstance(block, int) else int.from_bytes(block[-8:])) & NAME_BITS for block in hashes]


def _new_ones(
    holder: _Holder, tier: Tier, names: Sequence[int], keys: Sequence[Key]
) -> tuple[Sequence[int], Sequence[Key]]:
    """The blocks that were not held; each of the others is one more copy."""
    held, copies = holder.held[tier], holder.copies[tier]
    first = next((place for place, name in enumerate(names) if name not in held), len(names))
    copies.update(names[:first])
    names, keys = names[first:], keys[first:]
    if held.keys().isdisjoint(names):  # mostly a prompt's beginning is what was known
        return names, keys
    copies.update(name for name in names if name in held)
    pairs = [(name, key) for name, key in zip(names, keys, strict=True) if name not in held]
    return [name for name, _ in pairs], [key for _, key in pairs]
