"""What an InfiniBand link of some width and speed carries, one way."""

import re
from dataclasses import dataclass

__all__ = ["LinkRate", "speed_of_signal"]

# Gbit/s of one lane: as signalled, and what is left for data. InfiniBand Architecture Specification, volume 2: SDR to
# QDR send 10 bits for 8, FDR10 to EDR 66 for 64. From HDR on, IBTA's roadmap counts 50, 100 and 200 Gbit/s of data per
# lane, its signalling rate being 17/16 of that (256b/257b and RS(544,514)).
_SIGNAL_AND_DATA = {
    "SDR": (2.5, 2.0),
    "DDR": (5.0, 4.0),
    "QDR": (10.0, 8.0),
    "FDR10": (10.3125, 10.0),
    "FDR": (14.0625, 14.0625 * 64 / 66),
    "EDR": (25.78125, 25.0),
    "HDR": (53.125, 50.0),
    "NDR": (106.25, 100.0),
    "XDR": (212.5, 200.0),
}
_NAMED = re.compile(r"(\d{1,2})\s{0,4}[xX]\s{0,4}([A-Z]{3}(?:10)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRate:
    """Width in lanes and the name of the speed, `SDR` to `XDR`."""

    width: int
    speed: str

    @classmethod
    def named(cls, text: str) -> "LinkRate | None":
        """The rate that `4xHDR` or `4X HDR` names; None for any other text, `4x???` too."""
        match = _NAMED.fullmatch(text.strip())
        if match is None or match[2] not in _SIGNAL_AND_DATA or match[1] == "0":
            return None
        return cls(width=int(match[1]), speed=match[2])

    @property
    def data_gbit_per_s(self) -> float:
        """Gbit/s of data, one way: what a data sheet calls the rate (200 for 4xHDR)."""
        return self.width * _SIGNAL_AND_DATA[self.speed][1]

    @property
    def signal_gbit_per_s(self) -> float:
        """Gbit/s on the wire, one way, encoding and error correction included (212.5 for 4xHDR)."""
        return self.width * _SIGNAL_AND_DATA[self.speed][0]

    def __str__(self) -> str:
        return f"{self.width}x{self.speed}"


def speed_of_signal(gbit_per_s: float) -> str | None:
    """The speed whose lanes signal at `gbit_per_s`, as `iblinkinfo` prints it; None where none does.

    10.0 is QDR (FDR10 is printed by name); HDR and faster are also printed by their data rate.
    """
    for speed, (signal, data) in _SIGNAL_AND_DATA.items():
        beyond_edr = data >= _SIGNAL_AND_DATA["HDR"][1]
        if gbit_per_s == signal or (beyond_edr and gbit_per_s == data):
            return speed
    return None
