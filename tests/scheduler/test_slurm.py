"""The Slurm launcher against commands that answer as Slurm does, and against Slurm itself."""

import subprocess
import time
from pathlib import Path

import pytest

from hpcserve.errors import MissingToolError, SchedulerError
from hpcserve.nouns import Job, JobFile, JobHandle
from hpcserve.scheduler import Launcher, SchedulerState, launcher_for, slurm
from tests.scheduler.conftest import Commands

UNKNOWN_ID = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'
NO_ACCOUNTING = 'echo "Slurm accounting storage is disabled" >&2; exit 1'


def handle(directory: Path, identity: str = "7") -> JobHandle:
    return JobHandle(name="chat-1", launcher="slurm", id=identity, directory=str(directory), submitted_utc="now")


def job(directory: Path) -> Job:
    return Job(
        name="chat-1",
        directory=str(directory),
        files=(JobFile(path="job.sbatch", text=""),),
        directives=(),
        argv=("sbatch", "--parsable", f"{directory}/job.sbatch"),
    )


def state(directory: Path, identity: str = "7") -> SchedulerState:
    return launcher_for("slurm").state(handle(directory, identity))


def test_submitting_hands_the_script_over_with_a_clean_environment(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = commands(sbatch="echo 4242")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "4000")
    monkeypatch.setenv("SBATCH_EXCLUSIVE", "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    made = launcher_for("slurm").submit(job(tmp_path / "a b"))
    assert (made.id, made.launcher, made.name) == ("4242", "slurm", "chat-1")
    assert (folder / "sbatch.words").read_text().splitlines() == ["--parsable", f"{tmp_path}/a b/job.sbatch"]
    seen = (folder / "sbatch.env").read_text()
    assert "SLURM_CONF=/etc/slurm.conf" in seen
    assert "SLURM_MEM" not in seen
    assert "SBATCH_" not in seen


def test_a_refusal_carries_slurms_words_and_a_remedy(tmp_path: Path, commands: Commands) -> None:
    commands(sbatch='echo "sbatch: error: invalid partition specified: mian" >&2; exit 1')
    with pytest.raises(SchedulerError, match=r"invalid partition specified: mian.*correct `partition`"):
        launcher_for("slurm").submit(job(tmp_path))


def test_a_machine_without_slurm_is_told_so(tmp_path: Path, commands: Commands) -> None:
    commands()
    with pytest.raises(MissingToolError, match="login node"):
        launcher_for("slurm").submit(job(tmp_path))
    with pytest.raises(MissingToolError):
        launcher_for("slurm").cancel(handle(tmp_path))


def test_a_held_job_waits_for_the_reason_that_slurm_gives(tmp_path: Path, commands: Commands) -> None:
    commands(squeue='echo "7|PENDING|JobHeldUser||N/A"', sacct=NO_ACCOUNTING)
    found = state(tmp_path)
    assert (found.word, found.phase, found.source) == ("PENDING", "pending", "squeue")
    assert "scontrol release" in found.reason


def test_an_expected_start_is_told(tmp_path: Path, commands: Commands) -> None:
    commands(squeue='echo "7|PENDING|Resources||2026-03-01T12:00:00"')
    assert state(tmp_path).reason.endswith("expected to start 2026-03-01T12:00:00")


@pytest.mark.parametrize("sacct", [NO_ACCOUNTING, "exit 127", "true"])
def test_without_accounting_the_jobs_own_record_says_how_it_ended(
    tmp_path: Path, commands: Commands, sacct: str
) -> None:
    commands(squeue=UNKNOWN_ID, sacct=sacct)
    (tmp_path / "exit.json").write_text('{"schema": "hpcserve.exit/1", "code": 0}\n')
    assert (state(tmp_path).phase, state(tmp_path).source) == ("ended", "job directory")
    (tmp_path / "exit.json").write_text('{"schema": "hpcserve.exit/1", "code": 139}\n')
    assert (state(tmp_path).phase, state(tmp_path).exit_code) == ("failed", 139)


def test_a_forgotten_job_without_a_record_is_unknown_and_not_failed(tmp_path: Path, commands: Commands) -> None:
    commands(squeue=UNKNOWN_ID, sacct=NO_ACCOUNTING)
    found = state(tmp_path)
    assert (found.phase, found.source) == ("unknown", "nothing")
    assert "does not know this job any more" in found.reason


def test_a_controller_that_does_not_answer_is_no_verdict_on_the_job(tmp_path: Path, commands: Commands) -> None:
    commands(squeue='echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1', sacct="exit 1")
    found = state(tmp_path)
    assert found.phase == "unknown"
    assert "Unable to contact slurm controller" in found.reason


def test_accounting_answers_for_what_squeue_forgot(tmp_path: Path, commands: Commands) -> None:
    commands(
        squeue=UNKNOWN_ID,
        sacct='printf "JobID|State|ExitCode|NodeList|Start\\n7|NODE_FAIL|1:0|gpu001|x\\n7.0|FAILED|9:0|gpu001|x\\n"',
    )
    found = state(tmp_path)
    assert (found.word, found.phase, found.exit_code, found.source) == ("NODE_FAIL", "failed", 1, "sacct")


def test_a_job_of_another_cluster_is_asked_for_there(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "_GRACE_S", 0.1)
    folder = commands(squeue='echo "7|RUNNING|None|n1|x"', scancel='echo "$*" >>"$0.calls"')
    assert state(tmp_path, "7;far").phase == "running"
    assert "--clusters=far" in (folder / "squeue.words").read_text().splitlines()
    launcher_for("slurm").cancel(handle(tmp_path, "7;far"))
    assert (folder / "scancel.calls").read_text().splitlines() == [
        "--batch --signal=TERM --clusters=far 7",  # its script first, which lets requests in flight end
        "--clusters=far 7",
    ]


def test_cancelling_a_job_that_is_gone_is_no_failure(tmp_path: Path, commands: Commands) -> None:
    commands(scancel='echo "scancel: error: Kill job error on job id 7: Invalid job id specified" >&2; exit 1')
    launcher_for("slurm").cancel(handle(tmp_path))
    commands(scancel='echo "scancel: error: Access denied" >&2; exit 1')
    with pytest.raises(SchedulerError, match="Access denied"):
        launcher_for("slurm").cancel(handle(tmp_path))


def await_phase(launcher: Launcher, made: JobHandle, phases: set[str]) -> SchedulerState:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = launcher.state(made)
        if found.phase in phases:
            return found
        time.sleep(0.5)
    raise AssertionError(f"{made.id} did not reach {phases}")


def real_job(directory: Path, body: str, *options: str) -> Job:
    (directory / "logs").mkdir(parents=True)
    lines = ["#SBATCH --time=5", "#SBATCH --output=/dev/null", *(f"#SBATCH {option}" for option in options)]
    (directory / "job.sbatch").write_text("\n".join(["#!/bin/bash", *lines, body, ""]))
    return job(directory)


@pytest.mark.real
def test_a_real_job_runs_is_seen_and_is_cancelled(tmp_path: Path) -> None:
    launcher = launcher_for("slurm")
    told = tmp_path / "told"
    body = f"trap 'echo told >{told}; kill %1; exit 0' TERM; sleep 60 & touch {tmp_path}/trapped; wait"
    made = launcher.submit(real_job(tmp_path / "a b", body))
    assert await_phase(launcher, made, {"running"}).nodes
    end = time.monotonic() + 20
    while not (tmp_path / "trapped").exists() and time.monotonic() < end:
        time.sleep(0.1)
    launcher.cancel(made)
    assert await_phase(launcher, made, {"ended", "failed"}).word == "COMPLETED"
    assert told.read_text() == "told\n", "a running job is told to stop before it is cancelled"


@pytest.mark.real
def test_a_real_job_that_is_held_says_why_it_waits(tmp_path: Path) -> None:
    launcher = launcher_for("slurm")
    made = launcher.submit(real_job(tmp_path / "a", "true", "--hold"))
    found = launcher.state(made)
    launcher.cancel(made)
    assert found.phase == "pending"
    assert found.reason.startswith("held by its owner")


@pytest.mark.real
def test_a_real_job_that_fails_is_told_from_one_that_ends_well(tmp_path: Path) -> None:
    launcher = launcher_for("slurm")
    well = launcher.submit(real_job(tmp_path / "well", "true"))
    badly = launcher.submit(real_job(tmp_path / "badly", "exit 3"))
    assert await_phase(launcher, well, {"ended", "failed"}).word == "COMPLETED"
    assert await_phase(launcher, badly, {"ended", "failed"}).phase == "failed"


@pytest.mark.real
def test_the_real_slurm_refuses_and_forgets_in_the_words_that_are_known(tmp_path: Path) -> None:
    launcher = launcher_for("slurm")
    with pytest.raises(SchedulerError, match="correct `partition`"):
        launcher.submit(real_job(tmp_path / "a", "true", "--partition=nowhere"))
    assert "does not know this job" in launcher.state(handle(tmp_path / "a", "999999")).reason


@pytest.mark.real
def test_directives_after_the_first_command_are_ignored_by_slurm_and_dos_line_ends_refused(tmp_path: Path) -> None:
    late = tmp_path / "late.sh"
    late.write_text("#!/bin/bash\n#SBATCH --output=/dev/null\nexport A=1\n#SBATCH --array=0-3\ntrue\n")
    answer = subprocess.run(["sbatch", "--parsable", "--hold", late], capture_output=True, text=True, check=True)
    shown = subprocess.run(
        ["scontrol", "show", "job", answer.stdout.strip()], capture_output=True, text=True, check=True
    ).stdout
    subprocess.run(["scancel", answer.stdout.strip()], check=True)
    assert "ArrayJobId" not in shown
    dos = tmp_path / "dos.sh"
    dos.write_bytes(b"#!/bin/bash\r\n#SBATCH -N 1\r\ntrue\r\n")
    refused = subprocess.run(["sbatch", dos], capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "DOS line breaks" in refused.stderr
