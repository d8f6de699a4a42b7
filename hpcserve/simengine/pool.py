"""The pool of KV blocks: reference counts, prefix cache, reuse in the order of release, like vLLM's block pool."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

__all__ = ["Block", "BlockPool", "next_key", "prefix_keys"]


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
    for start in range(0, len(tokens) - block_size + 1, block_size):
        keys.append(next_key(keys, tokens[start : start + block_size], salt))
    return keys


def next_key(keys: Sequence[bytes], tokens: Sequence[int], salt: str) -> bytes:
    """The key of the full block of these tokens that follows the blocks of `keys`."""
    before = keys[-1] if keys else salt.encode("utf-8", "surrogatepass")
    content = b"".join(token.to_bytes(4, "big") for token in tokens)
    return blake2b(before + content, digest_size=16).digest()


class BlockPool:
    """`blocks` blocks, numbered from 1: 0 is nobody's, as in vLLM."""

    def __init__(self, blocks: int, *, caching: bool, forgot: Callable[[bytes], None] | None = None) -> None:
        """`forgot` is called with the key of each cached block that is taken for something else."""
        self._blocks = [Block(number) for number in range(blocks + 1)]
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, blocks + 1))
        self._cached: dict[bytes, dict[int, None]] = {}
        """By key, the blocks that hold it, first come first: two that compute the same at once leave two."""
        self._caching = caching
        self._forgot = forgot

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
            numbers = self._cached.get(key)
            if numbers is None:
                break
            number = next(iter(numbers))
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
                self._forget(block, block.key)
            taken.append(block)
        return taken

    def remember(self, block: Block, key: bytes) -> None:
        """Put a full block into the prefix cache; the first block of a key stays the one that is found."""
        if self._caching and block.key is None:
            block.key = key
            self._cached.setdefault(key, {})[block.number] = None

    def _forget(self, block: Block, key: bytes) -> None:
        block.key = None
        numbers = self._cached[key]
        del numbers[block.number]
        if not numbers:
            del self._cached[key]
        if self._forgot is not None:
            self._forgot(key)

    def clear(self) -> bool:
        """Empty the prefix cache; False, and nothing is changed, while blocks are in use."""
        if self.free < self.size:
            return False
        for block in self._blocks:
            block.key = None
        self._cached.clear()
        return True

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
