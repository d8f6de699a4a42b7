"""The few Linux calls that Python 3.11 lacks: namespaces and mounts. Each raises OSError."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# linux/sched.h
NEW_MOUNTS = 0x00020000
NEW_HOST_NAME = 0x04000000
NEW_NETWORK = 0x40000000
# linux/mount.h
_NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 0x2, 0x4, 0x8
_BIND, _MOVE, _RECURSIVE, _SLAVE = 0x1000, 0x2000, 0x4000, 0x80000
_DETACH = 0x2

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(kinds: int) -> None:
    """Give this process new namespaces of these kinds."""
    _check(_libc.unshare(ctypes.c_int(kinds)), "unshare")


def join_network(namespace: Path) -> None:
    """Move this process into the network namespace that is kept at this path."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(NEW_NETWORK)), f"setns {namespace}")
    finally:
        os.close(descriptor)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    result = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), ctypes.c_void_p(None))
    _check(result, f"mount {source} on {target}")


def keep_mounts_to_self() -> None:
    """Let later mounts of the machine in, and none of ours out."""
    _mount("none", "/", "none", _RECURSIVE | _SLAVE)


def bind(source: Path | str, target: Path | str) -> None:
    """Show the file or folder `source`, with what is mounted below it, at `target`."""
    _mount(str(source), str(target), "none", _BIND | _RECURSIVE)


def mount_sysfs(at: Path | str) -> None:
    """Mount a `/sys` that shows the devices of this process's network namespace."""
    _mount("sysfs", str(at), "sysfs", _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)


def move_mount(source: Path | str, target: Path | str) -> None:
    """Move what is mounted at `source` to `target`."""
    _mount(str(source), str(target), "none", _MOVE)


def unmount(target: Path | str) -> None:
    """Take a mount away, also while something still uses it."""
    _check(_libc.umount2(str(target).encode(), ctypes.c_int(_DETACH)), f"unmount {target}")
