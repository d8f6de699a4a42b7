import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcserve.errors import HpcserveError
from hpcserve.nouns import Report, Run, Slo, Transfers, Validity
from hpcserve.report import csv, html, report_of, text
from hpcserve.wire import decode_record, encode_record
from tests.report.grounds import FAST_MS, SLOW_MS, near_and_far
from tests.synthetic import NEAR_MS, aggregated_plan, alone_run, rate_run, service

_GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("form", [text, csv, html])
def test_the_forms_are_the_golden_ones_byte_for_byte(form: object) -> None:
    forms = {text: "report.txt", csv: "report.csv", html: "report.html"}
    for make, name in forms.items():
        if make is form:
            assert make(report_of(near_and_far())).encode() == (_GOLDEN / name).read_bytes()


def test_the_report_does_not_depend_on_the_order_of_the_runs_and_reads_back_equal() -> None:
    report = report_of(near_and_far())
    assert report == report_of(reversed(near_and_far()))
    assert decode_record(Report, encode_record(report)) == report


def test_an_invalid_run_gives_its_reason_and_no_number_anywhere() -> None:
    report = report_of(near_and_far())
    far = next(placement for placement in report.placements if placement.name == "far")
    assert [result.request_rate for result in far.rates] == [1.0]
    assert all(result.load != 3.0 for result in far.transfers)
    frame = pd.read_csv(io.StringIO(csv(report)))
    row = frame[frame["run"] == "far.rate-3"].iloc[0]
    assert "too busy" in row["reason"]
    assert row.drop(["placement", "run", "valid", "reason"]).isna().all()


def test_transfers_alone_are_the_median_and_under_load_the_mean() -> None:
    near = report_of(near_and_far()).placements[1]
    alone, loaded = near.transfers[0], near.transfers[1]
    assert (alone.load, alone.transfers, alone.typical_ms) == ("alone", 8, NEAR_MS)
    assert alone.min_ms == pytest.approx(NEAR_MS * 0.98)
    assert alone.ratio == pytest.approx(1.0)
    assert (loaded.load, loaded.transfers) == (1.0, 20)
    assert loaded.typical_ms == pytest.approx(100.0)


def test_repetitions_are_pooled_and_their_spread_is_shown() -> None:
    first = rate_run(rate=1.0, ttfts_ms=[FAST_MS] * 10)
    second = rate_run(rate=1.0, ttfts_ms=[FAST_MS] * 5 + [SLOW_MS] * 5, id="near.rate-1.r2", repetition=2)
    result = report_of([first, second]).placements[0].rates[0]
    assert (result.repetitions, result.good, result.requests, result.attainment) == (2, 15, 20, 0.75)
    assert (result.good_per_s_min, result.good_per_s, result.good_per_s_max) == (0.5, 0.75, 1.0)


def test_what_was_simulated_is_never_pooled_with_what_was_measured() -> None:
    real = rate_run(rate=1.0, ttfts_ms=[FAST_MS] * 10)
    simulated = rate_run(rate=1.0, ttfts_ms=[SLOW_MS] * 10, id="near.rate-1.r2", simulated=True)
    report = report_of([real, simulated])
    assert [placement.name for placement in report.placements] == ["near", "near (simulated)"]
    assert "(simulated) were not measured" in text(report)


def test_runs_of_different_limits_are_refused() -> None:
    other = service(slo=Slo(ttft_ms=5.0, tpot_ms=150.0))
    with pytest.raises(HpcserveError, match="different SLO"):
        report_of(
            [rate_run(rate=1.0, ttfts_ms=[1.0]), rate_run(placement="far", rate=1.0, ttfts_ms=[1.0], service=other)]
        )
    with pytest.raises(HpcserveError, match="no run"):
        report_of([])


def test_nothing_valid_recommends_nothing() -> None:
    dead = Validity(valid=False, reasons=("no output token came",))
    report = report_of([rate_run(rate=1.0, ttfts_ms=[1.0], validity=dead)])
    assert report.placements == ()
    assert "nothing can be recommended" in text(report)
    assert "no valid run" in html(report)


def _baseline(ttfts_ms: list[float]) -> Run:
    none = Transfers(count=0, bytes=0, failed=0, seconds=0.0)
    run = rate_run(placement="one", rate=1.0, ttfts_ms=ttfts_ms, transfers=none, predicted_transfer_ms=None)
    return run.model_copy(update={"plan": aggregated_plan()})


