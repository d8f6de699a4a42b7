"""Predicted against measured on worlds whose times are known: what holds must hold, what is off must fail."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.prediction.__main__ import main, vars_of
from benchmarks.prediction.judge import Judgement, judge, ranking_of
from benchmarks.prediction.replay import Compared, Point, point_of, replayed
from benchmarks.prediction.sites import pair_with_slow_node, two_slots
from benchmarks.prediction.table import page
from hpcserve.discovery import write_record
from hpcserve.errors import HpcserveError, InputError, NotFoundError
from hpcserve.fabric import fabric_of
from hpcserve.latency import LinearLatency
from hpcserve.nouns import Plan, Rank, Role, RouterSettings, Run, Sample, Site, Transfers, Validity
from hpcserve.simulate import Arrival, Lengths, Offered, Trace, deployment_of, simulate
from hpcserve.site import load_site, load_sweep
from tests import synthetic

ROOT = Path(__file__).parents[2]
HERE = ROOT / "benchmarks" / "prediction"
WORLD = LinearLatency(
    prefill_base_ms=40.0, prefill_ms_per_token=1.7, prefill_ms_per_token2=0.0, decode_base_ms=35.0,
    decode_ms_per_sequence=5.0, decode_ms_per_context_token=0.0, kv_tokens=None, source="made up", kind="predicted",
)  # fmt: skip


def plan_of(decode_node: str) -> Plan:
    if decode_node != "node01":
        return synthetic.plan(decode_node=decode_node)
    plan = synthetic.plan()
    ranks = (Rank(node="node01", gpus=(1,), nics=("data0",), cores=(1,)),)
    prefill, decode = plan.workers
    path = plan.paths[0].model_copy(update={"distance": "same-node"})
    return plan.model_copy(update={"workers": (prefill, decode.model_copy(update={"ranks": ranks})), "paths": (path,)})


def measured(
    placement: str, node: str, *, site: Site, rate: float | None, slower: float = 1.0, lag_ms: float = 0.0
) -> Run:
    """A run of the world: its links `slower` than the site says, each TTFT later by `lag_ms`."""
    plan = plan_of(node)
    fabric = fabric_of(site)
    deployment = deployment_of(
        plan,
        fabric=fabric,
        latency={Role.PREFILL: WORLD, Role.DECODE: WORLD},
        kv_bytes=lambda tokens, ranks: round(tokens * 23_040 * slower) // ranks,
    )
    count, cached = (8, 0) if rate is None else (24, 480)
    lengths = Lengths(512, 16, cached)
    offered = Offered(rate=rate or 1.0, requests=count, lengths=[lengths])
    seen = [Arrival(number * 20_000.0, lengths) for number in range(count)]
    traffic = offered if rate else Trace(seen=tuple(seen))
    records = simulate(deployment, traffic, slo=synthetic.service().slo, seed=3, keep_records=True).records
    own_ms = [(one.transferred_at_ms or 0.0) - (one.pulled_at_ms or 0.0) for one in records]
    each_ms = tuple(own_ms) if rate is None else ()
    moved = Transfers(count=count, bytes=1, failed=0, seconds=sum(own_ms) / 1e3, each_ms=each_ms)
    taken = tuple(
        Sample(
            start_s=one.arrived_at_ms / 1e3,
            input_tokens=512,
            output_tokens=16,
            ttft_ms=(one.ttft_ms or 0.0) + lag_ms,
            tpot_ms=one.tpot_ms,
        )
        for one in records
    )
    base = synthetic.rate_run(placement=placement, rate=rate or 1.0, ttfts_ms=[1.0] * count)
    load = base.load.model_copy(
        update={"kind": "rate" if rate else "alone", "request_rate": rate, "cached_prefix_tokens": cached}
    )
    name = f"{placement}.rate-{rate:g}" if rate else f"{placement}.alone"
    return base.model_copy(
        update={"id": name, "plan": plan, "site": site, "samples": taken, "transfers": moved, "load": load}
    )


@cache
def world(*, slower: float = 1.0, lag_ms: float = 0.0, slow_gb_per_s: float = 0.0125) -> tuple[Run, ...]:
    """Four placements alone and at two rates; all but the first one are off by what is given."""
    text = (ROOT / "site_configs" / "onebox.yaml").read_text(encoding="utf-8")
    site = load_site(two_slots(text), source="onebox")
    pair = pair_with_slow_node(text, slowed="node04", beside="node01", gb_per_s=slow_gb_per_s)
    slow = load_site(pair, source="slowed")
    rates = (None, 0.5, 0.8)
    runs = [measured("same-node", "node01", site=site, rate=rate) for rate in rates]
    for name, node, where in (
        ("same-leaf", "node02", site),
        ("across-leaves", "node03", site),
        ("across-slowed", "node04", slow),
    ):
        runs += [measured(name, node, site=where, rate=rate, slower=slower, lag_ms=lag_ms) for rate in rates]
    return tuple(runs)


@pytest.fixture(scope="module")
def true_world() -> Judgement:
    return judge(world(), fitted_on="same-node")


def holding(judgement: Judgement) -> list[bool]:
    return [criterion.holds for criterion in judgement.criteria]


def test_a_world_as_predicted_holds(true_world: Judgement) -> None:
    assert holding(true_world) == [True] * 4
    assert len(true_world.points) == 12
    assert {point.load for point in true_world.points} == {"alone", "0.5/s", "0.8/s"}
    for point in true_world.points:
        assert abs(point.transfer_ms.off) < 0.02
        assert abs(point.ttft_ms.off) < 0.05
    order = ("same-node", "same-leaf", "across-leaves", "across-slowed")
    assert [ranking.predicted for ranking in true_world.rankings] == [order, order]
    assert [ranking.measured for ranking in true_world.rankings] == [order, order]


def test_transfers_that_meet_take_longer_and_are_counted(true_world: Judgement) -> None:
    by_place = {(point.placement, point.load): point for point in true_world.points}
    alone, loaded = by_place["across-slowed", "alone"], by_place["across-slowed", "0.8/s"]
    assert alone.met == 0.0
    assert alone.transfer_ms.predicted == pytest.approx(512 * 23_040 / (0.0125 * 0.956e6), rel=1e-3)
    assert loaded.met > 0.3
    assert loaded.transfer_ms.predicted > 1.2 * alone.transfer_ms.predicted


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"slower": 1.12}, [False, True, True, True]),
        ({"lag_ms": 300.0}, [True, True, False, True]),
        ({"slow_gb_per_s": 0.02}, [True, True, True, True]),
    ],
    ids=["links", "ttft", "another rate that the site knows"],
)
def test_what_is_off_fails(changes: dict[str, float], expected: list[bool]) -> None:
    assert holding(judge(world(**changes), fitted_on="same-node")) == expected


def test_fitted_placement_is_not_judged() -> None:
    """Its own transfers, off by a half, change nothing."""
    runs = list(world())
    for index, run in enumerate(runs):
        if run.placement == "same-node" and run.load.kind == "rate" and run.transfers is not None:
            moved = run.transfers.model_copy(update={"seconds": run.transfers.seconds * 1.5})
            runs[index] = run.model_copy(update={"transfers": moved})
    assert holding(judge(runs, fitted_on="same-node"))[0]


def test_three_placements_are_too_few() -> None:
    runs = [run for run in world() if run.placement != "same-leaf"]
    judgement = judge(runs, fitted_on="same-node")
    assert holding(judgement) == [True, True, True, False]
    assert "no rate has 4 placements" in judgement.criteria[3].numbers
    assert not judgement.holds


def test_nothing_to_judge_does_not_hold() -> None:
    judgement = judge([run for run in world() if run.placement == "same-node"], fitted_on="same-node")
    assert holding(judgement) == [False] * 4


def point(name: str, predicted_ms: float, measured_ms: float) -> Point:
    same = Compared(predicted=1.0, measured=1.0)
    return Point(
        placement=name, request_rate=1.0, requests=8, transfers=8, transfer_ms=same, met=0.0, attainment=same,
        ttft_ms=Compared(predicted=predicted_ms, measured=measured_ms),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("figures", "swapped"),
    [
        (((100.0, 101.0), (109.0, 100.0)), ()),
        (((100.0, 101.0), (111.0, 100.0)), (("a", "b"),)),
        (((100.0, 100.0), (130.0, 101.0)), ()),
        (((100.0, 100.0), (130.0, 100.0)), (("a", "b"),)),
    ],
    ids=["too near to rank", "the other way round", "as predicted", "no difference"],
)
def test_rankings(figures: Sequence[tuple[float, float]], swapped: tuple[tuple[str, str], ...]) -> None:
    assert ranking_of([point(name, *one) for name, one in zip("ab", figures, strict=True)]).swapped == swapped


def test_what_cannot_be_judged_is_told() -> None:
    runs = world()
    broken = runs[5].model_copy(update={"validity": Validity(valid=False, reasons=("too busy",))})
    aggregated = runs[0].model_copy(update={"id": "whole.alone", "plan": synthetic.aggregated_plan()})
    judgement = judge([*runs[:5], broken, *runs[6:], aggregated], fitted_on="same-node")
    assert judgement.left_out == (
        f"{broken.id}: too busy",
        "whole.alone: it is not one prefill and one decode worker",
    )
    with pytest.raises(NotFoundError, match="same-leaf"):
        judge(runs, fitted_on="nowhere")
    with pytest.raises(HpcserveError, match="beside measured"):
        judge([runs[0].model_copy(update={"simulated": True}), *runs[1:]], fitted_on="same-node")
    with pytest.raises(HpcserveError, match="not timed"):
        point_of([runs[4].model_copy(update={"transfers": None})], WORLD)


def test_a_router_without_turns_needs_no_remark() -> None:
    router = RouterSettings(pulls_in_turn=False)
    runs = [one.model_copy(update={"service": synthetic.service(router=router)}) for one in world()]
    assert judge(runs, fitted_on="same-node").remarks == ()


def test_arrivals_are_the_runs_own() -> None:
    run = world()[1]
    shuffled = run.model_copy(update={"samples": run.samples[::-1]})
    seen = replayed(shuffled).seen
    first_s = run.samples[0].start_s
    assert [one.at_ms for one in seen] == pytest.approx([(one.start_s - first_s) * 1e3 for one in run.samples])
    assert {(one.lengths.input_tokens, one.lengths.cached_tokens) for one in seen} == {(512, 480)}


def test_warm_ups_move_kv_and_are_no_requests() -> None:
    """One more transfer than samples: the generator's own first request, alone, in the mean and nowhere else."""
    run = next(one for one in world() if one.id == "across-slowed.rate-0.8")
    assert run.transfers is not None
    warm = run.model_copy(update={"transfers": run.transfers.model_copy(update={"count": 25})})
    without, with_it = point_of([run], WORLD), point_of([warm], WORLD)
    alone_ms = 512 * 23_040 / (0.0125 * 0.956e6)
    assert with_it.transfer_ms.predicted == pytest.approx((24 * without.transfer_ms.predicted + alone_ms) / 25)
    assert (with_it.requests, with_it.transfers) == (24, 25)
    assert with_it.ttft_ms.predicted == pytest.approx(without.ttft_ms.predicted)
    assert with_it.attainment == without.attainment


