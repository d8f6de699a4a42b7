"""`Outlook`: what Slurm may grant a plan, and what each way to ask would give, before it has chosen."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Name, Noun, Positive, PositiveInt, Text

__all__ = ["Chance", "Granted", "Outlook"]

_NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Granted(Noun):
    """Nodes that Slurm may grant, and what the plan's pools give there."""

    nodes: tuple[Name, ...]
    leaves: PositiveInt
    slowest_transfer_ms: Positive | None = None
    """One typical request's KV alone on the slowest path; None where none moves, or it cannot be placed."""
    goodput_per_s: _NonNegative | None = None
    """Simulated; None without a latency model."""
    trouble: Text | None = None
    """Why the plan cannot be placed there."""


class Chance(Noun):
    """One way to ask, and what Slurm may grant for it."""

    constraint: Text | None
    """The options of sbatch, `--switches=1`; None: only the number of nodes."""
    worst: Granted
    """The least lucky nodes that it allows."""
    likely: Granted | None
    """Those that Slurm would grant now; None where too few are idle, or nobody knows which are."""
    best: Granted
    """The luckiest nodes that it allows."""
    estimated_start: Text | None = None
    """Slurm's own estimate (`sbatch --test-only`); None where it was not asked or gave none."""
    worth_waiting_min: _NonNegative | None = None
    """Longest wait, in minutes, that its worst nodes make up for over the job's time, against what is granted now
    without a constraint."""


class Outlook(Noun):
    """All ways to ask for a plan, and what follows."""

    schema_: Annotated[Literal["hpcserve.outlook/1"], Field(alias="schema")] = "hpcserve.outlook/1"
    service: Text
    site: Name
    asked_nodes: PositiveInt
    """Spares among them."""
    idle_nodes: Annotated[int, Field(ge=0)] | None
    """None: Slurm was not asked or did not answer."""
    chances: tuple[Chance, ...]
    advice: tuple[Text, ...]
