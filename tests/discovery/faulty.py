"""A file system in which chosen calls fail with chosen errors, and that remembers what it was asked."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hpcserve.discovery import DISK, Found

Rule = Callable[[str, Path], int | None]


@dataclass
class Faulty:
    rules: list[Rule] = field(default_factory=list)
    asked: list[tuple[str, Path]] = field(default_factory=list)
    owner: Callable[[Path, Found], Found] = lambda _, found: found

    def fail(self, operation: str, name: str, error: int, *, times: int = 10**9) -> None:
        """Make `operation` on files whose name holds `name` fail `times` times."""
        left = [times]

        def rule(asked: str, path: Path) -> int | None:
            if asked != operation or name not in path.name or not left[0]:
                return None
            left[0] -= 1
            return error

        self.rules.append(rule)

    def heal(self) -> None:
        self.rules.clear()

    def _ask(self, operation: str, path: Path) -> None:
        self.asked.append((operation, path))
        for rule in self.rules:
            error = rule(operation, path)
            if error is not None:
                raise OSError(error, os.strerror(error), str(path))

    def names(self, directory: Path) -> list[str]:
        self._ask("names", directory)
        return DISK.names(directory)

    def read(self, path: Path) -> Found:
        self._ask("read", path)
        return self.owner(path, DISK.read(path))

    def create(self, path: Path, data: bytes) -> None:
        self._ask("create", path)
        DISK.create(path, data)

    def replace(self, source: Path, target: Path) -> None:
        self._ask("replace", target)
        DISK.replace(source, target)

    def sync(self, directory: Path) -> None:
        self._ask("sync", directory)
        DISK.sync(directory)

    def unlink(self, path: Path) -> None:
        self._ask("unlink", path)
        DISK.unlink(path)

    def rmdir(self, path: Path) -> None:
        self._ask("rmdir", path)
        DISK.rmdir(path)


@dataclass
class Clock:
    """A reader's clocks: `now_s` monotonic, `unix_s` the wall's."""

    now_s: float = 5000.0
    unix_s: float = 1_900_000_000.0

    def monotonic(self) -> float:
        return self.now_s

    def unix(self) -> float:
        return self.unix_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.unix_s += seconds
