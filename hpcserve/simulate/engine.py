"""`Engine`: one worker from step to step, decode steps in bulk; `seats` says who takes part in them."""

from typing import Protocol

from hpcserve.latency import Chunk
from hpcserve.simulate.deployment import Worker
from hpcserve.simulate.leg import Leg, State
from hpcserve.simulate.seats import Seats
from hpcserve.simulate.stretch import Stretch, stretch_of

__all__ = ["Engine", "Listener"]


class Listener(Protocol):
    """Who is told what happens to legs."""

    def at_boundary(self, engine: "Engine", at_ms: float) -> None:
        """Call `engine.boundary` at that time, with `engine.version` as it is now."""

    def first_token(self, leg: Leg, now_ms: float) -> None:
        """The leg has made its first token."""

    def prefilled(self, leg: Leg, now_ms: float) -> None:
        """The prompt of a leg whose KV goes elsewhere is computed."""

    def finished(self, leg: Leg, now_ms: float) -> None:
        """The leg has made all its tokens and holds nothing any more."""

    def pull(self, leg: Leg, now_ms: float) -> None:
        """There is room for the leg's KV: it may come."""

    def computing(self, leg: Leg, chunk: Chunk, end_ms: float) -> None:
        """This much of the leg's prompt is computed in the step that begins now."""


class Engine:
    """What one worker has, and what it does now."""

    def __init__(self, spec: Worker, listener: Listener) -> None:
        self.spec = spec
        self.version = 0
        """Changes when what is to come next does."""
        self.busy_ms = 0.0
        self.is_up = True
        self.seats = Seats(spec)
        self._listener = listener
        self._stretch: Stretch | None = None
        self._decodes = True
        """Whether the step that runs gives those who decode a token."""
        self._is_called = False

    # What comes from outside.

    def fits(self, leg: Leg) -> bool:
        """Whether the worker could ever hold the whole leg."""
        return self.seats.fits(leg)

    def add(self, leg: Leg, now_ms: float) -> None:
        """The leg waits for its turn."""
        if self.seats.wait(leg):
            self._wake(now_ms)

    def pulled(self, leg: Leg, now_ms: float) -> None:
        """The leg's KV is here."""
        self.seats.has_pulled(leg)
        self._wake(now_ms)

    def release(self, leg: Leg, now_ms: float) -> None:
        """KV that was held for others, or that was to come, is given up."""
        self.seats.leave(leg)
        self._wake(now_ms)

    def die(self, now_ms: float) -> list[Leg]:
        """Everything that was here is lost; returns it, in the order of arrival."""
        if self._stretch is not None:
            self.busy_ms += now_ms - self._stretch.start_ms
        lost = sorted(self.seats.everybody(), key=lambda leg: leg.number)
        for leg in lost:
            leg.state = State.GONE
            leg.kv_tokens = 0
        before, self.seats = self.seats, Seats(self.spec)
        self.seats.room.most_tokens, self.seats.preemptions = before.room.most_tokens, before.preemptions
        self._stretch, self._is_called, self.is_up = None, False, False
        self.version += 1
        return lost

    # From one boundary to the next.

    def boundary(self, now_ms: float) -> None:
        """What ran until now is done; what comes next begins."""
        self._is_called = False
        if self._stretch is not None:
            self._complete(self._stretch, now_ms)
        if self.is_up:
            self._begin(now_ms)

    def _wake(self, now_ms: float) -> None:
        """Something changed: look at it at the end of the step that runs, or at once."""
        stretch = self._stretch
        if stretch is None:
            if not self._is_called:
                self._call(now_ms)
        elif stretch.steps > 1:
            steps = stretch.steps_until(now_ms)
            if steps < stretch.steps:
                stretch.steps = steps
                self._call(stretch.end_ms)

    def _call(self, at_ms: float) -> None:
        self._is_called = True
        self.version += 1
        self._listener.at_boundary(self, at_ms)

    def _complete(self, stretch: Stretch, now_ms: float) -> None:
        seats = self.seats
        self._stretch = None
        self.busy_ms += now_ms - stretch.start_ms
        chunks, seats.chunks = seats.chunks, []
        if self._decodes:
            fresh, seats.fresh = seats.fresh, []
            seats.room.take(seats.decoding.advance(stretch.steps))
            for leg in fresh:
                self._listener.first_token(leg, now_ms)
        for leg in seats.decoding.take_finished():
            self._finish(leg, now_ms)
        for leg, tokens in chunks:
            leg.computed += tokens
            leg.to_compute -= tokens
            if not leg.to_compute:
                self._finish_prompt(leg, now_ms)

    def _finish_prompt(self, leg: Leg, now_ms: float) -> None:
        if leg.hands_over:
            self.seats.hold(leg)
            self._listener.prefilled(leg, now_ms)
            return
        leg.made += 1
        if leg.made == 1:
            self._listener.first_token(leg, now_ms)
        if leg.made == leg.output_tokens:
            self._finish(leg, now_ms)
        else:
            self.seats.decode(leg)

    def _finish(self, leg: Leg, now_ms: float) -> None:
        self.seats.leave(leg)
        self._listener.finished(leg, now_ms)

    def _begin(self, now_ms: float) -> None:
        seats = self.seats
        pulls, preempted = seats.fill()
        for leg in pulls:
            self._listener.pull(leg, now_ms)
        self._decodes = self.spec.scheduling.mixed or not seats.chunks
        if seats.chunks:
            self._stretch = self._mixed_step(now_ms)
        elif seats.decoding.sequences:
            self._stretch = stretch_of(
                self.spec.latency.decode_ms,
                start_ms=now_ms,
                sequences=seats.decoding.sequences,
                context_tokens=seats.decoding.context_tokens,
                steps=1 if seats.fresh or preempted else seats.most_steps(),
            )
        elif preempted:
            self._call(now_ms)
        if self._stretch is not None:
            self._call(self._stretch.end_ms)

    def _mixed_step(self, now_ms: float) -> Stretch:
        """One step with chunks of prompts."""
        latency, decoding = self.spec.latency, self.seats.decoding
        chunks = [Chunk(tokens, leg.cached_tokens + leg.computed) for leg, tokens in self.seats.chunks]
        if self._decodes:
            step_ms = latency.step_ms(chunks, decoding.sequences, decoding.context_tokens)
        else:
            step_ms = latency.prefill_ms(chunks)
        for (leg, _), chunk in zip(self.seats.chunks, chunks, strict=True):
            if leg.hands_over:
                leg.late_ms = step_ms - step_ms / self.spec.stages
                self._listener.computing(leg, chunk, now_ms + step_ms)
        return Stretch(now_ms, 1, step_ms / self.spec.stages)
