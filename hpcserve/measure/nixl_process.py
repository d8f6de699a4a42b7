"""The rank's NIXL process: started before MPI; asked over a pipe, so that two UCX libraries never share a process."""

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

__all__ = ["NixlProcess", "NixlProcessError", "child_environment"]

_NOT_FOR_IT = ("UCX_", "NIXL_", "FI_", "OMPI_", "PMIX_", "PMI_", "SLURM_", "MPI_")
"""What the user's shell or the MPI job says would change what is measured; the seat's own settings come instead."""


class NixlProcessError(Exception):
    """The process died, answered with an error, or did not answer in time."""


def child_environment(inherited: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a NIXL process: that of the rank, without what would change transports, and the settings.

    UCX is told to print which transport it takes for what (UCX_PROTO_INFO, UCX documentation, FAQ).
    """
    kept = {name: value for name, value in inherited.items() if not name.startswith(_NOT_FOR_IT)}
    return {**kept, "UCX_PROTO_INFO": "y", "UCX_LOG_LEVEL": "info", **settings}


class NixlProcess:
    """One started process; `ask` is one command and its answer."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                argv, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream
            )
        self._rest = b""
        self._asked = 0

    def ask(self, *, within_s: float, **command: Any) -> dict[str, Any]:
        """Send a command and return its answer; raises NixlProcessError."""
        self._asked += 1
        try:
            _pipe(self._process.stdin).write(json.dumps({**command, "number": self._asked}).encode() + b"\n")
            _pipe(self._process.stdin).flush()
        except OSError:
            raise NixlProcessError(self._ended()) from None
        return self.answer(within_s=within_s)

    def answer(self, *, within_s: float) -> dict[str, Any]:
        """The answer to the last command, before any the card; raises NixlProcessError for none, or for an `error`.

        An answer that comes after its command was given up is passed over, and so is what no NIXL process says:
        modules, profiles and containers print on their way in. That goes to the log.
        """
        end = time.monotonic() + within_s
        while True:
            line = self._line(end, within_s)
            said = _message(line)
            if said is None:
                self._note(line)
            elif said.pop("answers") == self._asked:
                break
        if "error" in said:
            raise NixlProcessError(str(said["error"]))
        return said

    def printed(self) -> str:
        """All that NIXL and UCX have printed."""
        return self._log.read_text(errors="replace")

    def end(self) -> None:
        """Close its input, which ends it; kill it where that does not."""
        try:
            _pipe(self._process.stdin).close()
            self._process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()

    def _note(self, line: bytes) -> None:
        if line.strip():
            with self._log.open("ab") as stream:
                stream.write(line + b"\n")

    def _line(self, end: float, within_s: float) -> bytes:
        stream = _pipe(self._process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(timeout=max(0.0, end - time.monotonic())):
                    raise NixlProcessError(f"its NIXL process did not answer within {within_s:g} s")
                part = os.read(stream.fileno(), 2**16)
                if not part:
                    raise NixlProcessError(self._ended())
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self) -> str:
        code = self._process.wait(timeout=10)
        words = [line for line in self.printed().splitlines() if line.strip() and " UCX  INFO" not in line]
        last = f": {words[-1].strip()[:300]}" if words else ""
        return f"its NIXL process ended with {code}{last} (see {self._log.name})"


def _message(line: bytes) -> dict[str, Any] | None:
    """One answer of a NIXL process; None for any other text."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) and isinstance(said.get("answers"), int) else None


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RuntimeError("started without a pipe")
    return stream
