"""Programs: recorded before they run, seen to end at once, ended with all their children, adopted by a later agent."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcserve.agent.life import fresh_generation, is_of, life_of
from hpcserve.agent.processes import (
    ProcessRecord,
    Program,
    adopt,
    end_leftovers,
    end_orphans,
    session_members,
    start,
)
from hpcserve.agent.restarts import MAX_DEATHS, Restarts
from hpcserve.discovery import is_running, read_dir_record, start_ticks, write_record

FAMILY = "trap '' TERM; sleep 600 & sleep 600 & wait"


async def family_of(program: Program) -> None:
    while len(session_members(program.pid)) < 3:  # noqa: ASYNC110 - other processes raise no event here
        await asyncio.sleep(0.02)


def begin(tmp_path: Path, *argv: str, environment: dict[str, str] | None = None) -> Program:
    return start(
        argv,
        node="n1",
        generation="7.0-aa",
        record_path=tmp_path / "w.pid",
        log_path=tmp_path / "w.log",
        environment=dict(os.environ) if environment is None else environment,
        directory=tmp_path,
    )


def test_a_program_runs_in_its_directory_and_its_output_is_appended(tmp_path: Path) -> None:
    async def twice() -> list[int | None]:
        return [await begin(tmp_path, "bash", "-c", f"echo {word}; pwd; exit 3").ended() for word in ("one", "two")]

    assert asyncio.run(twice()) == [3, 3]
    assert (tmp_path / "w.log").read_text().split() == ["one", str(tmp_path), "two", str(tmp_path)]


def test_the_variables_of_the_agents_own_step_do_not_reach_it(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "SLURM_PROCID": "0", "PMIX_RANK": "0", "PMI_FD": "3", "KEPT": "a b\nc"}
    asyncio.run(begin(tmp_path, "env", "-0", environment=environment).ended())
    names = {entry.split("=")[0] for entry in (tmp_path / "w.log").read_text().split("\0") if entry}
    assert "KEPT" in names
    assert not {name for name in names if name.startswith(("SLURM", "PMI"))}
    assert "KEPT=a b\nc" in (tmp_path / "w.log").read_text().split("\0")


def test_it_does_not_run_where_its_pid_cannot_be_recorded(tmp_path: Path) -> None:
    (tmp_path / "w.pid").mkdir()
    (tmp_path / "w.pid" / "x").touch()
    with pytest.raises(OSError, match=r"directory"):
        begin(tmp_path, "touch", "ran")
    time.sleep(0.3)
    assert not (tmp_path / "ran").exists()


def test_ending_ends_every_process_of_the_session_even_deaf_ones(tmp_path: Path) -> None:
    async def run() -> int | None:
        program = begin(tmp_path, "bash", "-c", FAMILY)
        await family_of(program)
        await program.end(terminate_s=0.3)
        assert session_members(program.pid) == ()
        return await program.ended()

    assert asyncio.run(run()) == -signal.SIGKILL


def test_its_death_is_seen_at_once_and_its_children_are_still_found(tmp_path: Path) -> None:
    async def run() -> tuple[float, int]:
        program = begin(tmp_path, "bash", "-c", FAMILY)
        await family_of(program)
        waiting = asyncio.create_task(program.ended())
        await asyncio.sleep(0.1)
        killed_s = time.monotonic()
        os.kill(program.pid, signal.SIGKILL)
        await waiting
        seen_s = time.monotonic() - killed_s
        left = len(session_members(program.pid))
        await program.end(terminate_s=0)
        assert session_members(program.pid) == ()
        return seen_s, left

    seen_s, left = asyncio.run(run())
    assert seen_s < 0.5
    assert left == 2


def test_a_later_agent_adopts_what_still_runs_and_sees_its_end(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom hpcserve.agent.processes import start\n"
        "d = Path(sys.argv[1])\n"
        "start(('sleep', '600'), node='n1', generation='7.0-aa', record_path=d / 'w.pid', log_path=d / 'w.log',"
        " environment=os.environ, directory=d)\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)

    async def run() -> None:
        assert adopt(tmp_path / "w.pid", node="n2") is None
        program = adopt(tmp_path / "w.pid", node="n1")
        assert program is not None
        assert program.record.generation == "7.0-aa"
        waiting = asyncio.create_task(program.ended())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await program.end(terminate_s=2)
        assert await waiting is None
        assert adopt(tmp_path / "w.pid", node="n1") is None

    asyncio.run(run())


def test_a_pid_that_was_used_again_is_neither_adopted_nor_ended(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        ticks = start_ticks(bystander.pid)
        assert ticks is not None
        record = ProcessRecord(node="n1", pid=bystander.pid, start_ticks=ticks - 1, generation="7.0-aa")
        write_record(tmp_path / "w.pid", record)
        assert adopt(tmp_path / "w.pid", node="n1") is None
        assert asyncio.run(end_leftovers(tmp_path, node="n1", terminate_s=1)) == ()
        assert not asyncio.run(end_orphans(tmp_path / "w.pid", node="n1", terminate_s=1))
        assert is_running(bystander.pid, ticks)
    finally:
        bystander.kill()
        bystander.wait()


def test_children_of_a_program_that_died_while_no_agent_looked_are_ended(tmp_path: Path) -> None:
    async def run() -> None:
        for end in (end_orphans, None):
            program = begin(tmp_path, "bash", "-c", FAMILY)
            await family_of(program)
            os.kill(program.pid, signal.SIGKILL)
            await program.ended()
            assert adopt(tmp_path / "w.pid", node="n1") is None
            assert len(session_members(program.pid)) == 2
            if end is not None:
                assert not await end(tmp_path / "w.pid", node="n2", terminate_s=2)
                assert await end(tmp_path / "w.pid", node="n1", terminate_s=2)
                assert not await end(tmp_path / "w.pid", node="n1", terminate_s=2)
            else:
                assert await end_leftovers(tmp_path, node="n1", terminate_s=2) == ("w",)
            assert session_members(program.pid) == ()

    asyncio.run(run())


def test_leftovers_of_this_node_alone_are_ended(tmp_path: Path) -> None:
    async def run() -> None:
        program = begin(tmp_path, "sleep", "600")
        record = read_dir_record(tmp_path, "w.pid", ProcessRecord)
        assert record == program.record
        assert await end_leftovers(tmp_path, node="n2", terminate_s=1) == ()
        assert is_running(program.pid, program.record.start_ticks)
        assert await end_leftovers(tmp_path, node="n1", terminate_s=2) == ("w",)
        assert await program.ended() == -signal.SIGTERM

    asyncio.run(run())
    assert asyncio.run(end_leftovers(tmp_path / "missing", node="n1", terminate_s=1)) == ()


def test_starting_again_backs_off_and_ends_after_deaths_in_a_row() -> None:
    restarts, pauses = Restarts(), []
    while not restarts.exhausted:
        restarts = restarts.after_death(served_s=None)
        pauses.append(restarts.pause_s)
    assert len(pauses) == MAX_DEATHS
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert max(pauses) <= 60


def test_a_worker_that_served_is_started_again_at_once_however_often() -> None:
    restarts = Restarts()
    for _ in range(50):
        restarts = restarts.after_death(served_s=30)
        assert restarts.pause_s == 0
        assert not restarts.exhausted
    assert restarts.total == 50


def test_two_starts_that_were_waited_for_in_vain_are_enough() -> None:
    once = Restarts().after_death(served_s=None, waited_in_vain=True)
    assert not once.exhausted
    assert once.after_death(served_s=None, waited_in_vain=True).exhausted
    assert not once.after_death(served_s=30).exhausted


def test_a_requeued_job_is_another_life_and_its_former_records_are_not_its_own() -> None:
    first = life_of({"SLURM_JOB_ID": "4242"})
    second = life_of({"SLURM_JOB_ID": "4242", "SLURM_RESTART_COUNT": "1"})
    assert len({first, second, life_of({})}) == 3
    generation = fresh_generation(first)
    assert is_of(first, generation)
    assert not is_of(second, generation)
    assert generation != fresh_generation(first)
