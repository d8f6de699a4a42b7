"""One rank of a measuring job: `python -m hpcserve.measure.rank DIRECTORY ATTEMPT`, started by srun.

MPI only says when: barriers between rounds, and who has which memory. NIXL runs in a process of its own that is started
before MPI_Init, as Open MPI may load a UCX of its own.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from hpcserve.discovery import read_dir_record, write_record
from hpcserve.measure.errand import ERRAND_FILE, PROGRESS_FILE, START_S, Errand, Flow, Progress, Reading, Task
from hpcserve.measure.evidence import nic_received_bytes, read_transport
from hpcserve.measure.nixl_process import NixlProcess, NixlProcessError, child_environment
from hpcserve.measure.readings import add_reading, read_readings
from hpcserve.measure.words import NO_MPI

__all__ = ["main"]

_SHORT_S = 30.0
_FEWEST_BATCHES = 3
"""Of a pair alone, for a median and a spread. Flows together need one: what counts is the time when all of them ran."""
_FINER = 4
"""Flows together read in smaller parts: what a flow reads after another ended counts in part, as if at one pace."""
_LOOK_S = 0.005
"""Between two looks at a barrier: MPI's own waiting would keep a core busy beside the one that measures."""
_MOST_WORDS = 3
"""Pairs that are named of a round."""
INCOMPLETE = 3
"""Exit code where some flow has no figures."""


def main(directory: Path, attempt: int) -> int:
    """Take this rank's part in every round; 0 where all flows have figures."""
    errand = read_dir_record(directory, ERRAND_FILE, Errand)
    if errand is None:
        sys.stderr.write(f"{directory} has no {ERRAND_FILE}\n")
        return 1
    here = (os.environ["SLURMD_NODENAME"], int(os.environ["SLURM_LOCALID"]))
    mine = next((number for number, seat in enumerate(errand.seats) if (seat.node, seat.place) == here), None)
    nixl = None if mine is None else _Nixl(errand, mine, directory)
    try:
        return _take_part(errand, mine, nixl, directory, attempt)
    finally:
        if nixl is not None:
            nixl.end()


class _Nixl:
    """This rank's NIXL process, or why there is none."""

    def __init__(self, errand: Errand, mine: int, directory: Path) -> None:
        seat = errand.seats[mine]
        argv = [
            *("bash", "runtimes/vllm.sh", "python", "measure_child.py"),
            *("--name", seat.name, "--backend", errand.backend, "--buffer-bytes", str(errand.buffer_bytes)),
            *("--pause-us", str(errand.pause_us)),
            *(("--gpu", str(seat.gpu)) if seat.in_gpu_memory else ()),
        ]
        self.trouble = ""
        self.nixl = ""
        self.card: dict[str, Any] | None = None
        self._process = NixlProcess(
            argv,
            env=child_environment(os.environ, seat.env),
            log=directory / "logs" / f"nixl.{seat.node}.{seat.place}.log",
        )

    def introduce(self) -> dict[str, Any] | None:
        """What others need to read from here; None, with the trouble noted, where NIXL did not start."""
        try:
            said = self._process.answer(within_s=START_S)
        except NixlProcessError as error:
            self.trouble = str(error)
            return None
        self.nixl = str(said["nixl"])
        self.card = said["card"]
        return self.card

    def ask(self, *, within_s: float = _SHORT_S, **command: Any) -> dict[str, Any]:
        """One command; raises NixlProcessError."""
        if self.trouble:
            raise NixlProcessError(self.trouble)
        return self._process.ask(within_s=within_s, **command)

    def transport(self) -> tuple[str, str] | None:
        """Transport and device of the reads so far, in UCX's words."""
        return read_transport(self._process.printed())

    def end(self) -> None:
        """End the process."""
        self._process.end()


