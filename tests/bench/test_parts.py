import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.bench.completions import random_prompt
from hpcserve.bench.host import CpuTimes, cpu_times, pressure, snapshot
from hpcserve.bench.poisson import arrivals_s


def _seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - repeatable on purpose


@given(st.integers(1, 200), st.floats(0.01, 1000), st.integers())
def test_arrivals_ascend_offer_exactly_the_rate_and_follow_the_seed(requests: int, rate: float, seed: int) -> None:
    times = arrivals_s(_seeded(seed), requests=requests, rate=rate)
    assert list(times) == sorted(times)
    assert times[-1] == pytest.approx(requests / rate)
    assert times == arrivals_s(_seeded(seed), requests=requests, rate=rate)


def test_prompts_are_exact_distinct_and_follow_the_seed() -> None:
    source = _seeded(1)
    prompts = [random_prompt(source, 512) for _ in range(8)]
    assert {len(prompt) for prompt in prompts} == {512}
    assert len({tuple(prompt[:32]) for prompt in prompts}) == 8
    assert prompts[0] == random_prompt(_seeded(1), 512)


def test_cpu_times_count_iowait_as_idle_and_steal_as_busy(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 100 700 50 0 0 50 9 9\ncpu0 1 2 3\n", encoding="ascii")
    now = cpu_times(stat)
    assert now == CpuTimes(total=1000, idle=750, steal=50)
    start = CpuTimes(total=0, idle=0, steal=0)
    assert now.busy_share_since(start) == pytest.approx(0.25)
    assert now.steal_share_since(start) == pytest.approx(0.05)
    assert now.busy_share_since(now) == 0


def test_a_kernel_without_pressure_figures_is_no_error(tmp_path: Path) -> None:
    assert pressure(tmp_path / "none") == "unavailable"
    kept = tmp_path / "cpu"
    kept.write_text("some avg10=1.00 avg60=0.50 avg300=0.10 total=5\nfull avg10=0\n", encoding="ascii")
    assert pressure(kept).startswith("some avg10=1.00")


def test_the_snapshot_is_plain_text_for_a_run() -> None:
    assert all(snapshot().values())
