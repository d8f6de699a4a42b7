"""A program of this node (a worker, the router): started in a session of its own, adopted, ended whole."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from hpcserve.discovery import is_running, process_stats, read_dir_record, start_ticks, stat_of, write_record
from hpcserve.nouns import Noun
from hpcserve.wire import UnreadableRecordError

__all__ = [
    "ProcessRecord",
    "Program",
    "adopt",
    "end_leftovers",
    "end_orphans",
    "ended_by_stop",
    "session_members",
    "start",
]

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
    sockets: tuple[socket.socket, ...] = (),
) -> Program:
    """Start `argv` in a session of its own, its output appended to `log_path`, its pid recorded before it runs.

    It inherits `sockets` under the same numbers. Raises OSError; nothing runs then.
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
            pass_fds=[each.fileno() for each in sockets],
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
    program = _recorded(record_path, node)
    return program if program is not None and is_running(program.pid, program.record.start_ticks) else None


async def end_orphans(record_path: Path, *, node: str, terminate_s: float) -> bool:
    """End what a recorded program that died while no agent looked has left behind; whether there was anything.

    An engine's children hold its GPU and its ports. Raises OSError where the listing fails.
    """
    program = _recorded(record_path, node)
    if program is None or not _has_orphans(program.record):
        return False
    await program.end(terminate_s=terminate_s)
    return True


async def end_leftovers(
    folder: Path, *, node: str, terminate_s: float, spare: Callable[[str], bool] = lambda _: False
) -> tuple[str, ...]:
    """End this node's programs that have a record in `folder`, but for generations to `spare`; returns their names.

    Of a program that has died itself, its children count.
    """
    left = {name: each for name, each in _left(folder, node).items() if not spare(each.record.generation)}
    await asyncio.gather(*(program.end(terminate_s=terminate_s) for program in left.values()))
    return tuple(left)


def _left(folder: Path, node: str) -> dict[str, Program]:
    recorded = {path.stem: _recorded(path, node) for path in sorted(folder.glob("*.pid"))}
    return {
        name: program
        for name, program in recorded.items()
        if program is not None and (is_running(program.pid, program.record.start_ticks) or _has_orphans(program.record))
    }


def _recorded(record_path: Path, node: str) -> Program | None:
    """What the record speaks of, whether it runs or not; None where there is no record of this node."""
    try:
        record = read_dir_record(record_path.parent, record_path.name, ProcessRecord)
    except UnreadableRecordError:
        return None
    return Program(record=record) if record is not None and record.node == node else None


def _has_orphans(record: ProcessRecord) -> bool:
    """Whether processes of the record's session live on without its leader.

    The kernel gives no new process a pid that is still the number of a session. So where no process has that pid,
    whoever is in the session was in it before; where one has it, the session is that one's and none of ours.
    """
    return stat_of(record.pid) is None and bool(session_members(record.pid))


def session_members(session: int) -> tuple[int, ...]:
    """Pids of the processes, but for zombies, that belong to a session or to the process group of the same number."""
    return tuple(found.pid for found in process_stats() if session in {found.group, found.session})


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
