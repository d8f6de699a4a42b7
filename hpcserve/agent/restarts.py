"""Whether and when a worker that died is started again."""

from dataclasses import dataclass

__all__ = ["MAX_DEATHS", "Restarts"]

MAX_DEATHS = 5
"""Deaths in a row without having served in between: what five starts could not mend, a sixth will not."""

_LONGEST_PAUSE_S = 60.0
_DEATHS_OF_A_LOST_WAIT = 3
"""For a start that was waited for in vain for all of `Pace.start_s`, an hour: after two, GPUs are not held longer."""

_SOUND_S = 10.0
"""A worker that served for so long was sound: whatever then killed it begins a new count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """How often a worker was started again, and how many times in a row it died without having served."""

    total: int = 0
    in_a_row: int = 0

    def after_death(self, *, served_s: float | None, waited_in_vain: bool = False) -> "Restarts":
        """The count after a death; `served_s`: for how long it was ready, None where it never was."""
        sound = served_s is not None and served_s >= _SOUND_S
        deaths = _DEATHS_OF_A_LOST_WAIT if waited_in_vain else 1
        return Restarts(total=self.total + 1, in_a_row=1 if sound else self.in_a_row + deaths)

    @property
    def exhausted(self) -> bool:
        """Whether to give up."""
        return self.in_a_row >= MAX_DEATHS

    @property
    def pause_s(self) -> float:
        """How long to wait before the next start: not at all the first time, then 1, 2, 4, ... 60 s."""
        return 0.0 if self.in_a_row <= 1 else min(_LONGEST_PAUSE_S, 2.0 ** (self.in_a_row - 2))
