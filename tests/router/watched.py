"""A process that runs for long: its memory and its open files, looked at now and then."""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    at_s: float
    rss_kib: int
    files: int


class Watched:
    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self.looks: list[Look] = []

    def look(self) -> Look:
        lines = (self._folder / "status").read_text().splitlines()
        rss_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        files = sum(1 for _ in (self._folder / "fd").iterdir())
        found = Look(at_s=time.monotonic(), rss_kib=rss_kib, files=files)
        self.looks.append(found)
        return found

    def warm(self) -> list[Look]:
        """What was seen after the first fifth."""
        return self.looks[len(self.looks) // 5 :]

    def growth_kib(self) -> float:
        """How much more memory the last quarter of the warm looks had than the first, by their medians."""
        first, last = self._ends()
        return median(look.rss_kib for look in last) - median(look.rss_kib for look in first)

    def more_files(self) -> float:
        """The same for open files."""
        first, last = self._ends()
        return median(look.files for look in last) - median(look.files for look in first)

    def _ends(self) -> tuple[list[Look], list[Look]]:
        warm = self.warm()
        quarter = max(1, len(warm) // 4)
        return warm[:quarter], warm[-quarter:]
