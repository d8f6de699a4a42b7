"""Ports that are reserved, then used: bound sockets that do not listen keep them for the engines that will."""

import contextlib
import random
import socket
from collections.abc import Iterable, Sequence

from hpcserve.errors import ServiceError

__all__ = ["Ports", "listen", "reserve"]

_FIRST, _LAST = 15000, 32767
"""Below Linux's ephemeral range (ip_local_port_range, 32768-60999), so that no outgoing connection takes one meanwhile;
above the ports that services register most."""

_TRIES = 400

Block = tuple[int, int]


class Ports:
    """Blocks of contiguous ports that this process holds on some addresses, as (first, count)."""

    def __init__(self, addresses: Sequence[str], blocks: Iterable[Block]) -> None:
        self._addresses = tuple(dict.fromkeys(addresses))
        self.blocks = tuple(blocks)
        self._held: dict[tuple[str, int], socket.socket] = {}

    def hold(self) -> tuple[int, ...]:
        """Take what is not held yet; returns the ports that somebody listens on, which therefore cannot be.

        After a restart of the agent those are the workers that it adopts: once one has ended, holding works again.
        """
        taken = set()
        for address in self._addresses:
            for first, count in self.blocks:
                for port in range(first, first + count):
                    if (address, port) in self._held:
                        continue
                    try:
                        self._held[address, port] = _bound(address, port, alone=False)
                    except OSError:
                        taken.add(port)
        return tuple(sorted(taken))

    def close(self) -> None:
        """Let all ports go."""
        for held in self._held.values():
            held.close()
        self._held.clear()

    def _adopt(self, held: dict[tuple[str, int], socket.socket]) -> None:
        self._held.update(held)


def reserve(addresses: Sequence[str], sizes: Sequence[int], *, fixed_last: int | None = None) -> Ports:
    """Reserve one block for each of `sizes`, free on all `addresses`; the last one starts at `fixed_last` if given.

    Two agents on one node never get the same port: a socket that is bound without SO_REUSEADDR excludes every other
    bound socket. Only then is SO_REUSEADDR set on it, which lets the engine, which sets it too, bind and listen beside
    it. Raises ServiceError where there is no room, or the fixed port is taken.
    """
    unique = tuple(dict.fromkeys(addresses))
    blocks: list[Block] = []
    all_held: dict[tuple[str, int], socket.socket] = {}
    try:
        for number, size in enumerate(sizes):
            if fixed_last is not None and number == len(sizes) - 1:
                first, held = fixed_last, _fixed_block(unique, fixed_last, size)
            else:
                first, held = _free_block(unique, size)
            blocks.append((first, size))
            all_held.update(held)
    except ServiceError:
        for each in all_held.values():
            each.close()
        raise
    ports = Ports(unique, blocks)
    ports._adopt(all_held)  # noqa: SLF001 - the other half of this module's one class
    return ports


def listen(address: str, port: int) -> socket.socket:
    """A listening socket on a held port, even where connections of an earlier program linger; raises OSError."""
    listener = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


_BACKLOG = 4096


def _fixed_block(addresses: Sequence[str], first: int, size: int) -> dict[tuple[str, int], socket.socket]:
    held = _block(addresses, first, size)
    if held is None:
        raise ServiceError(
            f"port {first} is in use on {' or '.join(addresses)}",
            remedy="choose another router.port in the service file, or leave it out",
        )
    return held


def _free_block(addresses: Sequence[str], size: int) -> tuple[int, dict[tuple[str, int], socket.socket]]:
    for _ in range(_TRIES):
        # not for secrets: a random start only makes it rare that two agents try the same block
        first = random.randint(_FIRST, _LAST + 1 - size)  # noqa: S311
        held = _block(addresses, first, size)
        if held is not None:
            return first, held
    raise ServiceError(
        f"no {size} contiguous free ports between {_FIRST} and {_LAST} on {' and '.join(addresses)}",
        remedy="see `ss -ltn` on that node",
    )


def _block(addresses: Sequence[str], first: int, size: int) -> dict[tuple[str, int], socket.socket] | None:
    """Sockets on all ports of the block on all addresses, or None and nothing held."""
    with contextlib.ExitStack() as undo:
        held: dict[tuple[str, int], socket.socket] = {}
        for port in range(first, first + size):
            for address in addresses:
                try:
                    held[address, port] = undo.enter_context(_bound(address, port, alone=True))
                except OSError:
                    return None
        undo.pop_all()
        return held


def _bound(address: str, port: int, *, alone: bool) -> socket.socket:
    held = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0 if alone else 1)
        held.bind((address, port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        held.close()
        raise
    return held


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
