"""One line for each request and each event; written about once a second, as a write per request costs too much."""

import os
import time

__all__ = ["Log"]

_FLUSH_AT_LINES = 512


class Log:
    """Writes to a file descriptor, standard output by default."""

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._lines: list[str] = []
        self._second = 0
        self._stamp = ""

    def request(
        self, *, request_id: str, target: str, route: str, status: int, ttft_s: float | None, total_s: float, end: str
    ) -> None:
        """One request that ended. Nothing of its prompt or answer is written."""
        ttft = "-" if ttft_s is None else f"{ttft_s * 1000:.1f}"
        self._add(
            f"request id={request_id} target={target} route={route} status={status} ttft_ms={ttft} "
            f"total_ms={total_s * 1000:.1f} end={end}"
        )

    def event(self, text: str) -> None:
        """Something worth a line."""
        self._add(text)

    def _add(self, text: str) -> None:
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        self._lines.append(f"{self._stamp} {text}\n")
        if len(self._lines) >= _FLUSH_AT_LINES:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        if self._lines:
            data = "".join(self._lines).encode(errors="backslashreplace")
            self._lines.clear()
            while data:
                data = data[os.write(self._descriptor, data) :]
