"""The side channel: where one simulated engine lets others read its KV blocks, and how it reads theirs.

One connection a pull. Frames are a length of 4 bytes, big-endian, and a MessagePack list: `hello` -> engine id, block
size and ranks; `read` -> what stands in the named blocks at that moment; `beat` prolongs a lease; `done` ends it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

__all__ = ["Peer", "PullError", "SideChannel", "open_peer"]

_MAX_FRAME_BYTES = 64 * 2**20

HANDSHAKE_TIMEOUT_S = 5.0
"""vLLM waits so long for the first answer of an engine it does not know (ZMQ RCVTIMEO in nixl/utils.py), even where
nobody listens."""


class PullError(Exception):
    """KV could not be read; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another engine as its hello showed it."""

    engine_id: str
    block_size: int
    tensor_parallel: int


class SideChannel:
    """The listening side. The callables are the engine's: read blocks, prolong a lease, end a lease."""

    def __init__(
        self,
        *,
        me: Peer,
        read: Callable[[Sequence[int]], list[tuple[bytes, ...]] | None],
        beat: Callable[[str], None],
        done: Callable[[str], None],
    ) -> None:
        self._me = me
        self._read = read
        self._beat = beat
        self._done = done
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises OSError where the address is taken."""
        self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening and cut what is connected."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                await _send(writer, self._answer(await _receive(reader)))
        except (PullError, ConnectionError):
            pass  # the other side is through, or gone: what it did not finish ends with its lease
        finally:
            self._open.discard(writer)
            writer.close()

    def _answer(self, request: list[Any]) -> list[Any]:
        match request:
            case ["hello"]:
                return ["hello", self._me.engine_id, self._me.block_size, self._me.tensor_parallel]
            case ["read", [*numbers]]:
                found = self._read(numbers)
                return ["error", "no such block"] if found is None else ["data", found]
            case ["beat", str(request_id)]:
                self._beat(request_id)
                return ["ok"]
            case ["done", str(request_id)]:
                self._done(request_id)
                return ["ok"]
        raise PullError(f"unknown request {request!r}")


class Connection:
    """The reading side's end of one connection; every method raises PullError where the other side is gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    async def hello(self) -> Peer:
        """Who is there."""
        _, engine_id, block_size, tensor_parallel = await self._ask(["hello"])
        return Peer(engine_id=engine_id, block_size=block_size, tensor_parallel=tensor_parallel)

    async def read(self, numbers: Sequence[int]) -> list[tuple[bytes, ...]]:
        """What stands in these blocks."""
        answer = await self._ask(["read", list(numbers)])
        if answer[0] != "data":
            raise PullError(str(answer[1]))
        return [tuple(digests) for digests in answer[1]]

    async def beat(self, request_id: str) -> None:
        """Prolong a lease."""
        await self._ask(["beat", request_id])

    async def done(self, request_id: str) -> None:
        """End a lease."""
        await self._ask(["done", request_id])

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def _ask(self, request: list[Any]) -> list[Any]:
        async with self._turn:
            try:
                await _send(self._writer, request)
                return await _receive(self._reader)
            except ConnectionError as error:
                raise PullError(f"the peer is gone: {error}") from None


async def open_peer(host: str, port: int) -> Connection:
    """A connection to an engine's side channel; raises PullError where nobody is there."""
    try:
        return Connection(*await asyncio.open_connection(host, port))
    except OSError as error:
        raise PullError(f"no engine at {host}:{port}: {error}") from None


async def _send(writer: asyncio.StreamWriter, message: list[Any]) -> None:
    data = msgspec.msgpack.encode(message)
    writer.write(len(data).to_bytes(4, "big") + data)
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> list[Any]:
    try:
        length = int.from_bytes(await reader.readexactly(4), "big")
        if length > _MAX_FRAME_BYTES:
            raise PullError(f"a frame of {length} bytes")
        message = msgspec.msgpack.decode(await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        raise PullError("the peer closed the connection") from None
    except msgspec.DecodeError as error:
        raise PullError(f"not a frame: {error}") from None
    if not isinstance(message, list):
        raise PullError("not a frame: a list was wanted")
    return message
