"""What a long step tells while it runs, and the file lock that keeps two of the same step apart."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Progress", "Report", "exclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One line for the person who waits. `fraction` is the share of the whole that is done, None where nobody knows."""

    text: str
    fraction: float | None = None

    def __str__(self) -> str:
        return self.text if self.fraction is None else f"[{self.fraction:4.0%}] {self.text}"


Report = Callable[[Progress], None]
"""Takes each Progress the moment it is known; `print` is one."""


_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
"""What flock(2) says on a file system without locks, as Lustre is when mounted without `-o flock`."""


@contextmanager
def exclusive(target: Path, *, report: Report) -> Iterator[None]:
    """Hold the lock that belongs to `target`, waiting for whoever has it.

    Programs started by `run_program` share it: where this process is killed, it is free once the last of them ended,
    so that nobody writes beside a pip that lives on.
    The lock is the file `.NAME.lock` beside `target`; it stays there, empty, since removing it would let two in.
    Where the file system has no locks, that is reported and nobody is kept apart.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("a") as lock:
        os.set_inheritable(lock.fileno(), True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(Progress(text=f"another process is making {target}; waiting for it"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            text = f"{target.parent} has no file locks ({error.strerror}; Lustre has them with `-o flock`)"
            report(Progress(text=f"{text}: do not make {target} twice at once"))
        yield
