"""Run as a step on several nodes: prints `NODE MEGABIT_PER_S` from the first node to each other one.

The first argument is the number of bytes, the others are nodes. Each but the first node accepts one
transfer on its data address and answers with one byte when all has come.
"""

import os
import socket
import sys
import time
from pathlib import Path

PORT = 9000
count, sender, *receivers = int(sys.argv[1]), *sys.argv[2:]
me = os.environ["SLURMD_NODENAME"]


def connect(receiver: str) -> socket.socket:
    """Waits for a receiver whose step has not started yet."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((f"{receiver}-data", PORT), timeout=30)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def counters() -> dict[str, int]:
    sides = {name: Path(f"/sys/class/net/{name}/statistics/tx_bytes") for name in ("ctl0", "data0")}
    return {name: int(path.read_text()) for name, path in sides.items()}


if me in receivers:
    with socket.create_server((f"{me}-data", PORT)) as server:
        server.settimeout(60)
        accepted, _ = server.accept()
        with accepted:
            while accepted.recv(1 << 20):
                pass
            accepted.sendall(b"!")
else:
    for receiver in receivers:
        with connect(receiver) as connection:
            before = counters()
            began = time.perf_counter()
            connection.sendall(bytes(count))
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b"!"
            took_s = time.perf_counter() - began
        sent = {name: value - before[name] for name, value in counters().items()}
        # The bytes went over the data interface and nothing to speak of over the control one.
        assert sent["data0"] > count > 100 * sent["ctl0"], sent
        sys.stdout.write(f"{receiver} {count * 8 / took_s / 1e6}\n")
