"""A worker is believed while its counters bear out what its events said, and not a moment on one bad look."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hpcserve.routing.kv_trust import Evidence, Trust

NOTHING = Evidence(
    predicted_tokens=0,
    predicted_prompts=0,
    hit_tokens=0,
    prompt_tokens=0,
    batches=0,
    stored_blocks=0,
    unplaced_blocks=0,
)


def after(seen: Evidence, *, predicted: int = 0, hits: int = 0, computed: int = 0, batches: int = 1) -> Evidence:
    """A while later: ten prompts more."""
    return replace(
        seen,
        predicted_tokens=seen.predicted_tokens + predicted,
        predicted_prompts=seen.predicted_prompts + 10,
        hit_tokens=seen.hit_tokens + hits,
        prompt_tokens=seen.prompt_tokens + hits + computed,
        batches=seen.batches + batches,
        stored_blocks=seen.stored_blocks + batches,
    )


def looks(trust: Trust, *seen: Evidence, apart_s: float = 5.0) -> list[str]:
    reasons = []
    for number, one in enumerate(seen):
        before = trust.reason
        assert trust.judge(one, now_s=number * apart_s) == (trust.reason != before)
        reasons.append(trust.reason)
    return reasons


def test_hits_that_do_not_show_are_said_after_two_windows_and_forgiven_after_two() -> None:
    trust = Trust()
    seen = [NOTHING]
    for hits in (3000, 100, 3000, 100, 100):
        seen.append(after(seen[-1], predicted=3000, hits=hits, computed=100))
    reasons = looks(trust, *seen)
    assert reasons[:5] == [""] * 5
    assert "3000 tokens were predicted" in reasons[5]
    assert "show 100" in reasons[5]
    better = [after(seen[-1], predicted=3000, hits=3000)]
    better.append(after(better[0], predicted=3000, hits=3000))
    assert [bool(reason) for reason in looks(trust, *better)] == [True, False]


def test_few_predictions_are_no_evidence() -> None:
    trust = Trust()
    seen = [NOTHING]
    for _ in range(5):
        seen.append(after(seen[-1], predicted=100))
    assert looks(trust, *seen) == [""] * 6


def test_events_that_do_not_come_are_said_and_forgiven_when_they_come() -> None:
    trust = Trust()
    first = after(NOTHING, computed=500)
    silent = after(first, computed=5000, batches=0)
    reasons = looks(trust, first, silent, silent, after(silent))
    assert reasons[:2] == ["", ""]
    assert "computed 5000 prompt tokens" in reasons[2]
    assert reasons[3] == ""


def test_an_idle_worker_or_one_that_serves_from_its_cache_need_not_speak() -> None:
    trust = Trust()
    first = after(NOTHING, computed=500)
    assert looks(trust, first, after(first, hits=90_000, batches=0), apart_s=1000) == ["", ""]


def test_events_of_which_nothing_can_be_placed_are_of_no_use() -> None:
    trust = Trust()
    useless = replace(NOTHING, batches=5, unplaced_blocks=100)
    assert "none of 100 blocks" in looks(trust, NOTHING, useless)[1]
    assert looks(trust, replace(useless, stored_blocks=1))[0] == ""


def test_a_probe_decides_either_way() -> None:
    trust = Trust()
    assert trust.probed("its KV was not found again")
    assert trust.reason
    assert not trust.probed("its KV was not found again")
    assert trust.probed("")
    assert not trust.reason


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0.8, 3)), max_size=30))
def test_a_worker_whose_hits_show_is_always_believed(windows: list[tuple[int, float]]) -> None:
    trust = Trust()
    seen = [NOTHING]
    for predicted, share in windows:
        seen.append(after(seen[-1], predicted=predicted, hits=int(predicted * share) + 1))
    assert not any(looks(trust, *seen))
