"""Whose socket listens on a port: an answer counts only if it comes from the very worker that was started."""

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["listening_inodes", "listens_on"]

_LISTEN = "0A"
"""include/net/tcp_states.h, TCP_LISTEN = 10, as /proc/net/tcp prints it."""

_INODE_FIELD = 9
_SOCKET_LINK = re.compile(r"socket:\[(\d+)\]")


def listening_inodes(tcp_table: str, port: int) -> frozenset[int]:
    """Inodes of the sockets that listen on `port`, from the text of /proc/net/tcp or tcp6 (proc(5))."""
    found = set()
    for line in tcp_table.splitlines()[1:]:
        fields = line.split()
        local, state = fields[1], fields[3]
        if state == _LISTEN and int(local.rpartition(":")[2], 16) == port:
            found.add(int(fields[_INODE_FIELD]))
    return frozenset(found)


def listens_on(port: int, pids: Iterable[int]) -> bool:
    """Whether one of these processes holds a socket that listens on `port`."""
    inodes: set[int] = set()
    for table in ("tcp", "tcp6"):
        inodes |= listening_inodes(Path(f"/proc/self/net/{table}").read_text(encoding="ascii"), port)
    return any(inodes & _socket_inodes(pid) for pid in pids)


def _socket_inodes(pid: int) -> set[int]:
    found: set[int] = set()
    try:
        descriptors = tuple(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return found  # it has ended
    for descriptor in descriptors:
        try:
            link = _SOCKET_LINK.fullmatch(str(descriptor.readlink()))
        except OSError:
            continue  # closed meanwhile
        if link:
            found.add(int(link[1]))
    return found