def _take_part(errand: Errand, mine: int | None, nixl: _Nixl | None, directory: Path, attempt: int) -> int:
    try:
        import mpi4py  # noqa: PLC0415 - after the NIXL process was started

        mpi4py.rc.initialize = False
        from mpi4py import MPI  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:
        sys.stderr.write(
            f"{NO_MPI}{os.environ['SLURMD_NODENAME']}: {error}; install hpcserve[measure] into its environment,"
            " and load an MPI library by `modules` of the runtime `hpcserve`\n"
        )
        return 1
    MPI.Init()
    comm = MPI.COMM_WORLD
    card = nixl.introduce() if nixl is not None else None
    _meet(comm)
    known: list[tuple[int | None, dict[str, Any] | None, str]] = comm.allgather(
        (mine, card, nixl.trouble if nixl is not None else "")
    )
    cards = {number: card for number, card, _ in known if number is not None}
    troubles = {number: trouble for number, _, trouble in known if number is not None}
    done = {(each.round, each.task, each.flow) for each in read_readings(directory) if not each.error}
    failed = 0
    for number, tasks in enumerate(errand.rounds):
        if comm.rank == 0:
            text = ", ".join(_words(errand, task) for task in tasks[:_MOST_WORDS])
            text += f" and {len(tasks) - _MOST_WORDS} more" if len(tasks) > _MOST_WORDS else ""
            write_record(
                directory / PROGRESS_FILE, Progress(attempt=attempt, done=number, of=len(errand.rounds), text=text)
            )
        flows = [(place, flow) for place, task in enumerate(tasks) for flow in task.flows]
        is_read_from = nixl is not None and any(flow.source == mine for _, flow in flows)
        if nixl is not None and is_read_from:
            _tell(nixl, "serve")
        _meet(comm)
        for place, flow in flows:
            if nixl is None or mine is None or flow.reader != mine or (number, place, flow) in done:
                continue
            reading = Reading(round=number, task=place, flow=flow, attempt=attempt, nixl=nixl.nixl)
            peer = cards.get(flow.source)
            if peer is None:
                source = errand.seats[flow.source]
                trouble = troubles.get(flow.source) or f"no rank runs on {source.node}"
                reading = reading.model_copy(update={"error": f"{source.name}: {trouble}"})
            else:
                reading = _read(errand, errand.seats[mine].nic, nixl, peer, reading)
            seat = errand.seats[mine]
            add_reading(directory, reading, seat=f"{seat.node}.{seat.place}")
            failed += bool(reading.error)
        _meet(comm)
        if nixl is not None and is_read_from:
            _tell(nixl, "rest")
    if comm.rank == 0:
        rounds = len(errand.rounds)
        write_record(directory / PROGRESS_FILE, Progress(attempt=attempt, done=rounds, of=rounds, text="done"))
    _meet(comm)
    failed_anywhere = comm.allreduce(failed)
    MPI.Finalize()
    return INCOMPLETE if failed_anywhere else 0


def _read(errand: Errand, nic: str, nixl: _Nixl, peer: dict[str, Any], reading: Reading) -> Reading:
    is_together = bool(errand.rounds[reading.round][reading.task].links)
    before = nic_received_bytes(nic)
    try:
        said = nixl.ask(
            do="read",
            peer=peer,
            block_bytes=errand.block_bytes,
            blocks=max(1, errand.blocks // _FINER) if is_together else errand.blocks,
            fewest=1 if is_together else _FEWEST_BATCHES,
            seconds=2 * errand.seconds if is_together else errand.seconds,
            give_up_s=errand.within_s,
            within_s=errand.within_s + _SHORT_S,
        )
    except NixlProcessError as error:
        return reading.model_copy(update={"error": str(error)})
    after = nic_received_bytes(nic)
    chosen = nixl.transport()
    return reading.model_copy(
        update={
            "batch_bytes": said["batch_bytes"],
            "batches_s": tuple((start, end) for start, end in said["batches_s"]),
            "latency_us": said["latency_us"],
            "moved_bytes": said["moved_bytes"],
            "transport": chosen[0] if chosen else None,
            "device": chosen[1] if chosen else None,
            "nic_bytes": None if before is None or after is None else after - before,
        }
    )


def _tell(nixl: _Nixl, word: str) -> None:
    """Tell the process what to do meanwhile; one that is dead is noticed by who reads from it."""
    try:
        nixl.ask(do=word)
    except NixlProcessError as error:
        nixl.trouble = nixl.trouble or str(error)


def _meet(comm: Any) -> None:
    """Wait until every rank is here."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(_LOOK_S)


def _words(errand: Errand, task: Task) -> str:
    if task.links:
        return f"{len(task.flows)} flows over {', '.join(task.links)}"
    return _arrow(errand, task.flows[0])


def _arrow(errand: Errand, flow: Flow) -> str:
    return f"{errand.seats[flow.source].node} to {errand.seats[flow.reader].node}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
