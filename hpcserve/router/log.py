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
        self._lost = 0
        self._torn = False
        """Whether the last line that was written may lack its end."""

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
        """Write what was gathered. A full disk loses lines, never requests; how many is said once it has room again."""
        if not self._lines:
            return
        lines = [f"{self._stamp} log: {self._lost} lines could not be written\n"] if self._lost else []
        lines += self._lines
        data = "".join(lines).encode(errors="backslashreplace")
        count = len(self._lines)
        self._lines.clear()
        if self._torn:
            data = b"\n" + data
        size = len(data)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            self._lost += count
            self._torn = self._torn or len(data) < size
        else:
            self._lost, self._torn = 0, False
