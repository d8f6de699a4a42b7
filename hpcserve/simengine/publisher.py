"""Publishes batches of KV events by ZeroMQ and repeats the last of them, with vLLM 0.32's frames.

Live, on a PUB socket: [topic, number (8 bytes, big-endian, from 0), batch]. Repeated, on a ROUTER socket: asked with
[empty, first number], each as [empty, topic, number, batch], then all ones for a number.
"""

import asyncio
from collections import deque
from typing import Any

from hpcserve.errors import MissingToolError
from hpcserve.simengine.settings import Events

__all__ = ["Publisher"]

_NUMBER_BYTES = 8
_END = b"\xff" * _NUMBER_BYTES
_ASKED_FRAMES = 3


class Publisher:
    """The two sockets. To be made on the running loop."""

    def __init__(self, events: Events) -> None:
        """Raises MissingToolError without the extra `kv`, OSError where an address is taken."""
        try:
            import zmq  # noqa: PLC0415 - an extra, and only where events are asked for
            import zmq.asyncio  # noqa: PLC0415 - see above
        except ImportError:
            raise MissingToolError(
                "the package `pyzmq` is not installed", remedy="install hpcserve[kv], or leave --kv-events-config out"
            ) from None
        self._topic = events.topic.encode()
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=events.buffer_steps)
        self._count = 0
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.PUB)
        self._live.set_hwm(events.hwm)
        self._asked = zmq.asyncio.Context(self._context).socket(zmq.ROUTER)
        self._repeating: asyncio.Task[None] | None = None
        try:
            # vLLM binds an address with a `*`, and connects to any other.
            (self._live.bind if _binds(events.endpoint) else self._live.connect)(events.endpoint)
            if events.replay_endpoint is not None:
                self._asked.bind(events.replay_endpoint)
                self._repeating = asyncio.ensure_future(self._repeat(self._asked))
        except zmq.ZMQError as error:
            self.close()
            raise OSError(error.errno, f"KV events cannot be published: {error.strerror}") from None

    def publish(self, batch: bytes) -> None:
        """Send a batch to whoever listens, and keep it for those who ask later."""
        number, self._count = self._count, self._count + 1
        self._kept.append((number, batch))
        self._live.send_multipart([self._topic, number.to_bytes(_NUMBER_BYTES, "big"), batch])

    async def _repeat(self, asked: Any) -> None:
        while True:
            frames = await asked.recv_multipart()
            if len(frames) != _ASKED_FRAMES:
                continue
            client, _, first = frames
            for number, batch in tuple(self._kept):
                if number >= int.from_bytes(first, "big"):
                    named = number.to_bytes(_NUMBER_BYTES, "big")
                    await asked.send_multipart([client, b"", self._topic, named, batch])
            await asked.send_multipart([client, b"", b"", _END, b""])

    def close(self) -> None:
        """Close the sockets; what is not sent yet is lost."""
        if self._repeating is not None:
            self._repeating.cancel()
        for socket in (self._asked, self._live):
            socket.close(linger=0)
        self._context.term()  # it would wait for a socket that is open


def _binds(endpoint: str) -> bool:
    return "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))
