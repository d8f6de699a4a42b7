"""The host and adapter that a node description names."""

import re

__all__ = ["host_and_device", "is_in_switch", "short_guid"]

_DEVICE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}[0-9]")
_LONGEST = 64
"""InfiniBand Architecture Specification, volume 1: NodeDescription has 64 bytes."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
# Words of descriptions that adapters carry before a host gives them its name, and of what sits in switches (SHARP).
_MAKERS = re.compile(
    r"Mellanox|Technologies|Infiniscale|ConnectX|Aggregation|Quantum|\(none\)|^MT[0-9]|^localhost\b", re.IGNORECASE
)


def host_and_device(description: str) -> tuple[str | None, str | None]:
    """Host and adapter of `node01 mlx5_0` or `node01 HCA-1`; None for what the description does not name.

    The Linux driver writes host name and device there; until then it names a product, as a switch's aggregation node
    does.
    """
    words = description.split()
    if not words or len(description) > _LONGEST or _MAKERS.search(description) or not _HOST.fullmatch(words[0]):
        return None, None
    if len(words) == 1:
        return words[0], None
    return (words[0], words[1]) if _DEVICE.fullmatch(words[1]) else (None, None)


def is_in_switch(description: str) -> bool:
    """Whether an adapter is the aggregation node (SHARP) that sits inside a switch and serves no host."""
    return "aggregation node" in description.lower()


def short_guid(text: str) -> str:
    """A GUID as 16 hexadecimal digits, whatever its leading zeros and whether `0x`, `S-` or `H-` stood before it."""
    return text.lower().removeprefix("0x").removeprefix("s-").removeprefix("h-").zfill(16)
