"""What is proved, what failed, and when it may be tried again."""

from collections import Counter
from collections.abc import KeysView
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from hpcserve.nouns import PairProof
from hpcserve.routing import Pair

__all__ = ["Finding", "Ledger"]

_MOST_BAD_HANDOFFS = 3
"""Handoffs in a row that failed or came late, after which a pair must be proved again."""
_FIRST_WAIT_S = 10.0
_LONGEST_WAIT_S = 300.0
_UNSURE_WAIT_S = 1.0
_REMEMBERED_S = 600.0
"""A pair that lost its proof a second time within this long is proved again later, not at once."""
_ROUNDS = 8
"""Handoffs of one proof: one that is right every second time passes once in 256 proofs."""
_MOST_ROUNDS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How a proof ended, and why, in words.

    `wrong`: an answer differed from the local one, clearly. `unsure`: it may have, too close to tell. `failed`: there
    was no answer, or no transfer.
    """

    outcome: Literal["proved", "unsure", "failed", "wrong"]
    reason: str


class Ledger:
    """Proofs by pair. The wait before a next try grows with every failure."""

    def __init__(self) -> None:
        self.proved: set[Pair] = set()
        self.ever_proved: set[str] = set()
        """Ids of workers, of whatever generation."""
        self._proofs: dict[Pair, PairProof] = {}
        self._again: dict[Pair, tuple[float, float]] = {}
        """What failed: when it may be tried again, and the wait that led to it."""
        self._losses: dict[Pair, tuple[float, float]] = {}
        """Pairs that lost their proof: when, and how long they waited then."""
        self._wrong: Counter[Pair] = Counter()
        self.bad_handoffs: Counter[Pair] = Counter()
        """Of pairs whose last handoff failed or came late: how many in a row."""

    def keep_only(self, alive: AbstractSet[tuple[str, str]]) -> None:
        """Forget everything of workers but these (id, generation)."""
        for held in (self._proofs, self._again, self._losses, self._wrong, self.bad_handoffs):
            for pair in [*held]:
                if pair[2:] not in alive or (pair[0] and pair[:2] not in alive):
                    del held[pair]
                    self.proved.discard(pair)

    def proofs(self) -> tuple[PairProof, ...]:
        """All that were made of what is alive, good and bad."""
        return tuple(self._proofs.values())

    def has(self, pair: Pair) -> bool:
        """Whether it was tried."""
        return pair in self._proofs

    @property
    def failed(self) -> KeysView[Pair]:
        """What failed and waits to be tried again."""
        return self._again.keys()

    def due(self, now_s: float) -> list[Pair]:
        """What failed and may be tried again now."""
        return [pair for pair, (at_s, _) in self._again.items() if at_s <= now_s]

    def rounds(self, pair: Pair) -> int:
        """How many handoffs must be right for a proof: twice as many after each wrong one, lest it pass by luck."""
        return min(_ROUNDS << self._wrong[pair], _MOST_ROUNDS)

    def record(self, proof: PairProof, finding: Finding, *, now_s: float) -> None:
        """Take in the end of a proof."""
        pair = _pair_of(proof)
        self._set(proof)
        if finding.outcome == "proved":
            self._again.pop(pair, None)
            return
        self._wrong[pair] += finding.outcome == "wrong"
        _, before_s = self._again.get(pair, (0.0, 0.0))
        if finding.outcome == "unsure":  # a rounding, and not the pair's fault
            self._again[pair] = (now_s + _UNSURE_WAIT_S, before_s)
        else:
            wait_s = _longer(before_s)
            self._again[pair] = (now_s + wait_s, wait_s)

    def take_over(self, proof: PairProof) -> None:
        """What an earlier router proved."""
        self._set(proof)

    def _set(self, proof: PairProof) -> None:
        pair = _pair_of(proof)
        self._proofs[pair] = proof
        self.bad_handoffs.pop(pair, None)
        if proof.proved:
            self.proved.add(pair)
            self.ever_proved |= {proof.decode, proof.prefill or proof.decode}
        else:
            self.proved.discard(pair)

    def handoff_failed(self, pair: Pair, *, now_s: float) -> bool:
        """A handoff failed or came late; whether the pair has lost its proof by it.

        The first time it is proved again at once; a pair that keeps losing its proof, as under an overload, waits for
        longer every time, so that requests are not lent to it and taken back again and again.
        """
        self.bad_handoffs[pair] += 1
        if self.bad_handoffs[pair] < _MOST_BAD_HANDOFFS or pair not in self.proved:
            return False
        last_s, before_s = self._losses.get(pair, (float("-inf"), 0.0))
        wait_s = _longer(before_s) if now_s - last_s < _REMEMBERED_S + before_s else 0.0
        self._losses[pair] = (now_s, wait_s)
        self._again[pair] = (now_s + wait_s, wait_s)
        reason = f"{_MOST_BAD_HANDOFFS} handoffs in a row failed or came late; to be proved again"
        self._set(self._proofs[pair].model_copy(update={"proved": False, "reason": reason}))
        return True

    def handoff_succeeded(self, pair: Pair) -> None:
        """A handoff brought a first token in time."""
        self.bad_handoffs.pop(pair, None)


def _pair_of(proof: PairProof) -> Pair:
    return (proof.prefill or "", proof.prefill_generation or "", proof.decode, proof.decode_generation)


def _longer(before_s: float) -> float:
    return min(max(2 * before_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)
