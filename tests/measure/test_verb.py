"""`hpcserve site measure` as a person meets it, with a stand-in for Slurm; tests/real runs the same verb for real."""

import importlib
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hpcserve.cli import measurement_waiting
from hpcserve.cli.program import run
from hpcserve.deploy import SubmittedMeasurement
from hpcserve.measure import Errand, Progress
from hpcserve.nouns import Measurement
from hpcserve.scheduler import SchedulerState
from hpcserve.wire import decode_record

ROOT = Path(__file__).parents[2]
site_measure = importlib.import_module("hpcserve.cli.site_measure")
"""By its path: the package's name for it is the command."""
Captured = pytest.CaptureFixture[str]

SBATCH = """\
#!{python}
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from hpcserve.measure import Errand, Reading
from hpcserve.measure.readings import add_reading
from hpcserve.wire import decode_record

directory = Path(sys.argv[-1]).parent
errand = decode_record(Errand, (directory / "measure.json").read_bytes())
for number, tasks in enumerate(errand.rounds[:{rounds}]):
    for place, task in enumerate(tasks):
        for flow in task.flows:
            reading = Reading(round=number, task=place, flow=flow, attempt=1, batch_bytes=2**24, latency_us=90.0,
                              batches_s=((0.0, 0.15), (0.15, 0.3)), transport="tcp", device="data0", nixl="1.5.2")
            add_reading(directory, reading, seat=errand.seats[flow.reader].node)
print("measure.sbatch: attempt 1 ended with 137", file=(directory / "logs" / "slurm.out").open("w"))
print(77)
"""
SQUEUE = """\
#!/bin/sh
echo '77|{state}|None|0:0|node[01-04]|N/A'
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def slurm(here: Path, *, state: str, rounds: int) -> None:
    for name, text in (
        ("sbatch", SBATCH.format(python=sys.executable, root=str(ROOT), rounds=rounds)),
        ("squeue", SQUEUE.format(state=state)),
    ):
        (here / "bin" / name).write_text(text)
        (here / "bin" / name).chmod(0o755)


def measure(here: Path, *words: str) -> int:
    return run(["site", "measure", "--site", "onebox", "--jobs-dir", str(here / "jobs"), *words])


def test_a_dry_run_shows_the_rounds_and_makes_nothing(here: Path, capsys: Captured) -> None:
    assert measure(here, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "12 pairs (every pair)" in said
    assert "together over leaf1 up, leaf2 down" in said
    assert measure(here, "--dry-run", "--json") == 0
    assert len(decode_record(Errand, capsys.readouterr().out.encode()).rounds) == 8
    assert sorted(path.name for path in here.iterdir()) == ["bin"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--nodes", "node[01-02"], 2, "node[01-02"),
        (["--nodes", "node[01-09]"], 4, "node[05-09] is not in partition main"),
        (["--nodes", "node01"], 4, "name two nodes or more"),
        (["--partition", "gpu"], 4, "no partition gpu; it has main"),
        (["--site", "local"], 4, "no Slurm"),
        (["--site", "nowhere"], 3, "no site `nowhere`"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_made(
    here: Path, capsys: Captured, words: list[str], code: int, told: str
) -> None:
    assert measure(here, *words) == code
    assert told in capsys.readouterr().err
    assert not (here / "jobs").exists()


def test_a_site_without_an_mpi_type_is_told_which_key_is_missing(here: Path, capsys: Captured) -> None:
    text = (ROOT / "site_configs" / "onebox.yaml").read_text()
    (here / "mine.yaml").write_text("\n".join(line for line in text.splitlines() if not line.startswith("  mpi:")))
    assert measure(here, "--site", "mine.yaml") == 4
    assert "slurm.mpi" in capsys.readouterr().err


def test_a_whole_run_is_written_and_shown(here: Path, capsys: Captured) -> None:
    slurm(here, state="COMPLETED", rounds=99)
    assert measure(here, "--output", "out.json", "--json") == 0
    said, told = capsys.readouterr()
    found = decode_record(Measurement, said.encode())
    assert decode_record(Measurement, (here / "out.json").read_bytes()) == found
    assert len(found.pairs) == 12
    assert "attempt 1 ended with 137" in told
    assert json.loads((here / "jobs" / "measure-onebox-1" / "measurement.json").read_bytes())["site"] == "onebox"


def test_half_a_run_is_kept_and_is_no_success(here: Path, capsys: Captured) -> None:
    slurm(here, state="TIMEOUT", rounds=2)
    assert measure(here, "--output", "out.json") == 9
    said, told = capsys.readouterr()
    found = decode_record(Measurement, (here / "out.json").read_bytes())
    assert len(found.pairs) == 4
    assert "the job ended with TIMEOUT" in found.missing[0]
    assert "its rank ended before it was measured" in said
    assert "are missing" in told


def test_nothing_measured_is_a_failure_with_the_reasons(here: Path, capsys: Captured) -> None:
    slurm(here, state="FAILED", rounds=0)
    assert measure(here, "--output", "out.json") == 7
    assert "nothing was measured: Slurm says FAILED" in capsys.readouterr().err
    assert not (here / "out.json").exists()


def test_what_ranks_lack_is_told_first_and_once(here: Path, capsys: Captured) -> None:
    slurm(here, state="FAILED", rounds=0)
    lines = "\n".join(f"no MPI on node0{number}: No module named 'mpi4py'; install it" for number in range(1, 5))
    sbatch = here / "bin" / "sbatch"
    sbatch.write_text(
        sbatch.read_text().replace("measure.sbatch: attempt 1 ended with 137", lines.replace("\n", "\\n"))
    )
    assert measure(here, "--output", "out.json") == 7
    head, _, log = capsys.readouterr().err.partition("the end of its log:")
    assert "no MPI on node01: No module named 'mpi4py'; install it (3 more like this)" in head
    assert head.count("mpi4py") == 1
    assert head.count("its rank ended before it was measured") == 1
    assert log.count("mpi4py") == 4


def take_up(here: Path, job: str, *words: str) -> int:
    return run(["site", "measure", "--job", job, "--jobs-dir", str(here / "jobs"), *words])


def test_what_a_command_that_was_killed_has_ordered_can_be_fetched_later(here: Path, capsys: Captured) -> None:
    slurm(here, state="RUNNING", rounds=99)
    log = here / "told"
    with log.open("w") as told:
        command = subprocess.Popen(
            [sys.executable, "-m", "hpcserve", "site", "measure", "--site", "onebox", "--jobs-dir", str(here / "jobs")],
            stdout=told,
            stderr=told,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    try:
        while "RUNNING" not in log.read_text():
            assert command.poll() is None, log.read_text()
            time.sleep(0.05)
    finally:
        command.kill()
        command.wait()
    directory = here / "jobs" / "measure-onebox-1"
    assert f"hpcserve site measure --job {directory}" in log.read_text()
    assert not (directory / "measurement.json").exists()

    slurm(here, state="COMPLETED", rounds=99)
    for number, job in enumerate(("77", "measure-onebox-1", str(directory))):
        assert take_up(here, job, "--output", f"out{number}.json", "--json") == 0
        said = capsys.readouterr().out.encode()
        assert len(decode_record(Measurement, said).pairs) == 12
        assert (here / f"out{number}.json").read_bytes() == (directory / "measurement.json").read_bytes() == said


def test_ctrl_c_ends_the_job_and_says_so(here: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm(here, state="RUNNING", rounds=0)
    (here / "bin" / "scancel").write_text(f'#!/bin/sh\necho "$@" >> {here}/cancelled\n')
    (here / "bin" / "scancel").chmod(0o755)

    def interrupted(_submitted: SubmittedMeasurement) -> SchedulerState:
        raise KeyboardInterrupt

    monkeypatch.setattr(site_measure, "await_measurement", interrupted)
    assert measure(here, "--output", "out.json") == 130
    assert "job 77 is ended" in capsys.readouterr().err
    assert "77" in (here / "cancelled").read_text()


def test_after_the_last_round_the_end_of_the_job_is_waited_for(
    here: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm(here, state="RUNNING", rounds=99)
    looks = 0

    def looked(_directory: Path, _file: str, _kind: type[Progress]) -> Progress:
        nonlocal looks
        looks += 1
        if looks > 1:
            slurm(here, state="COMPLETED", rounds=99)
        return Progress(attempt=1, done=8, of=8, text="")

    monkeypatch.setattr(measurement_waiting, "read_dir_record", looked)
    monkeypatch.setattr(measurement_waiting, "_LOOK_S", 0.01)
    assert measure(here, "--output", "out.json") == 0
    assert "all 8 rounds are through; waiting for the end of job 77" in capsys.readouterr().err


def test_a_measurement_has_the_day_of_its_readings_and_not_of_when_it_is_fetched(here: Path) -> None:
    slurm(here, state="COMPLETED", rounds=99)
    assert measure(here, "--output", "out.json") == 0
    then_s = datetime(2026, 5, 31, 23, 59, tzinfo=UTC).timestamp()
    for path in (here / "jobs" / "measure-onebox-1" / "readings").iterdir():
        os.utime(path, (then_s, then_s))
    assert take_up(here, "77") == 0
    assert decode_record(Measurement, (here / "onebox.measured-2026-05-31.json").read_bytes()).day == "2026-05-31"


def test_a_job_that_is_taken_up_keeps_what_it_was_ordered_with(here: Path, capsys: Captured) -> None:
    slurm(here, state="COMPLETED", rounds=99)
    assert take_up(here, "77", "--nodes", "node01", "--dry-run") == 2
    assert "leave out --nodes, --dry-run" in capsys.readouterr().err
    assert run(["site", "measure"]) == 2
    assert "Missing option '--site' (or '--job'" in capsys.readouterr().err


def test_a_job_that_is_no_measurement_is_told_so(here: Path, capsys: Captured) -> None:
    assert take_up(here, "77") == 3
    assert f"no measurement `77` in {here / 'jobs'}" in capsys.readouterr().err
    other = here / "jobs" / "measure-torn-1"
    other.mkdir(parents=True)
    assert take_up(here, str(other)) == 3
    assert "is no measurement that was submitted" in capsys.readouterr().err
    (other / "measure.json").write_text("{")
    assert take_up(here, str(other)) == 3
    assert "cannot be read" in capsys.readouterr().err
    assert take_up(here, "./nowhere") == 3
    assert "nowhere" in capsys.readouterr().err
