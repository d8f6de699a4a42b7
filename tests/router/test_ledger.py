"""Proofs that are lost, and how often they are tried again."""

import pytest

from hpcserve.nouns import PairProof
from hpcserve.router.ledger import Finding, Ledger

PAIR = ("prefill-0", "p1", "decode-0", "d1")
PROOF = PairProof(
    prefill="prefill-0", prefill_generation="p1", decode="decode-0", decode_generation="d1", proved=True, reason="so"
)


def prove(ledger: Ledger, now_s: float) -> None:
    ledger.record(PROOF, Finding(outcome="proved", reason="so"), now_s=now_s)


def lose(ledger: Ledger, now_s: float) -> float:
    """Three handoffs in a row come late; returns how long the pair then waits."""
    assert [ledger.handoff_failed(PAIR, now_s=now_s) for _ in range(3)] == [False, False, True]
    assert PAIR not in ledger.proved
    assert not ledger.handoff_failed(PAIR, now_s=now_s), "those still under way change nothing"
    wait_s = 0.0
    while not ledger.due(now_s + wait_s):
        wait_s += 10.0
    return wait_s


def test_an_overload_does_not_lend_requests_to_a_pair_again_and_again() -> None:
    ledger, now_s, waits = Ledger(), 0.0, []
    for _ in range(7):
        prove(ledger, now_s)
        wait_s = lose(ledger, now_s + 20)
        waits.append(wait_s)
        now_s += 20 + wait_s
    assert waits == [0, 10, 20, 40, 80, 160, 300]
    # and one that was good for long is proved again at once
    prove(ledger, now_s)
    assert lose(ledger, now_s + 1000) == 0


def test_handoffs_that_succeed_in_between_leave_the_proof() -> None:
    ledger = Ledger()
    prove(ledger, 0.0)
    for _ in range(10):
        assert not ledger.handoff_failed(PAIR, now_s=0.0)
        assert not ledger.handoff_failed(PAIR, now_s=0.0)
        ledger.handoff_succeeded(PAIR)
    assert PAIR in ledger.proved


def test_waits_grow_with_failures_and_not_with_roundings() -> None:
    ledger, waits = Ledger(), []
    failed = PROOF.model_copy(update={"proved": False})
    for outcome in ("failed", "unsure", "failed", "wrong", "unsure", "failed"):
        ledger.record(failed, Finding(outcome=outcome, reason=""), now_s=0.0)
        waits.append(next(wait_s for wait_s in range(1000) if ledger.due(float(wait_s))))
    assert waits == [10, 1, 20, 40, 1, 80]
    assert ledger.rounds(PAIR) == 16


@pytest.mark.parametrize("alive", [{PAIR[:2], ("decode-0", "d2")}, {("prefill-0", "p2"), PAIR[2:]}])
def test_what_is_gone_is_forgotten(alive: set[tuple[str, str]]) -> None:
    ledger = Ledger()
    prove(ledger, 0.0)
    lose(ledger, 1.0)
    ledger.keep_only(alive)
    assert ledger.proofs() == ()
    assert not ledger.due(1e9)
    assert ledger.ever_proved == {"prefill-0", "decode-0"}
