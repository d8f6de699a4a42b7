"""Whole sweeps on this host: submitit's debug and local executors, the local launcher, the simulated engine."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcserve.bench import BusyLimits
from hpcserve.nouns import Run
from hpcserve.report import html, report_of, text
from hpcserve.scheduler import launcher_for
from hpcserve.sweep import Outcome, Results, run_sweep

_NEVER_BUSY = BusyLimits(others_share=1.0, steal_share=1.0, dispatch_share=100.0, settle_s=0.0)

_SERVICE = """\
schema: hpcserve.service/1
name: tiny
model: {model}
served_name: tiny
engine: sim
mode: auto
partition: null
time: "0:30:00"
pools:
  - {{role: prefill, workers: 1}}
  - {{role: decode, workers: 1, args: [--no-enable-prefix-caching]}}
  - {{role: aggregated, workers: 1}}
slo: {{ttft_ms: 2000.0, tpot_ms: 500.0}}
workload: {{input_tokens: 256, output_tokens: 4, cached_prefix_tokens: 224}}
"""

_SWEEP = """\
schema: hpcserve.sweep/1
name: demo
service: service.yaml
placements:
  - {name: near, mode: disaggregated, distance: same-node}
  - {name: away, mode: disaggregated, distance: across-leaves}
  - {name: one, mode: aggregated}
rates:
  - {request_rate: 20.0, requests: 10}
time: "0:20:00"
"""

_CONFIG_JSON = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576,
"num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": 30, "max_position_embeddings": 8192,
"torch_dtype": "bfloat16", "vocab_size": 49152, "intermediate_size": 1536}"""

_DRIVER = """\
import sys
from pathlib import Path
from hpcserve.bench import BusyLimits
from hpcserve.sweep import run_sweep
limits = BusyLimits(others_share=1.0, steal_share=1.0, dispatch_share=100.0, settle_s=0.0)
try:
    run_sweep(Path(sys.argv[1]), site="local", executor="local", results=Path(sys.argv[2]), retry_invalid=False,
              show=lambda line: print(line, flush=True), limits=limits)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(_CONFIG_JSON, encoding="utf-8")
    (tmp_path / "service.yaml").write_text(_SERVICE.format(model=model), encoding="utf-8")
    path = tmp_path / "sweep.yaml"
    path.write_text(_SWEEP, encoding="utf-8")
    return path


def _left_running(folder: Path) -> list[str]:
    """Command lines of processes that belong to a job under `folder`."""
    mark = f"HPCSERVE_JOB={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text(encoding="utf-8").replace("\0", " "))
            except OSError:
                continue  # ended meanwhile
    return found


def _sweep(sweep_file: Path, results: Path) -> tuple[Outcome, list[str]]:
    lines: list[str] = []
    outcome = run_sweep(
        sweep_file, site="local", executor="debug", results=results, retry_invalid=False, show=lines.append,
        limits=_NEVER_BUSY,
    )  # fmt: skip
    return outcome, lines


@pytest.mark.timeout(300)
def test_a_sweep_measures_what_can_be_realised_and_says_why_the_rest_cannot(sweep_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    outcome, lines = _sweep(sweep_file, results)
    assert outcome.valid == ("near.alone", "near.rate-20", "one.alone", "one.rate-20"), outcome.invalid
    assert set(outcome.invalid) == {"away.alone", "away.rate-20"}
    assert all("across-leaves" in reason for reasons in outcome.invalid.values() for reason in reasons)
    assert _left_running(results) == []

    runs = Results(folder=results).runs()
    alone = runs["near.alone"]
    assert alone.simulated
    assert alone.transfers is not None
    assert alone.predicted_transfer_ms is not None
    assert len(alone.transfers.each_ms) == 8
    assert alone.transfers.bytes == 8 * 256 * 23_040
    assert all(each >= alone.predicted_transfer_ms * 0.9 for each in alone.transfers.each_ms)
    rate = runs["near.rate-20"]
    assert rate.transfers is not None
    assert rate.transfers.count == 11
    assert rate.load.generator == "hpcserve's Poisson arrivals, for simulated engines"
    assert runs["one.rate-20"].transfers is None

    report = report_of(runs.values())
    assert {placement.name for placement in report.placements} == {"near (simulated)", "one (simulated)"}
    assert "away.alone" in text(report)
    assert html(report).count("<svg") == 3

    again, lines = _sweep(sweep_file, results)
    assert again == outcome
    assert lines == ["everything is measured already"]


@pytest.fixture
def short_sweep_file(sweep_file: Path) -> Path:
    """One placement at two rates: something is left to do when the first run is there."""
    lines = sweep_file.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if "away" not in line and "one" not in line]
    at = next(place for place, line in enumerate(kept) if "request_rate" in line)
    kept.insert(at, "  - {request_rate: 10.0, requests: 10}")
    sweep_file.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return sweep_file


def _start(sweep_file: Path, results: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(sweep_file), str(results)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _await_first_run(results: Path) -> dict[str, Run]:
    end_s = time.monotonic() + 100
    while time.monotonic() < end_s:
        runs = Results(folder=results).runs()
        if "near.alone" in runs:
            return dict(runs)
        time.sleep(0.1)
    raise AssertionError("no run within 100 s")


def _finish(sweep_file: Path, results: Path, before: dict[str, Run], *, says: str = "") -> None:
    """A second start measures the rest, repeats nothing and leaves nothing."""
    second = _start(sweep_file, results)
    told, _ = second.communicate(timeout=200)
    assert second.returncode == 0, told
    assert says in told
    after = Results(folder=results).runs()
    assert after.items() >= before.items()
    assert set(after) == {"near.alone", "near.rate-10", "near.rate-20"}
    assert all(f"{name}:" not in told for name in before)
    assert _left_running(results) == []


@pytest.mark.timeout(400)
def test_ctrl_c_ends_the_service_and_a_second_start_finishes_the_rest(short_sweep_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    first = _start(short_sweep_file, results)
    before = _await_first_run(results)
    first.send_signal(signal.SIGINT)
    told, _ = first.communicate(timeout=120)
    assert first.returncode == 130, told
    assert _left_running(results) == []
    _finish(short_sweep_file, results, before)


@pytest.mark.timeout(400)
def test_a_sweep_killed_with_all_it_started_is_finished_by_a_second_start(
    short_sweep_file: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    first = _start(short_sweep_file, results)
    before = _await_first_run(results)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate(timeout=60)
    _finish(short_sweep_file, results, before)


def _submitted(results: Path) -> int:
    return len(list((results / "submitit").glob("*_submitted.pkl")))


@pytest.mark.timeout(400)
def test_a_second_start_attaches_to_the_job_of_a_killed_login_side(short_sweep_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    first = _start(short_sweep_file, results)
    before = _await_first_run(results)
    first.kill()
    first.wait(timeout=60)
    job = Results(folder=results).read_job()
    _finish(short_sweep_file, results, before, says="attached to it")
    assert _submitted(results) == 1
    assert Results(folder=results).read_job() == job
    assert first.stdout is not None
    first.stdout.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_terminated_sweep_leaves_nothing_running(
    number: signal.Signals, code: int, short_sweep_file: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    first = _start(short_sweep_file, results)
    _await_first_run(results)
    first.send_signal(number)
    os.killpg(first.pid, number)  # as timeout(1) does: the program, then its whole process group
    told, _ = first.communicate(timeout=120)
    assert first.returncode == code, told
    assert "cancelling the job" in told
    job = Results(folder=results).read_job()
    assert job is not None
    assert launcher_for("local").state(job).phase != "running"
    assert _left_running(results) == []
