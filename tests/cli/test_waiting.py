"""Waiting ends: with the service, its failure, or the word that nobody knows."""

import os
import socket
from pathlib import Path

import pytest

from hpcserve.cli import waiting
from hpcserve.discovery import start_ticks, write_record
from hpcserve.errors import ServiceError, TimeoutExpiredError, UnverifiedError
from hpcserve.nouns import JobHandle, WorkerState
from hpcserve.scheduler import SchedulerState
from hpcserve.scheduler.local import LocalLauncher
from tests.golden.cases import case


def directory_of(tmp_path: Path, identity: str) -> JobHandle:
    """A job directory as submit leaves it."""
    for file in case("local.sim").job.files:
        if "/" not in file.path:
            (tmp_path / file.path).write_text(file.text)
            (tmp_path / file.path).chmod(0o600)
    (tmp_path / "workers").mkdir()
    return JobHandle(name="sim-1", launcher="local", id=identity, directory=str(tmp_path), submitted_utc="now")


def test_one_failed_worker_ends_the_wait_with_its_last_words_though_the_job_runs_on(tmp_path: Path) -> None:
    handle = directory_of(tmp_path, f"local-{os.getpid()}-{start_ticks(os.getpid())}@{socket.gethostname()}")
    tail = ("loading", "CUDA out of memory")
    failed = WorkerState(
        id="decode-0", role="decode", node="n2", phase="failed", restarts=5, detail="exit code 1", log_tail=tail
    )
    write_record(tmp_path / "workers" / "decode-0.state.json", failed)
    with pytest.raises(ServiceError) as caught:
        waiting.await_ready(tmp_path, handle, timeout_s=1, show=lambda _: None)
    told = str(caught.value).splitlines()
    assert "decode-0 on n2 failed: exit code 1" in told
    assert [line for line in told if line.startswith("  ")] == ["  loading", "  CUDA out of memory"]
    assert "the job still holds its nodes; `hpcserve cancel sim-1` ends it" in told


def test_the_scheduler_is_asked_again_and_not_at_every_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOOK_S", 0.02)
    monkeypatch.setattr(waiting, "_ASK_S", 0.3)
    asked: list[str] = []

    class Says(LocalLauncher):
        def state(self, handle: JobHandle) -> SchedulerState:
            asked.append(handle.id)
            return SchedulerState(word="RUNNING", phase="running", reason="", source="process")

    monkeypatch.setattr(waiting, "launcher_for", lambda _name: Says())
    with pytest.raises(TimeoutExpiredError):
        waiting.await_ready(tmp_path, directory_of(tmp_path, "local-1-1@x"), timeout_s=1, show=lambda _: None)
    assert 2 <= len(asked) <= 5


def test_a_job_that_nobody_knows_of_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_UNKNOWN_S", 0.3)
    monkeypatch.setattr(waiting, "_LOOK_S", 0.05)
    handle = directory_of(tmp_path, f"local-1-1@not-{socket.gethostname()}")
    shown: list[str] = []
    with pytest.raises(UnverifiedError, match="ask there"):
        waiting.await_ready(tmp_path, handle, timeout_s=None, show=shown.append)
    assert len(shown) > 1  # a scheduler that is started again is given its time
