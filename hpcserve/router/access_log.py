"""One JSON object for each request, for other programs to read; nothing of prompts or answers. Off unless asked for."""

import os
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = ["AccessLog", "Served"]

_FLUSH_AT_LINES = 512


class Served(NamedTuple):
    """One request that ended."""

    request_id: str
    tenant: str
    """Empty for the job's own key, and where nobody known asked."""
    path: str
    """Without its query: some put a key there."""
    route: str
    status: int
    end: str
    """`ok`, `client_error`, `broken`, `abandoned`, or an error code."""
    body_bytes: int = 0
    prompt_tokens: int | None = None
    """About."""
    cached_tokens: int = 0
    """Of those, what the worker was expected to hold."""
    stream: bool = False
    retries: int = 0
    ttft_ms: float | None = None
    total_ms: float = 0.0
    traceparent: str = ""


_ENCODER = msgspec.json.Encoder()


class AccessLog:
    """Appends to a file, about once a second, as a write per request costs too much."""

    def __init__(self, path: Path) -> None:
        """Raises OSError where it cannot be opened. Readable by its owner only, as the job directory is."""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._lines: list[bytes] = []

    def add(self, served: Served) -> None:
        """Note one request."""
        said = served._asdict()
        said["unix_s"] = round(time.time(), 3)
        self._lines.append(_ENCODER.encode(said))
        if len(self._lines) >= _FLUSH_AT_LINES:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered. A full disk loses lines, never requests."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        data = b"\n".join(lines) + b"\n"
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            return

    def close(self) -> None:
        """Write the rest and close."""
        self.flush()
        os.close(self._descriptor)
