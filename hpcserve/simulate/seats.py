"""`Seats`: who takes part in a worker's next step, who waits, who has to leave: vLLM's rules (v1).

A step gives each running sequence a token and fills what is left of the token budget with prompts, those that are begun
first, then those that wait, in order of arrival. KV is counted in tokens, not in blocks; a token's place is taken when
the token is made. A cached prefix stays where it is and takes no further room.
"""

from collections import deque
from collections.abc import Iterator

from hpcserve.simulate.decoding import Decoding
from hpcserve.simulate.deployment import Worker
from hpcserve.simulate.leg import Leg, State
from hpcserve.simulate.room import Room

__all__ = ["Seats"]


class Seats:
    """All legs of one worker that is up, by what they do there."""

    def __init__(self, spec: Worker) -> None:
        self.room = Room(spec.latency.kv_tokens)
        self._limits = spec.scheduling
        self._reserves = spec.scheduling.kv_policy == "reserve"
        self._grows = 0 if self._reserves else 1
        self.decoding = Decoding(grows=self._grows)
        self.preemptions = 0
        self.chunks: list[tuple[Leg, int]] = []
        """Prompts of the step, each with how many tokens of it."""
        self.fresh: list[Leg] = []
        """Of those that decode, who has no token yet."""
        self._waiting: deque[Leg] = deque()
        self._ready: deque[Leg] = deque()
        self._pulling: dict[Leg, None] = {}
        self._held: dict[Leg, None] = {}
        self._prefilling: list[Leg] = []
        self._admitted: list[Leg] = []

    @property
    def running(self) -> int:
        """Sequences that take part in steps."""
        return self.decoding.sequences + len(self._prefilling)

    @property
    def remembered(self) -> int:
        """Entries that are kept in all, those of legs that are gone too."""
        return len(self._admitted) + self.decoding.remembered

    def everybody(self) -> Iterator[Leg]:
        """All legs, once each."""
        yield from (*self._waiting, *self._ready, *self._pulling, *self._held)
        yield from dict.fromkeys(leg for leg in self._admitted if leg.is_running)

    def fits(self, leg: Leg) -> bool:
        """Whether there could ever be room for the whole leg."""
        limit_tokens = self.room.limit_tokens
        return limit_tokens is None or leg.most_kv_tokens <= limit_tokens

    def wait(self, leg: Leg) -> bool:
        """The leg is last in line; whether it is first too."""
        leg.state = State.WAITING
        self._waiting.append(leg)
        return len(self._waiting) == 1

    def has_pulled(self, leg: Leg) -> None:
        """The leg's KV is here."""
        del self._pulling[leg]
        leg.state = State.READY
        self._ready.append(leg)

    def hold(self, leg: Leg) -> None:
        """The leg's prompt is computed; its KV is kept for another worker."""
        self._prefilling.remove(leg)
        leg.state = State.HELD
        self._held[leg] = None

    def decode(self, leg: Leg) -> None:
        """The leg's prompt is computed; it decodes from the next step on."""
        self._prefilling.remove(leg)
        self.decoding.join(leg)

    def leave(self, leg: Leg) -> None:
        """The leg is over, wherever it is; one that decodes has been taken out."""
        if leg.state == State.HELD:
            del self._held[leg]
        elif leg.state == State.PULLING:
            del self._pulling[leg]
        elif leg.state == State.WAITING:
            self._waiting.remove(leg)
        elif leg.state == State.PREFILLING:
            self._stop_prefilling(leg)
        leg.state = State.GONE
        self.room.give_back(leg)

    def fill(self) -> tuple[list[Leg], bool]:
        """Decide on the next step: whose KV may come now, and whether somebody had to leave."""
        limits, before = self._limits, self.preemptions
        while self._ready and self.running < limits.max_sequences:
            leg = self._ready.popleft()
            self.decoding.join(leg)
            self._admit(leg)
            if not leg.made:
                self.fresh.append(leg)
        while self.decoding.sequences and not self._has_room(0):
            self._preempt_last()
        budget = self._go_on(limits.token_budget - self.decoding.sequences)
        if self.preemptions > before:
            return [], True
        return self._admit_waiting(budget), False

    def most_steps(self) -> int:
        """Until the next sequence ends, or there is no room for a further token of each."""
        steps = self.decoding.steps_to_next_end()
        room_for = self.room.steps(self.decoding.sequences) if self._grows else None
        return steps if room_for is None else min(steps, room_for)

    def _go_on(self, budget: int) -> int:
        """Further chunks of prompts that are begun; returns what is left of the budget."""
        for leg in tuple(self._prefilling):
            tokens = min(leg.to_compute, budget)
            if tokens <= 0 or not leg.is_prefilling:
                continue
            needed = self._needed(leg, tokens)
            while not self._has_room(needed) and self._last_running() is not leg:
                self._preempt_last()
            if not self._has_room(needed):
                if self._ready:  # they hold what it needs, and wait for its seat
                    self._preempt_last()
                break
            self._compute(leg, tokens, needed)
            budget -= tokens
        return budget

    def _admit_waiting(self, budget: int) -> list[Leg]:
        """From the head of the line, as far as budget, seats and room go; returns those whose KV is to come."""
        limits, pulls = self._limits, []
        while self._waiting and budget > 0 and self.running < limits.max_sequences:
            leg = self._waiting[0]
            if leg.pulls:
                needed = leg.room_at_start(reserves=self._reserves)
                if not self._has_room(needed):
                    break
                self._waiting.popleft()
                self.room.charge(leg, needed)
                leg.state = State.PULLING
                self._pulling[leg] = None
                pulls.append(leg)
                continue
            tokens = leg.to_compute
            if tokens > budget:
                if limits.chunked:
                    tokens = budget
                elif self.chunks:
                    break
            needed = leg.most_kv_tokens if self._reserves else self._needed(leg, tokens)
            if not self._has_room(needed):
                break
            self._waiting.popleft()
            leg.state = State.PREFILLING
            self._prefilling.append(leg)
            self._admit(leg)
            self._compute(leg, tokens, needed)
            budget -= tokens
        return pulls

    def _compute(self, leg: Leg, tokens: int, needed: int) -> None:
        self.room.charge(leg, needed)
        self.chunks.append((leg, tokens))

    def _needed(self, leg: Leg, tokens: int) -> int:
        """KV for so many tokens of the prompt, and for the token that their last one makes."""
        if self._reserves:
            return 0
        return tokens + (tokens == leg.to_compute and not leg.hands_over)

    # Room.

    def _has_room(self, tokens: int) -> bool:
        """For so many, and for the next token of each sequence that decodes."""
        return self.room.has(tokens + self.decoding.sequences * self._grows)

    def _admit(self, leg: Leg) -> None:
        """It is now the one that was admitted last."""
        if len(self._admitted) > 2 * self.running + 16:
            self._admitted = [one for one in self._admitted if one.is_running and one is not leg]
        self._admitted.append(leg)

    def _last_running(self) -> Leg:
        while not self._admitted[-1].is_running:
            self._admitted.pop()
        return self._admitted[-1]

    def _preempt_last(self) -> None:
        """The sequence that was admitted last gives up its KV, and is first in line to be computed again."""
        leg = self._last_running()
        self._admitted.pop()
        if leg.is_decoding:
            self.decoding.leave(leg)
            self.fresh = [other for other in self.fresh if other is not leg]
        else:
            self._stop_prefilling(leg)
        self.room.give_back(leg)
        leg.start_again()
        self._waiting.appendleft(leg)
        self.preemptions += 1

    def _stop_prefilling(self, leg: Leg) -> None:
        self._prefilling.remove(leg)
        self.chunks = [(other, tokens) for other, tokens in self.chunks if other is not leg]
