"""Limits of Slurm's job arrays."""

import re

__all__ = ["array_sizes", "parse_max_array_size"]

_MAX_ARRAY_SIZE = re.compile(r"^MaxArraySize\s*=\s*(\d+)\s*$", re.MULTILINE)


def parse_max_array_size(config_text: str) -> int | None:
    """MaxArraySize in the text of `scontrol show config`; None where it is not said."""
    match = _MAX_ARRAY_SIZE.search(config_text)
    return int(match[1]) if match else None


def array_sizes(count: int, *, max_array_size: int) -> tuple[int, ...]:
    """How many tasks each array of `count` tasks in all may hold, every array with indexes from 0.

    MaxArraySize is one more than the largest index (slurm.conf(5)): 1001 allows 0-1000, so 1001 tasks. Raises
    ValueError where no array is allowed (0 turns them off) or the count is negative.
    """
    if count < 0:
        raise ValueError(f"{count} tasks")
    if max_array_size < 1:
        raise ValueError("MaxArraySize is 0: this cluster allows no job arrays")
    full, rest = divmod(count, max_array_size)
    return (max_array_size,) * full + ((rest,) if rest else ())
