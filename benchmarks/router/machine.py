"""Processes of a measurement: fake engines, the load, the routers; what CPU and memory each took."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

__all__ = [
    "DECODE_PORTS",
    "ENGINES",
    "ENGINE_KEY",
    "KEY",
    "PLAIN_PORTS",
    "PREFILL_PORTS",
    "TELLING_DECODE_PORTS",
    "TELLING_ENGINES",
    "TELLING_PREFILL_PORTS",
    "Machine",
    "Usage",
]

PREFILL_PORTS = (28901, 28902)
DECODE_PORTS = (28951, 28952)
PLAIN_PORTS = PREFILL_PORTS
"""In plain mode the same two engines serve everything."""
ENGINES = (*PREFILL_PORTS, *DECODE_PORTS)
TELLING_PREFILL_PORTS = (28911, 28912)
TELLING_DECODE_PORTS = (28961, 28962)
TELLING_ENGINES = (*TELLING_PREFILL_PORTS, *TELLING_DECODE_PORTS)
"""Engines that tell of their KV: a process of their own, so that the others' answers cost what they did."""
KEY = "bench-key-0123456789"
ENGINE_KEY = "engine-key-0123456789"
_HERE = Path(__file__).parent
_READY_S = 90.0

Usage = tuple[float, float]
"""CPU seconds so far, resident MB now."""


class Machine:
    """Two cores: one for the router that is measured, one for engines and load. Ends what it started."""

    def __init__(self, work: Path, *, router_core: int, other_core: int) -> None:
        self._work = work
        self._cores = (router_core, other_core)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._first_ports: list[int] = []
        """One port of each process of engines."""
        self.text = work / "text"
        """Some of English, in ASCII and without what JSON or engines.c would trip over: hpcserve's own pages."""
        pages = "\n".join(page.read_text() for page in sorted((_HERE.parents[1] / "docs").rglob("*.md")))
        self.text.write_text(" ".join(re.sub(r'[^ -~\n]|[\\"\]]', " ", pages).split(" ")).replace("\n", " "))
        for name in ("engines", "load"):
            subprocess.run(
                ["cc", "-O2", "-Wall", "-o", str(work / name), str(_HERE / f"{name}.c")],
                check=True,
            )

    def start_engines(self) -> None:
        """All fake engines, in one process."""
        self._start_engines("engines", (), ENGINES)

    def start_telling_engines(self, model: Path) -> list[tuple[str, str]]:
        """Fake engines that tell of their KV; addresses of each one's events and of their replay."""
        at, addresses = self._work / "teller.sock", self._work / "teller.json"
        addresses.unlink(missing_ok=True)
        words = (str(at), str(model), str(len(TELLING_ENGINES)), str(addresses))
        self.start("teller", [sys.executable, "-m", "benchmarks.router.teller", *words], core=self._cores[1])
        end_s = time.monotonic() + _READY_S
        while not addresses.exists():
            if time.monotonic() > end_s:
                raise TimeoutError(f"the publisher of KV events does not start; see {self._work}")
            time.sleep(0.1)
        self._start_engines("telling engines", ("-t", str(at)), TELLING_ENGINES)
        return [(events, replay) for events, replay in json.loads(addresses.read_text())]

    def _start_engines(self, name: str, words: Sequence[str], ports: Sequence[int]) -> None:
        self.start(name, [str(self._work / "engines"), *words, *map(str, ports)], core=self._cores[1])
        self._first_ports.append(ports[0])
        self._until_it_answers(ports[0], "/health", None)

    def start_beside(self, name: str, argv: Sequence[str], *, variables: Mapping[str, str]) -> None:
        """What a router needs beside it, on the engines' core: not counted as the router's."""
        self.start(name, argv, core=self._cores[1], variables=variables)

    def start_router(self, name: str, argv: Sequence[str], port: int, *, variables: Mapping[str, str]) -> None:
        """One router, ready when it completes a prompt."""
        self.start(name, argv, core=self._cores[0], variables=variables)
        body = {"model": "m", "stream": False, "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}
        self._until_it_answers(port, "/v1/chat/completions", json.dumps(body).encode())

    def start(
        self, name: str, argv: Sequence[str], *, core: int, variables: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """A process in a session of its own, pinned to a core; its output in a file."""
        with (self._work / f"{name.replace(' ', '-').replace('/', '')}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                ["taskset", "-c", str(core), *argv],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **variables},
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
        options: Sequence[str] = (),
    ) -> dict[str, Any]:
        """What the load program measured; its head says what the words and options mean."""
        words = (port, connections, seconds, prompt_bytes, tokens, int(stream), think_us, extra)
        done = subprocess.run(
            ["taskset", "-c", str(self._cores[1]), str(self._work / "load"), *options, *map(str, words)],
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
        for port in self._first_ports:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/pace?us={token_us}", timeout=5).close()

    def counts(self, port: int) -> dict[str, int]:
        """Legs that the engines of this port's process had since they were last asked."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/counts", timeout=5) as answer:
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
