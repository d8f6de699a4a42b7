"""`hpcserve doctor` as it is typed, on this host."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcserve.cli.program import run
from tests.doctor.hosts import ETHERNET

CODES = {"ok": 0, "warning": 10, "failure": 11}


def _site(folder: Path, *, slurm: bool) -> Path:
    text = (
        ETHERNET.replace("interface: ctl0", "interface: lo")
        .replace("interface: data0", "interface: lo")
        .replace("name: data0", "name: lo")
        .replace("  vllm: {kind: venv, path: /envs/vllm}\n", "")
        .replace("/shared", str(folder))
    )
    if not slurm:
        text = text.replace("slurm: {gpu_request: gres, exclusive: false, switches_option: false}", "slurm: null")
    path = folder / "site.yaml"
    path.write_text(text)
    (folder / "models").mkdir()
    return path


def test_without_slurm_this_host_is_looked_at_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["doctor", "--site", str(_site(tmp_path, slurm=False)), "--json"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == CODES[report["severity"]]
    assert report["nodes"] == ["p1"]
    said = {one["check"]: one for one in report["findings"]}
    assert said["nodes"]["what"] == "the site has no Slurm: only this host was looked at"
    assert said["networks"]["severity"] == "ok"
    assert not [one for one in report["findings"] if one["severity"] == "failure"]
    assert list((tmp_path / "jobs").iterdir()) == []


def test_a_slurm_that_does_not_answer_is_a_failure_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "no-such.conf"))
    assert run(["doctor", "--site", str(_site(tmp_path, slurm=True)), "--all"]) == 11
    printed = capsys.readouterr().out
    assert f"FAILURE  slurm-commands: scontrol: SLURM_CONF is {tmp_path}/no-such.conf, which is not there" in printed
    assert "no compute node was looked at, as Slurm cannot be asked" in printed


def test_a_controller_that_is_away_is_told_in_slurms_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("sbatch", "srun", "scontrol", "sinfo"):
        (commands / name).write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
        (commands / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    assert run(["doctor", "--site", str(_site(tmp_path, slurm=True)), "--all"]) == 11
    printed = capsys.readouterr().out
    assert "FAILURE  slurm-commands: scontrol: Unable to contact slurm controller" in printed
    assert "no compute node was looked at, as Slurm cannot be asked" in printed


def test_a_look_that_takes_too_long_is_a_warning_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["hpcserve.doctor.survey"], "STEP_MINUTES", 0.001)
    assert run(["doctor", "--site", str(_site(tmp_path, slurm=False))]) == 10
    assert "WARNING  node: began, and was not done within 0.06 s" in capsys.readouterr().out


def test_a_directory_of_jobs_that_cannot_be_made_is_an_error_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = _site(tmp_path, slurm=False)
    (tmp_path / "jobs").write_text("")
    assert run(["doctor", "--site", str(site)]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_a_host_list_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--site", str(_site(tmp_path, slurm=False)), "--nodes", "p[1-"]) == 2
    assert "p[1-" in capsys.readouterr().err
