"""A sweep of two placements on real parts: prediction and measurement, and what the distance costs."""

import statistics
import subprocess
from pathlib import Path

import pytest

from hpcserve.nouns import Run
from hpcserve.report import is_good
from hpcserve.wire import decode_record
from tests.real.harness import HPCSERVE, SERVICE, Parts, hpcserve, wait_for

pytestmark = [pytest.mark.timeout(1800), pytest.mark.whole_cluster]

TOP_RATE = 1.5
TRIES = 3
BLOCK_BYTES = 32 * 23_040
SWEEP = f"""\
schema: hpcserve.sweep/1
name: near-and-far
service: {SERVICE}
placements:
  - name: same-leaf
    mode: disaggregated
    distance: same-leaf
  - name: across-leaves
    mode: disaggregated
    distance: across-leaves
rates:
  - request_rate: {TOP_RATE}
    requests: 30
time: 0:20:00
"""


@pytest.fixture(scope="module")
def results(parts: Parts) -> Path:
    """The folder of a finished sweep, whose command was killed once; started once more, nothing is left to measure.

    A run that met a busy machine is invalid and measured again, as a user would do.
    """
    sweep, folder = parts.jobs / "sweep.yaml", parts.jobs / "results"
    sweep.write_text(SWEEP)
    command = list(map(str, (HPCSERVE, "sweep", sweep, "--site", parts.site, "--results", folder)))
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for("a record of the sweep's job", (folder / "job.json").is_file, within_s=60)
    killed.kill()
    killed.wait()
    attached = subprocess.run(command, capture_output=True, text=True, timeout=700, check=False)
    assert "attached to it" in attached.stdout + attached.stderr
    for _ in range(TRIES - 1):
        found = [decode_record(Run, path.read_bytes()) for path in (folder / "runs").glob("*.json")]
        if all(run.validity.valid for run in found):
            break
        hpcserve("sweep", sweep, "--site", parts.site, "--results", folder, "--retry-invalid", within_s=700)
    written = {path.name: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}
    hpcserve("sweep", sweep, "--site", parts.site, "--results", folder)
    assert written == {path.name: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}
    return folder


@pytest.fixture(scope="module")
def runs(results: Path) -> dict[tuple[str, str], Run]:
    found = [decode_record(Run, path.read_bytes()) for path in (results / "runs").glob("*.json")]
    return {(run.placement, run.load.kind): run for run in found}


@pytest.mark.parametrize("placement", ["same-leaf", "across-leaves"])
def test_a_transfer_alone_takes_what_was_predicted(runs: dict[tuple[str, str], Run], placement: str) -> None:
    run = runs[placement, "alone"]
    assert run.validity.valid, run.validity.reasons
    assert run.plan is not None
    assert {path.distance for path in run.plan.paths} == {placement}
    assert run.transfers is not None
    assert len(run.transfers.each_ms) >= 8
    assert run.predicted_transfer_ms == pytest.approx(statistics.median(run.transfers.each_ms), rel=0.05)
    expected = sum(-(-sample.input_tokens // 32) * BLOCK_BYTES for sample in run.samples)
    assert run.transfers.bytes == pytest.approx(expected, abs=BLOCK_BYTES * len(run.samples))


def test_the_far_placement_serves_fewer_good_requests(runs: dict[tuple[str, str], Run]) -> None:
    near, far = runs["same-leaf", "rate"], runs["across-leaves", "rate"]
    for run in (near, far):
        assert run.validity.valid, run.validity.reasons
        assert run.load.request_rate == TOP_RATE
        assert not run.simulated
    slo = near.service.slo
    rates = [sum(is_good(sample, slo) for sample in run.samples) / run.duration_s for run in (near, far)]
    assert rates[1] < rates[0] / 2


def test_the_report_shows_both(results: Path) -> None:
    page = results / "report.html"
    text = hpcserve("report", results, "--html", page, "--csv", results / "report.csv")
    assert "same-leaf" in text
    assert "across-leaves" in text
    assert "simulated" not in text.lower()
    assert page.read_text().count("<svg") >= 3
