"""One NIXL agent that reads from others and is read from; a program of its own, for the engine's Python.

It runs where hpcserve is not installed: it takes the standard library, NIXL and, for GPU memory, PyTorch. Commands come
as JSON lines on standard input, answers go as JSON lines to standard output: each says the number of the command that
it `answers`, the card, which nobody asked for, 0. What NIXL and UCX print themselves goes to standard error. It ends
with its input, so it never outlives the process that started it.
"""

import argparse
import base64
import ctypes
import json
import mmap
import os
import queue
import sys
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

LATENCY_BYTES = 4096
LATENCY_READS = 20
SETTLED_S = 0.02
"""A batch that takes this long hides what posting it costs; shorter ones are doubled while the buffer allows."""
SLOW_S = 0.2
"""On a link where a batch takes this long, its first part is enough for windows to grow: no batch is thrown away."""
PROBE_BYTES = 2**20


class ReadError(Exception):
    """A read that NIXL refused, broke off, or did not end in time."""


class Agent:
    """A NIXL agent with one registered buffer, in host memory or on one GPU."""

    def __init__(self, *, name: str, backend: str, gpu: int | None, buffer_bytes: int) -> None:
        # No progress thread: it would poll without a pause in every process of the node, idle or not. Who reads, and
        # who is read from, drives its own progress.
        from nixl._api import nixl_agent, nixl_agent_config  # noqa: PLC0415 - heavy, and its failure is an answer

        self._nixl = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=[backend]))
        if backend not in self._nixl.backends:
            raise ReadError(f"NIXL has no backend {backend}; it has {', '.join(self._nixl.backends) or 'none'}")
        self.buffer_bytes = buffer_bytes
        if gpu is None:
            self.memory, self.device = "DRAM", 0
            self._owner: Any = mmap.mmap(-1, buffer_bytes)
            # Pages that exist: else the first touch of each would be measured with the first read.
            self._owner.write(b"\1" * buffer_bytes)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._owner))
        else:
            import torch  # noqa: PLC0415 - seconds to import, and only for GPUs

            self.memory, self.device = "VRAM", gpu
            self._owner = torch.ones(buffer_bytes, dtype=torch.uint8, device=f"cuda:{gpu}")
            torch.cuda.synchronize(gpu)
            self.address = self._owner.data_ptr()
        self._registered = self._nixl.get_reg_descs([(self.address, buffer_bytes, self.device, "")], self.memory)
        self._nixl.register_memory(self._registered, backends=[backend])
        self._names: dict[str, str] = {}
        self.moved_bytes = 0

    def card(self) -> dict[str, Any]:
        """What another agent needs to read from this one."""
        return {
            "metadata": base64.b64encode(self._nixl.get_agent_metadata()).decode(),
            "address": self.address,
            "device": self.device,
            "memory": self.memory,
            "bytes": self.buffer_bytes,
        }

    def progress(self) -> None:
        """Let what others read from here move on, where the transport has no hardware for it."""
        self._nixl.get_new_notifs()

    def read(
        self,
        peer: dict[str, Any],
        *,
        block_bytes: int,
        blocks: int,
        fewest: int,
        seconds: float,
        within_s: float,
        pause_s: float,
    ) -> dict[str, Any]:
        """Read from a peer for `seconds` and `fewest` batches, once it is connected; start and end of every batch."""
        began, moved_before = time.monotonic(), self.moved_bytes
        end = began + within_s
        name = self._meet(peer)
        self._once(peer, name, [(0, PROBE_BYTES)], end, pause_s)  # connects
        guessed = self._once(peer, name, [(0, PROBE_BYTES)], end, pause_s) * blocks * block_bytes / PROBE_BYTES
        latencies = sorted(self._once(peer, name, [(0, LATENCY_BYTES)], end, 0.0) for _ in range(LATENCY_READS))
        most = min(self.buffer_bytes, peer["bytes"]) // block_bytes
        blocks = min(blocks, most)
        spans = [(number * block_bytes, block_bytes) for number in range(blocks)]
        taken = guessed if guessed > SLOW_S else self._once(peer, name, spans, end, pause_s)
        while taken < SETTLED_S and blocks * 2 <= most:
            blocks *= 2
            spans = [(number * block_bytes, block_bytes) for number in range(blocks)]
            taken = self._once(peer, name, spans, end, pause_s)
        batches: list[tuple[float, float]] = []
        start = time.monotonic()
        while len(batches) < fewest or time.monotonic() - start < seconds:
            before = time.monotonic()
            taken = self._once(peer, name, spans, end, pause_s)
            batches.append((before - began, before - began + taken))
        return {
            "batch_bytes": blocks * block_bytes,
            "batches_s": batches,
            "latency_us": latencies[len(latencies) // 2] * 1e6,
            "moved_bytes": self.moved_bytes - moved_before,
        }

    def _meet(self, peer: dict[str, Any]) -> str:
        card = peer["metadata"]
        if card not in self._names:
            self._names[card] = self._nixl.add_remote_agent(base64.b64decode(card))
        return self._names[card]

    def _once(self, peer: dict[str, Any], name: str, spans: list[tuple[int, int]], end: float, pause_s: float) -> float:
        """Seconds of one transfer of these spans (offset, bytes)."""
        local = [(self.address + offset, size, self.device) for offset, size in spans]
        remote = [(peer["address"] + offset, size, peer["device"]) for offset, size in spans]
        handle = self._nixl.initialize_xfer(
            "READ",
            self._nixl.get_xfer_descs(local, self.memory),
            self._nixl.get_xfer_descs(remote, peer["memory"]),
            name,
        )
        try:
            start = time.perf_counter()
            state = self._nixl.transfer(handle)
            while state == "PROC":
                if time.monotonic() > end:
                    raise ReadError("the read did not end in its time")
                if pause_s:
                    time.sleep(pause_s)
                state = self._nixl.check_xfer_state(handle)
            taken = time.perf_counter() - start
        finally:
            self._nixl.release_xfer_handle(handle)
        if state != "DONE":
            raise ReadError(f"NIXL ended the read with {state}")
        self.moved_bytes += sum(size for _, size in spans)
        return taken


def main() -> None:
    """Serve commands until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--gpu", type=int)
    parser.add_argument("--buffer-bytes", type=int, required=True)
    parser.add_argument("--pause-us", type=float, required=True)
    given = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # UCX prints what it chose to standard output

    number = 0

    def answer(**said: Any) -> None:
        # On a line of its own, whatever stands unfinished before it.
        answers.write("\n" + json.dumps({**said, "answers": number}) + "\n")
        answers.flush()

    try:
        agent = Agent(name=given.name, backend=given.backend, gpu=given.gpu, buffer_bytes=given.buffer_bytes)
    except Exception as error:  # noqa: BLE001 - whatever NIXL, CUDA or an import raise is what the rank reports
        answer(error=f"{type(error).__name__}: {error}")
        os._exit(1)
    answer(card=agent.card(), nixl=_nixl_version())
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        lines.put("")

    threading.Thread(target=listen, daemon=True).start()
    pause_s = given.pause_us / 1e6
    is_read_from = False
    while True:
        try:
            line = lines.get(timeout=max(pause_s, 1e-6)) if is_read_from else lines.get()
        except queue.Empty:
            agent.progress()
            continue
        if not line:
            # Without taking the agent apart: NIXL's threads may still look at the buffer that Python has given back.
            os._exit(0)
        command = json.loads(line)
        number = command["number"]
        is_read_from = command["do"] == "serve"
        if command["do"] != "read":
            answer(ok=True)
            continue
        try:
            answer(
                **agent.read(
                    command["peer"],
                    block_bytes=command["block_bytes"],
                    blocks=command["blocks"],
                    fewest=command["fewest"],
                    seconds=command["seconds"],
                    within_s=command["give_up_s"],
                    pause_s=pause_s,
                )
            )
        except Exception as error:  # noqa: BLE001 - a read that fails is a result
            answer(error=f"{type(error).__name__}: {error}")


def _nixl_version() -> str:
    try:
        return version("nixl")
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    main()