def test_repetitions_are_one_point() -> None:
    run = world()[4]
    again = run.model_copy(update={"id": f"{run.id}.r2", "repetition": 2})
    once, twice = point_of([run], WORLD), point_of([run, again], WORLD)
    assert twice == replace(once, requests=48, transfers=48)


def test_pages_say_which_is_which(true_world: Judgement) -> None:
    text = page(true_world)
    assert "same-node*" in text
    assert "note: the router of these runs let pulls take turns" in text
    assert "fitted on same-node" in text
    assert text.count("holds: ") == 4
    assert "simulated engine" not in text
    assert "simulated engine's own clock" in page(replace(true_world, simulated=True))
    assert "FAILS: " in page(replace(true_world, criteria=tuple(
        replace(criterion, holds=False) for criterion in true_world.criteria
    )))  # fmt: skip
    made = vars_of(replace(true_world, latency=true_world.latency.model_copy()))
    del made["latency"]
    assert len(json.loads(json.dumps(made))["points"]) == 12


def test_the_exit_code_is_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over two results folders, as the two sweeps leave them: 0 where all holds, 1 where not, 3 for no folder."""
    fast, slow = tmp_path / "fast", tmp_path / "slow"
    for folder, runs in ((fast, world()), (slow, world())):
        (folder / "runs").mkdir(parents=True)
        for run in runs:
            if (run.placement == "across-slowed") == (folder != fast):
                write_record(folder / "runs" / f"{run.id}.json", run)

    def answer(*folders: Path, placement: str = "same-node") -> int:
        words = ["prediction", *map(str, folders), "--fit-on", placement, "--json"]
        monkeypatch.setattr("sys.argv", words)
        return main()

    assert answer(fast, slow) == 0
    assert json.loads(capsys.readouterr().out)["holds"] is True
    assert answer(fast) == 1
    assert json.loads(capsys.readouterr().out)["holds"] is False
    assert answer(fast, tmp_path) == NotFoundError.exit_code
    assert answer(fast, slow, placement="nowhere") == NotFoundError.exit_code
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("site", [ROOT / "site_configs" / "onebox.yaml", HERE / "local.site.yaml"])
def test_sites_of_the_four_placements(site: Path) -> None:
    text = site.read_text(encoding="utf-8")
    nodes = ("local1", "local4") if "local" in site.name else ("node01", "node04")
    wide = load_site(two_slots(text), source="wide")
    assert {node_type.gpu.count for node_type in wide.node_types.values()} == {2}
    pair = load_site(pair_with_slow_node(text, beside=nodes[0], slowed=nodes[1], gb_per_s=0.0125), source="pair")
    path = next(iter(pair.nodes)), pair.node_types["slowed"].nics[0].rate
    assert path[1] is not None
    assert path[1].nominal_gb_per_s == 0.0125
    assert fmean([group.hosts.count(",") for group in pair.nodes]) == 0
    assert [switch.name for switch in pair.switches] == ["leaf1", "leaf2", "spine"]
    with pytest.raises(InputError, match="no node elsewhere"):
        pair_with_slow_node(text, beside=nodes[0], slowed="elsewhere", gb_per_s=1.0)


def test_both_sweeps_offer_the_same() -> None:
    one, other = (
        load_sweep((HERE / f"{name}.sweep.yaml").read_text(encoding="utf-8"), source=name)
        for name in ("placements", "slowed")
    )
    assert (one.rates, one.alone_requests, one.repetitions) == (other.rates, other.alone_requests, other.repetitions)
    assert len({placement.name for placement in (*one.placements, *other.placements)}) == 4
