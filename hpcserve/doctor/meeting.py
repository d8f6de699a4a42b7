"""How a node and the login node meet in the shared directory: `ping/NODE.json`, answered by `pong/NODE.json`.

The node measures the round trip on its own clock; the answer carries the login node's time, so that the clocks can be
compared without either being trusted.
"""

import contextlib
import time
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from hpcserve.discovery import read_dir_record, read_records, write_record
from hpcserve.doctor.evidence import SharedFiles
from hpcserve.nouns import Noun
from hpcserve.wire import UnreadableRecordError

__all__ = ["FOLDERS", "PONG_S", "answer_pings", "meet"]

FOLDERS = ("ping", "pong", "nodes", "runtimes")
PONG_S = 20.0
"""How long a node waits for the answer; what takes longer is told as none."""

_POLL_S = 0.05


class Ping(Noun):
    """A node says that it is there."""

    schema_: Annotated[Literal["hpcserve.doctor.ping/1"], Field(alias="schema")] = "hpcserve.doctor.ping/1"
    node: str


class Pong(Noun):
    """The login node says that it has seen it, and what its clock was."""

    schema_: Annotated[Literal["hpcserve.doctor.pong/1"], Field(alias="schema")] = "hpcserve.doctor.pong/1"
    node: str
    login_s: float
    """Seconds since the epoch on the login node's clock."""


def meet(directory: Path, node: str, *, patience_s: float = PONG_S) -> SharedFiles:
    """Say `ping`, await `pong`; how long that took and how far the clocks are apart."""
    started_s = time.monotonic()
    try:
        write_record(directory / "ping" / f"{node}.json", Ping(node=node))
    except OSError as error:
        return SharedFiles(rename_trouble=str(error.strerror), round_trip_s=None, clock_ahead_s=None)
    while time.monotonic() - started_s < patience_s:
        try:
            pong = read_dir_record(directory / "pong", f"{node}.json", Pong)
        except (OSError, UnreadableRecordError):
            pong = None
        if pong is not None:
            took_s = time.monotonic() - started_s
            return SharedFiles(
                rename_trouble="", round_trip_s=took_s, clock_ahead_s=time.time() - took_s / 2 - pong.login_s
            )
        time.sleep(_POLL_S)
    return SharedFiles(rename_trouble="", round_trip_s=None, clock_ahead_s=None)


def answer_pings(directory: Path, answered: set[str]) -> None:
    """On the login node, every so often: answer each ping that has no answer yet; `answered` keeps whose had one."""
    for name in read_records(directory, "ping", Ping).records:
        if name not in answered:
            # a disk that is full now is tried again at the next look; the node says that it saw no answer
            with contextlib.suppress(OSError):
                write_record(directory / "pong" / f"{name}.json", Pong(node=name, login_s=time.time()))
                answered.add(name)
