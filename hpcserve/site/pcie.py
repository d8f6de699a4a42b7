"""What a PCIe slot carries one way: its lanes' rate, less what the encoding takes, and nothing else taken off.

All from the PCI Express Base Specification: GT/s of a lane by generation; 8b/10b up to 5 GT/s; 128b/130b from 8 GT/s on
(3.0); and with 64 GT/s (6.0) flits of 256 bytes, of which 8 are the check and 6 the error correction.
"""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["GT_PER_S", "slot_gbit_per_s"]

GT_PER_S: Mapping[int, float] = MappingProxyType({3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0})
"""Of one lane by generation, from the third on: what carries KV today is no older."""

_SHARES = ((64.0, 242 / 256), (8.0, 128 / 130), (0.0, 8 / 10))
"""From which GT/s on which share of the bits is data, fastest first."""


def slot_gbit_per_s(*, gt_per_s: float, lanes: int) -> float:
    """One-way Gbit/s of a slot whose `lanes` run at `gt_per_s` each, above 0."""
    return gt_per_s * lanes * next(share for first, share in _SHARES if gt_per_s >= first)
