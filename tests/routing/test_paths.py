"""Predicted path times held against what workers report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.routing.paths import PathTimes


def one_round(times: PathTimes, pulls: dict[str, int], *, took: dict[str, float], ranks: int = 1) -> None:
    """Each prefill worker hands over so often; a pull was to take 100 ms and takes `took` times that."""
    for prefill, count in pulls.items():
        for _ in range(count):
            times.handed(prefill, "d", predicted_ms=100.0)
    seconds = sum(count * 0.1 * took[prefill] for prefill, count in pulls.items())
    times.reported("d", transfers=sum(pulls.values()) * ranks, seconds=seconds * ranks)


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_slow_path_is_found_whatever_the_ranks(ranks: int) -> None:
    times = PathTimes()
    for _ in range(20):
        one_round(times, {"p": 10}, took={"p": 3.0}, ranks=ranks)
    assert times.correction("p", "d") == pytest.approx(3.0, rel=0.01)
    assert times.correction("q", "d") == 1.0


def test_of_two_paths_into_one_worker_the_slow_one_is_told_once_they_differ_in_use() -> None:
    times, took = PathTimes(), {"near": 1.0, "far": 5.0}
    for turn in range(60):
        one_round(times, {"near": 9, "far": 1} if turn % 2 else {"near": 1, "far": 9}, took=took)
    assert times.correction("far", "d") > 2 * times.correction("near", "d")


def test_too_few_wait_for_more() -> None:
    times = PathTimes()
    for _ in range(3):
        times.handed("p", "d", predicted_ms=100.0)
    assert not times.reported("d", transfers=3, seconds=3.0)
    assert times.correction("p", "d") == 1.0
    times.handed("p", "d", predicted_ms=100.0)
    assert times.reported("d", transfers=1, seconds=1.0)
    assert times.correction("p", "d") > 1.0


def test_counters_that_begin_anew_and_workers_that_go() -> None:
    times = PathTimes()
    one_round(times, {"p": 10}, took={"p": 3.0})
    known = times.correction("p", "d")
    times.handed("p", "d", predicted_ms=100.0)
    times.started_anew("d")
    assert not times.reported("d", transfers=100, seconds=100.0)
    assert times.correction("p", "d") == known
    times.keep_only({"d"})
    assert times.corrections() == {}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("handed"), st.sampled_from("pq"), st.floats(0, 1e9) | st.just(float("inf"))),
            st.tuples(st.just("reported"), st.integers(-3, 50), st.floats(-1, 1e6)),
        ),
        max_size=40,
    )
)
def test_a_correction_is_always_a_sane_factor(steps: list[tuple[str, object, object]]) -> None:
    times = PathTimes()
    for kind, first, second in steps:
        if kind == "handed":
            times.handed(str(first), "d", predicted_ms=float(str(second)))
        else:
            times.reported("d", transfers=int(str(first)), seconds=float(str(second)))
    for ratio in times.corrections().values():
        assert 1 / 20 <= ratio <= 20
