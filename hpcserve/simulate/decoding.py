"""`Decoding`: the sequences of one worker that get a token each step, counted in steps and not looked at one by one."""

from heapq import heappop, heappush

from hpcserve.simulate.leg import Leg, State

__all__ = ["Decoding"]


class Decoding:
    """`grows`: KV that a sequence takes with each token, 1, or 0 where it was taken beforehand."""

    __slots__ = ("_count", "_ends", "_grows", "context_tokens", "sequences", "steps")

    def __init__(self, *, grows: int) -> None:
        self.sequences = 0
        self.context_tokens = 0
        """Of all sequences together: what the next step attends to."""
        self.steps = 0
        """Since the worker's start, mixed ones too."""
        self._grows = grows
        self._ends: list[tuple[int, int, Leg]] = []
        self._count = 0

    def join(self, leg: Leg) -> None:
        """The leg takes part from the next step on."""
        leg.state = State.DECODING
        leg.joined_step = self.steps
        leg.end_step = self.steps + leg.output_tokens - leg.made
        self.sequences += 1
        self.context_tokens += leg.input_tokens + leg.made
        self._count += 1
        heappush(self._ends, (leg.end_step, self._count, leg))

    def leave(self, leg: Leg) -> None:
        """The leg takes part no more; what it has made and holds is written down."""
        made = self.steps - leg.joined_step
        leg.made += made
        leg.kv_tokens += made * self._grows
        self.sequences -= 1
        self.context_tokens -= leg.input_tokens + leg.made

    def advance(self, steps: int) -> int:
        """So many steps are done; returns the KV that they took."""
        made = steps * self.sequences
        self.steps += steps
        self.context_tokens += made
        return made * self._grows

    def take_finished(self) -> list[Leg]:
        """Those that have all their tokens, in the order in which they joined; they take part no more."""
        finished = []
        while self._ends and (self._ends[0][0] <= self.steps or self._is_outdated(self._ends[0])):
            entry = heappop(self._ends)
            if not self._is_outdated(entry):
                self.leave(entry[2])
                entry[2].state = State.GONE
                finished.append(entry[2])
        return finished

    def steps_to_next_end(self) -> int:
        """How many steps until a sequence has all its tokens; there must be one."""
        while self._is_outdated(self._ends[0]):
            heappop(self._ends)
        return self._ends[0][0] - self.steps

    @property
    def remembered(self) -> int:
        """Entries that are kept, those of sequences that left early too."""
        return len(self._ends)

    def _is_outdated(self, entry: tuple[int, int, Leg]) -> bool:
        """Whether the sequence left before its end."""
        return not entry[2].is_decoding or entry[2].end_step != entry[0]
