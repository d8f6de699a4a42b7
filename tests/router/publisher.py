"""A publisher of KV events that does on its sockets what vLLM 0.32 does on its own (distributed/kv_events.py)."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import zmq
import zmq.asyncio

from tests.routing.kv_model import payload

END = b"\xff" * 8


class Publisher:
    """Publishes, keeps the last batches, repeats them when asked."""

    def __init__(self, *, kept: int = 10_000) -> None:
        self._context = zmq.asyncio.Context()
        self._live = self._context.socket(zmq.PUB)
        self._router = self._context.socket(zmq.ROUTER)
        self.url = self._bind(self._live)
        self.replay_url = self._bind(self._router)
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=kept)
        self.count = 0
        self.asked: list[int] = []

    @staticmethod
    def _bind(socket: Any) -> str:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        return f"tcp://127.0.0.1:{port}"

    async def publish(self, *events: dict[str, Any], dropped: bool = False) -> None:
        await self.publish_bytes(payload(*events), dropped=dropped)

    async def publish_bytes(self, data: bytes, *, dropped: bool = False) -> None:
        number, self.count = self.count, self.count + 1
        self._kept.append((number, data))
        if not dropped:
            await self._live.send_multipart([b"kv-events", number.to_bytes(8), data])

    async def send(self, *frames: bytes) -> None:
        """Something else on the same socket."""
        await self._live.send_multipart(list(frames))

    def begin_anew(self) -> None:
        """As a publisher does that was started again: it has nothing to repeat, and counts from 0."""
        self._kept.clear()
        self.count = 0

    async def repeat(self) -> None:
        while True:
            client, _, start = await self._router.recv_multipart()
            self.asked.append(int.from_bytes(start))
            for number, data in list(self._kept):
                if number >= int.from_bytes(start):
                    await self._router.send_multipart([client, b"", b"kv-events", number.to_bytes(8), data])
            await self._router.send_multipart([client, b"", b"", END, b""])

    def close(self) -> None:
        self._context.destroy(linger=0)


@contextlib.asynccontextmanager
async def publishing(*, kept: int = 10_000, repeats: bool = True) -> AsyncIterator[Publisher]:
    publisher = Publisher(kept=kept)
    task = asyncio.create_task(publisher.repeat()) if repeats else None
    try:
        yield publisher
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        publisher.close()