@pytest.mark.parametrize(
    ("near", "baseline", "words"),
    [
        ([FAST_MS] * 40, [SLOW_MS] * 40, "Disaggregation pays here: near is better than one (2 GPUs against 1"),
        ([SLOW_MS] * 40, [FAST_MS] * 40, "Leave disaggregation alone here: one is at least as good"),
        ([FAST_MS] * 40, [FAST_MS] * 40, "Leave disaggregation alone here: one is at least as good"),
        ([FAST_MS] * 2, [SLOW_MS] * 2, "not shown to be better than one"),
    ],
)
def test_the_baseline_decides_whether_to_leave_disaggregation_alone(
    near: list[float], baseline: list[float], words: str
) -> None:
    report = report_of([rate_run(rate=1.0, ttfts_ms=near), _baseline(baseline)])
    assert any(words in sentence for sentence in report.recommendation)


def test_without_a_baseline_the_report_does_not_claim_that_disaggregation_pays() -> None:
    assert any("No aggregated baseline" in sentence for sentence in report_of(near_and_far()).recommendation)


def test_a_transfer_alone_that_is_far_from_the_prediction_points_at_the_site_file() -> None:
    runs = [alone_run(each_ms=[NEAR_MS * 2] * 8), rate_run(rate=1.0, ttfts_ms=[FAST_MS] * 5)]
    assert any("2.00 times the prediction" in sentence for sentence in report_of(runs).recommendation)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}]


def test_the_page_needs_nothing_else_and_escapes_what_users_wrote() -> None:
    page = html(report_of(near_and_far()))
    links = _Links()
    links.feed(page)
    assert links.fetched == []
    assert links.tags.isdisjoint({"script", "link", "img", "iframe", "b"})
    assert not re.search(r"@import|url\(", page)
    assert page.count("<svg") == 3
    assert "&lt;b&gt;27" in page


@pytest.mark.parametrize("change", [{"samples": ()}, {"duration_s": 0.0}, {"plan": None}])
def test_a_run_without_anything_to_count_is_invalid_whatever_it_says(change: dict[str, Any]) -> None:
    report = report_of([rate_run(rate=1.0, ttfts_ms=[FAST_MS]).model_copy(update=change)])
    assert report.placements == ()
    assert [run.id for run in report.invalid] == ["near.rate-1"]


def test_without_a_valid_run_no_form_shows_an_empty_table() -> None:
    busy = Validity(valid=False, reasons=("busy",))
    report = report_of([run.model_copy(update={"validity": busy}) for run in near_and_far()])
    assert text(report).count("  no valid run\n") == 3
    page = html(report)
    assert "<table" not in page
    assert "<svg" not in page
    assert "near.rate-1: busy" in page


def test_a_share_that_misses_the_target_is_not_rounded_to_it() -> None:
    report = report_of([rate_run(rate=1.0, ttfts_ms=[FAST_MS] * 896 + [SLOW_MS] * 104)])
    assert "89.6%" in text(report)
    assert str(report.placements[0].goodput) == "< 1"


def test_a_baseline_that_is_better_at_the_common_rate_is_not_called_worse() -> None:
    """Far better goodput from a rate that the baseline was not measured at proves nothing at the one in common."""
    apart = [
        rate_run(rate=0.5, ttfts_ms=[FAST_MS] * 40),
        rate_run(rate=3.0, ttfts_ms=[FAST_MS] * 10 + [SLOW_MS] * 30),
    ]
    whole = aggregated_plan()
    baseline = [
        rate_run(placement="whole", rate=rate, ttfts_ms=ttfts, plan=whole, transfers=None, predicted_transfer_ms=None)
        for rate, ttfts in ((0.1, [FAST_MS] * 8 + [SLOW_MS] * 2), (3.0, [FAST_MS] * 40))
    ]
    assert not any("pays here" in said for said in report_of([*apart, *baseline]).recommendation)


def test_goodput_decides_before_what_is_good_at_the_top_rate() -> None:
    steady = [rate_run(rate=rate, ttfts_ms=ttfts) for rate, ttfts in ((1.0, [FAST_MS] * 40), (3.0, [SLOW_MS] * 40))]
    uneven = [
        rate_run(placement="far", rate=rate, ttfts_ms=ttfts)
        for rate, ttfts in ((1.0, [SLOW_MS] * 40), (3.0, [FAST_MS] * 35 + [SLOW_MS] * 5))
    ]
    assert report_of([*steady, *uneven]).recommendation[0].startswith("Use near: ")


def test_the_best_of_the_disaggregated_placements_meets_the_baseline() -> None:
    whole = aggregated_plan()
    baseline = [
        rate_run(placement="whole", rate=3.0, ttfts_ms=[FAST_MS] * 20 + [SLOW_MS] * 20, plan=whole, transfers=None)
    ]
    apart = [
        rate_run(placement="near", rate=3.0, ttfts_ms=[FAST_MS] * 40),
        rate_run(placement="far", rate=3.0, ttfts_ms=[SLOW_MS] * 40),
    ]
    said = report_of([*baseline, *apart]).recommendation
    assert any(sentence.startswith("Disaggregation pays here: near is better than whole") for sentence in said)
