"""The pool of KV blocks: reference counts, prefix cache, reuse in the order of release, like vLLM's block pool."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

__all__ = ["Block", "BlockPool", "prefix_keys"]


@dataclass(slots=True)
class Block:
    """One block. What it holds stays readable after its release, until someone else fills it."""

    number: int
    users: int = 0
    key: bytes | None = None
    """Its key in the prefix cache, once it is full."""
    digests: tuple[bytes, ...] = ()


def prefix_keys(tokens: Sequence[int], block_size: int, salt: str) -> list[bytes]:
    """Keys of the full blocks of a prompt: each stands for its tokens, all before them, and the cache salt."""
    keys: list[bytes] = []
    before = salt.encode("utf-8", "surrogatepass")
    for start in range(0, len(tokens) - block_size + 1, block_size):
        content = b"".join(token.to_bytes(4, "big") for token in tokens[start : start + block_size])
        before = blake2b(before + content, digest_size=16).digest()
        keys.append(before)
    return keys


class BlockPool:
    """`blocks` blocks, numbered from 1: 0 is nobody's, as in vLLM."""

    def __init__(self, blocks: int, *, caching: bool) -> None:
        self._blocks = [Block(number) for number in range(blocks + 1)]
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, blocks + 1))
        self._cached: dict[bytes, int] = {}
        self._caching = caching

    @property
    def size(self) -> int:
        """Number of blocks."""
        return len(self._blocks) - 1

    @property
    def free(self) -> int:
        """Number of blocks that nobody uses."""
        return len(self._free)

    def find(self, keys: Sequence[bytes]) -> list[Block]:
        """The cached blocks of the longest known prefix, taken into use."""
        found: list[Block] = []
        for key in keys if self._caching else ():
            number = self._cached.get(key)
            if number is None:
                break
            block = self._blocks[number]
            if block.users == 0:
                del self._free[number]
            block.users += 1
            found.append(block)
        return found

    def take(self, count: int) -> list[Block] | None:
        """`count` blocks, those longest released first; None where there are too few. They keep their old content."""
        if count > len(self._free):
            return None
        taken: list[Block] = []
        for _ in range(count):
            number, _nothing = self._free.popitem(last=False)
            block = self._blocks[number]
            block.users = 1
            if block.key is not None:
                if self._cached.get(block.key) == number:
                    del self._cached[block.key]
                block.key = None
            taken.append(block)
        return taken

    def remember(self, block: Block, key: bytes) -> None:
        """Put a full block into the prefix cache; the first block of a key stays the one that is found."""
        if self._caching and block.key is None:
            block.key = key
            self._cached.setdefault(key, block.number)

    def release(self, blocks: Iterable[Block]) -> None:
        """Give blocks back: the last first, so that a prefix outlives what follows it."""
        for block in reversed(list(blocks)):
            block.users -= 1
            if block.users == 0:
                self._free[block.number] = None

    def read(self, numbers: Sequence[int]) -> list[tuple[bytes, ...]] | None:
        """What stands in these blocks now, whoever filled them; None where a number is no block's."""
        if any(not 0 <= number < len(self._blocks) for number in numbers):
            return None
        return [self._blocks[number].digests for number in numbers]
