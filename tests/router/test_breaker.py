"""The circuit breaker as a state machine."""

from hypothesis import given
from hypothesis import strategies as st

from hpcserve.router.breaker import Breaker


def opened(now_s: float = 0.0) -> Breaker:
    breaker = Breaker()
    assert [breaker.failed(now_s) for _ in range(4)] == [False, False, True, False]
    return breaker


def test_it_opens_after_three_in_a_row_and_a_success_between_forgives() -> None:
    breaker = Breaker()
    for _ in range(3):
        breaker.failed(0.0)
        breaker.failed(0.0)
        for _ in range(4):
            breaker.succeeded()
    assert breaker.state(0.0) == "closed"
    assert opened().state(1.0) == "open"


def test_every_second_answer_is_too_many() -> None:
    breaker = Breaker()
    answers = 0
    while breaker.state(0.0) == "closed":
        breaker.failed(0.0)
        breaker.succeeded()
        answers += 2
        assert answers <= 20
    assert answers >= 18


def test_trials_come_ever_more_seldom_until_one_succeeds() -> None:
    breaker, now_s, waits = opened(), 0.0, []
    for _ in range(7):
        since_s = now_s
        while breaker.state(now_s) == "open":
            now_s += 1.0
        waits.append(now_s - since_s)
        assert breaker.state(now_s) == "half-open"
        breaker.tried(now_s, well=False)
    assert waits == [2, 4, 8, 16, 32, 60, 60]
    breaker.succeeded()
    assert breaker.state(now_s) == "open", "an answer that was under way closes nothing"
    assert breaker.tried(now_s, well=True)
    assert breaker.state(now_s) == "closed"
    assert [breaker.failed(now_s) for _ in range(3)] == [False, False, True]
    assert breaker.state(now_s + 2.0) == "half-open"


@given(st.lists(st.tuples(st.sampled_from(["failed", "succeeded", "well", "bad"]), st.floats(0, 30)), max_size=80))
def test_it_never_stays_open_for_longer_than_a_minute_untried(steps: list[tuple[str, float]]) -> None:
    breaker, now_s = Breaker(), 0.0
    for what, pause_s in steps:
        now_s += pause_s
        before = breaker.is_open
        if what == "failed":
            assert breaker.failed(now_s) == (not before and breaker.is_open)
        elif what == "succeeded":
            breaker.succeeded()
            assert breaker.is_open == before
        else:
            assert breaker.tried(now_s, well=what == "well") == (before and not breaker.is_open)
        assert (breaker.state(now_s) == "closed") == (not breaker.is_open)
    assert breaker.state(now_s + 60.0) in {"closed", "half-open"}
