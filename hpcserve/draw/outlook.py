"""What Slurm may grant, as a table."""

from collections.abc import Callable, Sequence

from hpcserve.draw.terminal import text_table
from hpcserve.nouns import Chance, Granted, Outlook
from hpcserve.site import fold_hosts
from hpcserve.units import ms_text

__all__ = ["outlook_table"]

_COLUMNS = (
    "asked for",
    "leaves",
    "transfer ms (predicted)",
    "goodput req/s (simulated)",
    "granted now",
    "Slurm's estimate",
    "worth a wait of",
)
_LONGEST = 40


def outlook_table(outlook: Outlook, *, sources: Sequence[str] = ()) -> str:
    """One line for each way to ask, and the advice; `sources`: of the times that were simulated."""
    idle = "" if outlook.idle_nodes is None else f", {outlook.idle_nodes} {_are(outlook.idle_nodes)} idle"
    asked = f"{outlook.asked_nodes} {'node' if outlook.asked_nodes == 1 else 'nodes'}"
    head = (
        f"Before Slurm has chosen: {asked} of {outlook.site} {_are(outlook.asked_nodes)} asked for{idle}.\n"
        "Figures on the worst nodes that it may grant / on those that it would grant now / on the best:"
    )
    rows = [_row(one, is_known=outlook.idle_nodes is not None) for one in outlook.chances]
    table = text_table(_COLUMNS, rows, right=frozenset(_COLUMNS[1:4]))
    times = [f"Times: {source}" for source in sources]
    return "\n".join([head, table.rstrip("\n"), *_troubles(outlook), *outlook.advice, *times]) + "\n"


def _row(chance: Chance, *, is_known: bool) -> tuple[str, ...]:
    wait = chance.worth_waiting_min
    none = "not now" if is_known else "unknown"
    return (
        _cut(chance.constraint or "no constraint"),
        _three(chance, lambda one: str(one.leaves)),
        _three(chance, lambda one: None if one.slowest_transfer_ms is None else ms_text(one.slowest_transfer_ms)),
        _three(chance, lambda one: None if one.goodput_per_s is None else f"{one.goodput_per_s:.3g}"),
        none if chance.likely is None else _cut(fold_hosts(chance.likely.nodes)),
        chance.estimated_start or "-",
        "-" if wait is None else f"{wait:.0f} min",
    )


def _three(chance: Chance, shown: Callable[[Granted], str | None]) -> str:
    """`8.8 / - / 0.89`; one dash where none of the three is known."""
    cells = [None if one is None else shown(one) for one in (chance.worst, chance.likely, chance.best)]
    return "-" if cells == [None, None, None] else " / ".join(cell or "-" for cell in cells)


def _troubles(outlook: Outlook) -> list[str]:
    """Why the plan cannot be placed on nodes that may be granted."""
    return [
        f"{chance.constraint or 'no constraint'}, {which}: {one.trouble}"
        for chance in outlook.chances
        for which, one in (("at worst", chance.worst), ("now", chance.likely), ("at best", chance.best))
        if one is not None and one.trouble
    ]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _cut(text: str) -> str:
    """So much of a long list that the table stays readable; dots say that there is more."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
