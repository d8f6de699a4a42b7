"""The local launcher with real processes."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcserve.discovery import start_ticks
from hpcserve.errors import SchedulerError
from hpcserve.nouns import Job, JobFile, JobHandle
from hpcserve.scheduler import launcher_for, local
from hpcserve.scheduler.processes import family, marked, send

EXIT = 'printf \'{"schema": "hpcserve.exit/1", "code": %d}\\n\' $code >exit.json'

MARK = "HPCSERVE_TEST_OF"


@pytest.fixture(autouse=True)
def no_process_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test started carries its mark, in a session of its own too, and ends with it."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    end = time.monotonic() + 10
    while left := marked(MARK, str(tmp_path)):
        send(left, signal.SIGKILL)
        assert time.monotonic() < end, left
        time.sleep(0.02)


def submitted(directory: Path, body: str) -> JobHandle:
    (directory / "logs").mkdir(parents=True)
    (directory / "local.sh").write_text(f'#!/bin/bash\ncd -- "${{0%/*}}" || exit 1\n{body}\n')
    job = Job(
        name="chat-1",
        directory=str(directory),
        files=(JobFile(path="local.sh", text=""),),
        directives=(),
        argv=("bash", f"{directory}/local.sh"),
    )
    return launcher_for("local").submit(job)


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def word(handle: JobHandle) -> str:
    return launcher_for("local").state(handle).word


def reason(handle: JobHandle) -> str:
    return launcher_for("local").state(handle).reason


def test_a_job_runs_in_its_own_session_with_the_log_in_its_directory(tmp_path: Path) -> None:
    made = submitted(tmp_path / "a b'$x", 'echo "session $(ps -o sid= -p $$ | tr -d " ")"; sleep 30 & wait')
    pid = int(made.id.split("-")[1])
    log = tmp_path / "a b'$x" / "logs" / "local.out"
    until(lambda: log.exists() and log.read_text() != "")
    assert log.read_text() == f"session {pid}\n"
    assert word(made) == "RUNNING"
    launcher_for("local").cancel(made)
    assert word(made) == "FAILED"  # this script says nothing of its end
    assert family(pid) == frozenset()


def test_the_exit_record_says_how_it_ended(tmp_path: Path) -> None:
    well, badly = submitted(tmp_path / "w", f"code=0; {EXIT}"), submitted(tmp_path / "b", f"code=5; {EXIT}")
    until(lambda: word(well) != "RUNNING" and word(badly) != "RUNNING")
    assert word(well) == "COMPLETED"
    found = launcher_for("local").state(badly)
    assert (found.word, found.exit_code) == ("FAILED", 5)


def test_cancelling_lets_the_leader_end_in_order(tmp_path: Path) -> None:
    made = submitted(tmp_path, f"end() {{ code=0; {EXIT}; exit 0; }}; trap end TERM; touch up; sleep 30 & wait $!")
    until((tmp_path / "up").exists)
    launcher_for("local").cancel(made)
    assert word(made) == "COMPLETED"


def test_what_does_not_end_is_killed_even_in_a_session_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_GRACE_S", 0.5)
    monkeypatch.setattr(local, "_LEFTOVERS_S", 0.5)
    stubborn = "trap '' TERM; touch up; while true; do sleep 0.2; done"
    made = submitted(tmp_path, f'export HPCSERVE_JOB={tmp_path}; setsid bash -c "{stubborn}" & trap "" TERM; wait')
    until((tmp_path / "up").exists)
    assert marked("HPCSERVE_JOB", str(tmp_path))
    launcher_for("local").cancel(made)
    assert marked("HPCSERVE_JOB", str(tmp_path)) == frozenset()
    assert word(made) == "FAILED"


def test_orphans_of_a_killed_leader_are_ended_too(tmp_path: Path) -> None:
    made = submitted(tmp_path, f"export HPCSERVE_JOB={tmp_path}; sleep 60 & touch up; wait")
    until((tmp_path / "up").exists)
    os.kill(int(made.id.split("-")[1]), signal.SIGKILL)
    until(lambda: word(made) == "FAILED")
    assert marked("HPCSERVE_JOB", str(tmp_path))
    assert "1 of its processes still run: `hpcserve cancel chat-1` ends them" in reason(made)
    launcher_for("local").cancel(made)
    assert marked("HPCSERVE_JOB", str(tmp_path)) == frozenset()
    assert reason(made) == "its leader was killed before it could end the job"


def handle(directory: Path, identity: str) -> JobHandle:
    return JobHandle(name="chat-1", launcher="local", id=identity, directory=str(directory), submitted_utc="now")


def test_a_pid_that_is_somebody_elses_by_now_is_not_the_job(tmp_path: Path) -> None:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    host = socket.gethostname()
    assert word(handle(tmp_path, f"local-{os.getpid()}-{ticks}@{host}")) == "RUNNING"
    other = handle(tmp_path, f"local-{os.getpid()}-{ticks - 1}@{host}")
    assert word(other) == "FAILED"
    launcher_for("local").cancel(other)  # and this test goes on


def test_a_job_of_another_host_is_neither_judged_nor_signalled(tmp_path: Path) -> None:
    other = handle(tmp_path, f"local-{os.getpid()}-1@elsewhere")
    found = launcher_for("local").state(other)
    assert (found.phase, found.reason) == ("unknown", "it was started on elsewhere: ask there")
    with pytest.raises(SchedulerError, match="elsewhere"):
        launcher_for("local").cancel(other)


def test_a_job_that_dies_at_once_is_refused_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_pid: int) -> None:
        until(lambda: "no such thing" in (tmp_path / "logs" / "local.out").read_text())

    monkeypatch.setattr(local, "start_ticks", gone)
    with pytest.raises(SchedulerError, match="as soon as it was started: no such thing"):
        submitted(tmp_path, "echo no such thing >&2; exit 1")
