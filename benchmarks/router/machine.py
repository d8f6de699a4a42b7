"""Processes of a measurement: fake engines, the load, the routers; what CPU and memory each took."""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["DECODE_PORTS", "ENGINES", "KEY", "PLAIN_PORTS", "PREFILL_PORTS", "Machine", "Usage"]

PREFILL_PORTS = (28901, 28902)
DECODE_PORTS = (28951, 28952)
PLAIN_PORTS = PREFILL_PORTS
"""In plain mode the same two engines serve everything."""
ENGINES = (*PREFILL_PORTS, *DECODE_PORTS)
KEY = "bench-key-0123456789"
_HERE = Path(__file__).parent
_READY_S = 20.0

Usage = tuple[float, float]
"""CPU seconds so far, resident MB now."""


class Machine:
    """Two cores: one for the router that is measured, one for engines and load. Ends what it started."""

    def __init__(self, work: Path, *, router_core: int, other_core: int) -> None:
        self._work = work
        self._cores = (router_core, other_core)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("engines", "load"):
            subprocess.run(
                ["cc", "-O2", "-Wall", "-o", str(work / name), str(_HERE / f"{name}.c")],
                check=True,
            )

    def start_engines(self) -> None:
        """All fake engines, in one process."""
        self.start("engines", [str(self._work / "engines"), *map(str, ENGINES)], core=self._cores[1])
        self._until_it_answers(ENGINES[0], "/health", None)

    def start_router(self, name: str, argv: Sequence[str], port: int) -> None:
        """One router, ready when it completes a prompt."""
        self.start(name, argv, core=self._cores[0])
        body = {"model": "m", "stream": False, "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
        self._until_it_answers(port, "/v1/chat/completions", json.dumps(body).encode())

    def start(self, name: str, argv: Sequence[str], *, core: int) -> None:
        """A process in a session of its own, pinned to a core; its output in a file."""
        with (self._work / f"{name.replace(' ', '-').replace('/', '')}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                ["taskset", "-c", str(core), *argv], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def load(
        self,
        port: int,
        *,
        connections: int,
        seconds: float,
        prompt_bytes: int = 1024,
        tokens: int = 16,
        stream: bool = False,
        think_us: int = 0,
        extra: str = "",
    ) -> dict[str, Any]:
        """What the load program measured."""
        words = (port, connections, seconds, prompt_bytes, tokens, int(stream), think_us, extra)
        done = subprocess.run(
            ["taskset", "-c", str(self._cores[1]), str(self._work / "load"), *map(str, words)],
            capture_output=True,
            text=True,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        if found["errors"]:
            found["failed"] = done.stderr[-500:]
        return found

    def set_pace(self, token_us: int) -> None:
        """How long engines take for a token."""
        urllib.request.urlopen(f"http://127.0.0.1:{ENGINES[0]}/pace?us={token_us}", timeout=5).close()

    def counts(self) -> dict[str, int]:
        """Legs that the engines had since they were last asked."""
        with urllib.request.urlopen(f"http://127.0.0.1:{ENGINES[0]}/counts", timeout=5) as answer:
            found: dict[str, int] = json.load(answer)
            return found

    def usage(self, name: str) -> Usage:
        """CPU seconds of all threads of a process's session (schedstat, proc(5): nanoseconds), and its memory."""
        leader = self._processes[name].pid
        cpu_s, resident_kb = 0.0, 0
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                if os.getsid(int(folder.name)) != leader:
                    continue
                for thread in (folder / "task").iterdir():
                    cpu_s += int((thread / "schedstat").read_text().split()[0]) / 1e9
                for line in (folder / "status").read_text().splitlines():
                    if line.startswith("VmRSS:"):
                        resident_kb += int(line.split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
        return cpu_s, resident_kb / 1024

    def end(self) -> None:
        """End everything."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _until_it_answers(self, port: int, path: str, body: bytes | None) -> None:
        end_s = time.monotonic() + _READY_S
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        while True:
            try:
                urllib.request.urlopen(
                    urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=headers), timeout=3
                ).close()
            except (urllib.error.URLError, OSError) as error:
                if time.monotonic() > end_s:
                    raise TimeoutError(f"port {port} does not answer: {error}; see {self._work}") from None
                time.sleep(0.2)
            else:
                return
