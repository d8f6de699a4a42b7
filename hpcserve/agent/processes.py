"""A program of this node (a worker, the router): started in a session of its own, adopted, ended whole."""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from hpcserve.discovery import is_running, read_dir_record, start_ticks, write_record
from hpcserve.nouns import Noun
from hpcserve.wire import UnreadableRecordError

__all__ = ["ProcessRecord", "Program", "adopt", "end_leftovers", "ended_by_stop", "session_members", "start"]

_POLL_S = 0.2

_GATE = 'read -r _ && exec "$@" </dev/null'
"""The program begins only when the agent says so, after its pid is on disk; if the agent dies before, so does it."""

_OF_THE_STEP = ("SLURM_", "SBATCH_", "SRUN_", "PMI_", "PMI2_", "PMIX_")
"""Variables of the agent's own job step: an engine that finds them takes itself for one of its tasks (MPI, torch)."""

_TOLD_TO_STOP = (0, -signal.SIGTERM, 128 + signal.SIGTERM, None)
"""How a program ends that was told to (None: an adopted one, whose code nobody knows)."""

_SIGNAL_SPREAD_S = 1.0
"""Slurm walks through a step's processes to signal them; the agent's turn comes within this time."""

_JOB = "SLURM_JOB_ID"
"""Says which job this is and nothing else."""


class ProcessRecord(Noun):
    """`workers/NAME.pid`: what a restarted agent needs to know its own again."""

    schema_: Annotated[Literal["hpcserve.process/1"], Field(alias="schema")] = "hpcserve.process/1"
    node: str
    pid: Annotated[int, Field(gt=0)]
    """Also the id of the session that all its processes belong to."""
    start_ticks: Annotated[int, Field(ge=0)]
    generation: str


@dataclass(slots=True, kw_only=True)
class Program:
    """A running program: a child of this agent, or one that an earlier agent of this node started."""

    record: ProcessRecord
    child: "subprocess.Popen[bytes] | None" = None

    @property
    def pid(self) -> int:
        """Its pid, which is its session's id too."""
        return self.record.pid

    async def ended(self) -> int | None:
        """Wait for its end, which is seen at once; returns the exit code (negative: the signal), None if adopted."""
        await _gone(self.pid, self.record.start_ticks)
        return self.child.wait() if self.child is not None else None

    async def end(self, *, terminate_s: float) -> None:
        """End every process of its session: SIGTERM, and SIGKILL to what is left after `terminate_s`."""
        _signal(session_members(self.pid), signal.SIGTERM)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + terminate_s
        while members := session_members(self.pid):
            if loop.time() >= deadline:
                _signal(members, signal.SIGKILL)
            await asyncio.sleep(_POLL_S / 4)
        if self.child is not None:
            self.child.wait()


def start(
    argv: tuple[str, ...],
    *,
    node: str,
    generation: str,
    record_path: Path,
    log_path: Path,
    environment: Mapping[str, str],
    directory: Path,
) -> Program:
    """Start `argv` in a session of its own, its output appended to `log_path`, its pid recorded before it runs.

    Raises OSError; nothing runs then.
    """
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            ("bash", "-c", _GATE, "bash", *argv),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={
                name: value for name, value in environment.items() if name == _JOB or not name.startswith(_OF_THE_STEP)
            },
            start_new_session=True,
        )
    if child.stdin is None:
        raise AssertionError("Popen with stdin=PIPE has a stdin")
    try:
        ticks = start_ticks(child.pid)
        record = ProcessRecord(node=node, pid=child.pid, start_ticks=ticks or 0, generation=generation)
        write_record(record_path, record)
        child.stdin.write(b"go\n")
    except OSError:
        child.kill()
        child.wait()
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
    return Program(record=record, child=child)


def adopt(record_path: Path, *, node: str) -> Program | None:
    """The program that the record speaks of, if it still runs on this node. Raises OSError where the listing fails."""
    try:
        record = read_dir_record(record_path.parent, record_path.name, ProcessRecord)
    except UnreadableRecordError:
        return None
    if record is None or record.node != node or not is_running(record.pid, record.start_ticks):
        return None
    return Program(record=record)


async def end_leftovers(
    folder: Path, *, node: str, terminate_s: float, spare: Callable[[str], bool] = lambda _: False
) -> tuple[str, ...]:
    """End this node's programs that have a record in `folder`, but for generations to `spare`; returns their names."""
    running = {name: each for name, each in _running(folder, node).items() if not spare(each.record.generation)}
    await asyncio.gather(*(program.end(terminate_s=terminate_s) for program in running.values()))
    return tuple(running)


def _running(folder: Path, node: str) -> dict[str, Program]:
    found = {}
    for path in sorted(folder.glob("*.pid")):
        program = adopt(path, node=node)
        if program is not None:
            found[path.stem] = program
    return found


def session_members(session: int) -> tuple[int, ...]:
    """Pids of the processes, but for zombies, that belong to a session or to the process group of the same number."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names only
        if not name.isdigit():
            continue
        try:
            text = Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        # proc(5): state, ppid, pgrp, session follow the name in parentheses
        state, _, group, its_session = text.rpartition(")")[2].split()[:4]
        if state not in {"Z", "X"} and session in {int(group), int(its_session)}:
            found.append(int(name))
    return tuple(found)


def _signal(pids: tuple[int, ...], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


async def ended_by_stop(code: int | None, told: asyncio.Event) -> bool:
    """Whether a program's end belongs to the end of the job: scancel signals it and its agent alike, in any order."""
    if code in _TOLD_TO_STOP:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), timeout=_SIGNAL_SPREAD_S)
    return told.is_set()


async def _gone(pid: int, ticks: int) -> None:
    """Wait until that very process has ended: by pidfd, or by looking where the kernel has none (before 5.3)."""
    if not is_running(pid, ticks):
        return
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        while is_running(pid, ticks):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(_POLL_S)
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        if is_running(pid, ticks):  # else the pid was used again before the descriptor was opened
            await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
