"""Waiting ends: with the service, its failure, or the word that nobody knows."""

import socket
from pathlib import Path

import pytest

from hpcserve.cli import waiting
from hpcserve.errors import UnverifiedError
from hpcserve.nouns import JobHandle
from tests.golden.cases import case


def test_a_job_that_nobody_knows_of_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_UNKNOWN_S", 0.3)
    monkeypatch.setattr(waiting, "_LOOK_S", 0.05)
    for file in case("local.sim").job.files:
        if "/" not in file.path:
            (tmp_path / file.path).write_text(file.text)
    elsewhere = f"local-1-1@not-{socket.gethostname()}"
    handle = JobHandle(name="sim-1", launcher="local", id=elsewhere, directory=str(tmp_path), submitted_utc="now")
    shown: list[str] = []
    with pytest.raises(UnverifiedError, match="ask there"):
        waiting.await_ready(tmp_path, handle, timeout_s=None, show=shown.append)
    assert len(shown) > 1  # a scheduler that is started again is given its time
