import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import submitit
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.deploy import ModelFiles, Planned
from hpcserve.errors import HpcserveError, PlacementError, SchedulerError
from hpcserve.fabric import fabric_of
from hpcserve.model import shape_of
from hpcserve.nouns import Distance, JobHandle, RatePoint, Run, Site, SlurmDialect, Sweep, SweepPlacement
from hpcserve.placement import place
from hpcserve.render import directive_lines
from hpcserve.sweep import Results, points_of, share
from hpcserve.sweep.executors import executor_for, explain_failure, parameters_of
from hpcserve.sweep.grid import CONFIG, missing_points
from hpcserve.sweep.shared import shared_plan
from hpcserve.sweep.submitted import paths_of
from tests.synthetic import rate_run, service, site

_NEAR = SweepPlacement(name="near", mode="disaggregated", distance=Distance.SAME_LEAF)
_FAR = SweepPlacement(name="far", mode="disaggregated", distance=Distance.ACROSS_LEAVES)
_ONE = SweepPlacement(name="one", mode="aggregated")
_CONFIG_JSON = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576,
"num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": 30, "max_position_embeddings": 8192,
"torch_dtype": "bfloat16", "vocab_size": 49152, "intermediate_size": 1536}"""


def _sweep(*placements: SweepPlacement, **changes: Any) -> Sweep:
    made = Sweep(
        schema_="hpcserve.sweep/1",
        name="demo",
        service="service.yaml",
        placements=placements or (_NEAR, _FAR),
        rates=(RatePoint(request_rate=0.5, requests=12), RatePoint(request_rate=3.0, requests=60)),
        time="0:20:00",
    )
    return made.model_copy(update=changes)


def _planned(where: Site | None = None) -> Planned:
    described, wanted = where or site(), service(engine="sim")
    shape = shape_of(_CONFIG_JSON, name="tiny", source="config.json", weights_bytes=None)
    fabric = fabric_of(described)
    return Planned(
        site=described,
        service=wanted,
        model=ModelFiles(directory=Path("/models/tiny"), config_text=_CONFIG_JSON, weights_bytes=None, trouble=""),
        shape=shape,
        fabric=fabric,
        plan=place(fabric=fabric, site=described, shape=shape, service=wanted),
        texts={},
    )


def test_points_are_alone_first_then_every_rate_and_repetitions_have_names_of_their_own() -> None:
    points = list(points_of(_sweep(repetitions=2), _NEAR, service=service(), site=site()))
    assert [point.id for point in points] == [
        "near.alone", "near.rate-0.5", "near.rate-3", "near.alone.r2", "near.rate-0.5.r2", "near.rate-3.r2",
    ]  # fmt: skip
    assert len({point.seed for point in points}) == 6
    assert [(point.kind, point.requests) for point in points[:3]] == [("alone", 8), ("rate", 12), ("rate", 60)]


def test_every_placement_meets_the_same_prompts() -> None:
    near, far = (points_of(_sweep(), each, service=service(), site=site()) for each in (_NEAR, _FAR))
    assert [point.seed for point in near] == [point.seed for point in far]


def test_a_longer_time_or_a_further_rate_leaves_what_was_measured_as_it_is() -> None:
    before = {point.id: point for point in points_of(_sweep(), _NEAR, service=service(), site=site())}
    more = (*_sweep().rates, RatePoint(request_rate=9.0, requests=9))
    after = {
        point.id: point
        for point in points_of(_sweep(rates=more, time="1:00:00"), _NEAR, service=service(), site=site())
    }
    assert before.items() <= after.items()
    assert after.keys() - before.keys() == {"near.rate-9"}


def _measured(point_id: str, config: str, **changes: Any) -> Run:
    return rate_run(rate=1.0, ttfts_ms=[1.0], id=point_id, environment={CONFIG: config}, **changes)


def _points() -> dict[str, str]:
    return {point.id: point.environment[CONFIG] for point in points_of(_sweep(), _NEAR, service=service(), site=site())}


def _left(runs: dict[str, Run], *, retry_invalid: bool = False) -> list[str]:
    points = points_of(_sweep(), _NEAR, service=service(), site=site())
    return [point.id for point in missing_points(points, runs, retry_invalid=retry_invalid)]


def test_what_is_measured_is_not_measured_again() -> None:
    wanted = _points()
    assert _left({}) == list(wanted)
    runs = {name: _measured(name, config) for name, config in wanted.items()}
    assert _left(runs) == []
    del runs["near.rate-0.5"]
    assert _left(runs) == ["near.rate-0.5"]


def test_an_invalid_run_is_measured_again_only_when_asked() -> None:
    invalid = rate_run(rate=1.0, ttfts_ms=[1.0]).validity.model_copy(update={"valid": False, "reasons": ("busy",)})
    runs = {name: _measured(name, config) for name, config in _points().items()}
    runs["near.alone"] = runs["near.alone"].model_copy(update={"validity": invalid})
    assert _left(runs) == []
    assert _left(runs, retry_invalid=True) == ["near.alone"]


def test_a_run_of_another_configuration_is_never_overwritten() -> None:
    with pytest.raises(HpcserveError, match=r"near\.alone there was measured with another service"):
        _left({"near.alone": _measured("near.alone", "another")})


def test_a_torn_run_file_counts_as_not_measured_and_is_told(tmp_path: Path) -> None:
    results = Results(folder=tmp_path / "results")
    results.make()
    results.write_run(_measured("near.alone", "x"))
    (tmp_path / "results/runs/near.rate-3.json").write_text('{"schema": "hpcserve.run/1", "id"', encoding="utf-8")
    assert list(results.runs()) == ["near.alone"]
    assert list(results.unreadable()) == ["near.rate-3"]


@pytest.mark.parametrize("name", ["job.json", "order.json"])
def test_a_torn_record_of_the_sweep_is_told_with_what_to_do(tmp_path: Path, name: str) -> None:
    results = Results(folder=tmp_path / "results")
    results.make()
    (tmp_path / "results" / name).write_text('{"schema": "hpcserve.', encoding="utf-8")
    read = results.read_job if name == "job.json" else results.read_order
    with pytest.raises(HpcserveError, match=rf"{name}: not a .*; choose another --results, or remove that file"):
        read()


def test_a_job_with_the_id_of_an_earlier_one_has_not_ended_before_it_began(tmp_path: Path) -> None:
    """Slurm on one machine counts its jobs from 1 again when the cluster is made anew."""
    results = Results(folder=tmp_path / "results")
    results.make()
    handle = JobHandle(name="demo", launcher="slurm", id="1", directory=str(tmp_path), submitted_utc="2026-01-01")
    ended = paths_of(handle, results)
    ended.result_pickle.write_bytes(b"")
    ended.stderr.write_text("what it said", encoding="utf-8")
    results.forget_endings()
    assert not ended.result_pickle.exists()
    assert ended.stderr.exists()


def test_near_and_far_share_two_nodes_of_one_leaf_and_one_of_another() -> None:
    orders = share(_sweep(_NEAR, _FAR, _ONE), _planned())
    nodes = shared_plan(orders).ask.nodelist
    assert nodes is not None
    assert len(nodes) == 3
    leaf_of = fabric_of(site()).leaf_of
    assert sorted([leaf_of(node) for node in nodes].count(leaf) for leaf in ("leaf1", "leaf2")) == [1, 2]
    for order in orders[:2]:
        assert order.plan is not None
        assert {path.distance for path in order.plan.paths} == {order.placement.distance}
        assert order.plan.ask.nodelist == order.plan.nodes
    assert orders[2].plan is not None
    assert orders[2].plan.mode == "aggregated"


def test_a_placement_that_the_site_cannot_realise_says_why_and_the_others_go_on() -> None:
    described = site()
    one_leaf = described.model_copy(
        update={"partitions": {"all": described.partitions["all"].model_copy(update={"hosts": "node[01-02]"})}}
    )
    near, far = share(_sweep(_NEAR, _FAR), _planned(one_leaf))
    assert near.plan is not None
    assert far.plan is None
    assert "across-leaves" in far.reason
    assert shared_plan((near, far)).ask.nodelist == ("node01", "node02")
    with pytest.raises(PlacementError, match="no placement of the sweep can be realised: far"):
        shared_plan((far,))


def test_a_service_over_several_partitions_is_refused() -> None:
    planned = _planned()
    first, *others = planned.service.pools
    apart = planned.service.model_copy(update={"pools": (first.model_copy(update={"partition": "b"}), *others)})
    with pytest.raises(PlacementError, match="uses partitions b and all, and a sweep has one allocation"):
        share(_sweep(), replace(planned, service=apart))


_DIALECTS = [
    SlurmDialect(gpu_request="gres", exclusive=False, switches_option=True),
    SlurmDialect(
        gpu_request="gpus-per-node", exclusive=True, switches_option=True, directives=("--qos=gpu", "--requeue")
    ),
    SlurmDialect(gpu_request="none", exclusive=True, switches_option=False, directives=('--comment="two words"',)),
]


def _options(text: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]
    return dict(" ".join(shlex.split(line)).removeprefix("--").partition("=")[::2] for line in lines)


@pytest.mark.parametrize("dialect", _DIALECTS)
def test_the_sweeps_job_asks_for_exactly_what_submits_job_asks_for(
    dialect: SlurmDialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = site().model_copy(update={"slurm": dialect})
    orders = share(_sweep(), _planned(described))
    wanted = service(account="proj 1", time="0:20:00")
    directives = directive_lines(plan=shared_plan(orders), site=described, service=wanted, directory="/x/demo")
    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda _: 2))
    executor = executor_for("slurm", folder=tmp_path, directives=directives)
    assert isinstance(executor, submitit.SlurmExecutor)
    text = executor._make_submission_file_text("true", "uid")
    ours, theirs = _options("\n".join(f"#SBATCH {line}" for line in directives)), _options(text)
    logs = {"output", "error", "open-mode"}
    assert {name: value for name, value in theirs.items() if name not in logs} == {
        name: value for name, value in ours.items() if name not in logs
    }
    assert theirs["open-mode"] == ours["open-mode"]
    assert theirs["account"] == "proj 1"
    assert text.index("#SBATCH") < text.index("export")


def test_the_job_runs_this_very_python_as_the_batch_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda _: 2))
    monkeypatch.setattr("sys.executable", "/opt/my env/bin/python3")
    executor = executor_for("slurm", folder=tmp_path, directives=("--time=0:20:00",))
    assert isinstance(executor, submitit.SlurmExecutor)
    text = executor._make_submission_file_text(executor._submitit_command_str, "uid")
    assert "\nexec '/opt/my env/bin/python3' -u -m submitit.core._submit" in text
    assert "srun" not in text


@pytest.mark.parametrize("directive", ["-C gpu", "--constraint a b", "gpu", ""])
def test_an_option_that_submitit_cannot_carry_is_refused_by_name(directive: str) -> None:
    with pytest.raises(SchedulerError, match="write it as --name=value"):
        parameters_of([directive])


def test_options_with_a_space_for_an_equals_sign_are_the_same() -> None:
    assert parameters_of(["--constraint gpu", "--requeue", "--job-name=x"]) == {
        "constraint": "gpu",
        "requeue": True,
        "job_name": "x",
    }


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=30))
def test_values_reach_submitit_as_they_were_written(value: str) -> None:
    assert parameters_of([f"--comment={shlex.quote(value)}"]) == {"comment": value}


@pytest.mark.parametrize(
    "log", ["TypeError: code() argument 13 must be str, not int", "ModuleNotFoundError: No module"]
)
def test_another_python_on_the_nodes_is_named(log: str) -> None:
    assert "Python version or packages differ" in explain_failure(log)
    assert "run the same command again" in explain_failure("Killed")
