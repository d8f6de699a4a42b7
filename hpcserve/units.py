"""The only unit conversions of the project.

Rates are one-way and decimal: 1 GB/s = 1e9 bytes/s. Nothing here knows MiB; parsers of tools that print MiB convert.
"""

import re

__all__ = [
    "BITS_PER_BYTE",
    "duration_s",
    "gb_per_s_from_gbit_per_s",
    "gb_per_s_from_mbit_per_s",
    "gbit_per_s",
    "ms_text",
    "transfer_ms",
]

BITS_PER_BYTE = 8
_BYTES_PER_GB = 1e9
_MS_PER_S = 1e3
_DURATION = re.compile(r"(?:(\d+)-)?(\d{1,2}):(\d{2}):(\d{2})", re.ASCII)


def gb_per_s_from_gbit_per_s(gbit_per_s: float) -> float:
    """GB/s of a link that carries `gbit_per_s` Gbit/s."""
    return gbit_per_s / BITS_PER_BYTE


def gb_per_s_from_mbit_per_s(mbit_per_s: float) -> float:
    """GB/s of a link that carries `mbit_per_s` Mbit/s."""
    return mbit_per_s / BITS_PER_BYTE / 1e3


def gbit_per_s(gb_per_s: float) -> float:
    """Gbit/s of a path that carries `gb_per_s` GB/s."""
    return gb_per_s * BITS_PER_BYTE


def duration_s(text: str) -> int:
    """Seconds of a Slurm time limit, `[days-]hours:minutes:seconds`; raises ValueError for any other text."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time of the form [days-]hours:minutes:seconds")
    days, hours, minutes, seconds = (int(number or 0) for number in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def ms_text(milliseconds: float) -> str:
    """Milliseconds as people read them: `98.7`, and below 1 two digits that mean something, `0.031`."""
    return f"{milliseconds:.1f}" if milliseconds >= 1 or milliseconds == 0 else f"{milliseconds:.2g}"


def transfer_ms(*, size_bytes: float, gb_per_s: float) -> float:
    """Milliseconds that `size_bytes` take at `gb_per_s` GB/s; raises ValueError where the rate is not positive."""
    if gb_per_s <= 0:
        raise ValueError(f"a rate of {gb_per_s} GB/s moves nothing")
    return size_bytes / (gb_per_s * _BYTES_PER_GB) * _MS_PER_S
