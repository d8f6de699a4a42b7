"""One agent per job and node: a second one would start every worker a second time."""

import hashlib
import os
import socket
from pathlib import Path

__all__ = ["claim_node"]


def claim_node(job_directory: Path, node: str) -> socket.socket | None:
    """Held as long as the socket that comes back is; None where another agent of that job and node runs on this host.

    The name of an abstract socket (unix(7)) belongs to one process at a time, and is free the moment that process has
    ended, however it did; no file system and no lock of one is asked.
    """
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = hashlib.sha256(f"{job_directory}\0{node}".encode()).hexdigest()
    try:
        held.bind(f"\0hpcserve-agent-{os.getuid()}-{name}")
    except OSError:
        held.close()
        return None
    return held
