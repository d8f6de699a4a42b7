"""The table of goals: what was measured, as ratios within one repetition, and how far each goal is."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.router.peers import DYNAMO, EXACT, OURS

__all__ = ["Samples", "rows"]

Samples = dict[tuple[str, str, str], list[float]]
"""(peer, case, figure) -> one value for each repetition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Goal:
    title: str
    mode: str
    case: str
    figure: str
    goal: float
    at_least: bool
    against: str | None = None
    """The rival whose figure ours is divided by; None: ours alone counts."""
    ours: str | None = None
    """Which of ours; None: the one of this mode."""
    shown: Callable[[float], str] = "{:.2f}".format


_PD, _RR, _AWARE = "vllm-router P/D", "vllm-router round robin", "vllm-router cache_aware"
_GOALS = (
    _Goal(title="P/D cap 1 KiB", mode="pd", case="1 KiB", figure="cap", goal=2.0, at_least=True, against=_PD),
    _Goal(title="P/D cap 32 KiB", mode="pd", case="32 KiB", figure="cap", goal=1.7, at_least=True, against=_PD),
    _Goal(title="plain cap 1 KiB", mode="plain", case="1 KiB", figure="cap", goal=1.5, at_least=True, against=_RR),
    _Goal(title="plain cap 32 KiB", mode="plain", case="32 KiB", figure="cap", goal=1.0, at_least=True, against=_RR),
    _Goal(title="plain cap 1 KiB", mode="plain", case="1 KiB", figure="cap", goal=3.0, at_least=True, against=_AWARE),
    _Goal(title="plain cap 32 KiB", mode="plain", case="32 KiB", figure="cap", goal=3.0, at_least=True, against=_AWARE),
    _Goal(title="added TTFT p50 idle P/D, ms", mode="pd", case="idle", figure="added_ms", goal=0.35, at_least=False),
    _Goal(
        title="added TTFT p50 idle plain, ms", mode="plain", case="idle", figure="added_ms", goal=0.3, at_least=False
    ),
    *(
        _Goal(title=title, mode=mode, case=case, figure=figure, goal=goal, at_least=False, against=against)
        for mode, against in (("pd", _PD), ("plain", _RR))
        for title, case, figure, goal in (
            (f"TTFT p99 of 256 bursting streams, {mode}", "burst", "ttft_p99_ms", 1.5),
            (f"CPU per token, unpaced, {mode}", "unpaced", "cpu_s_per_million", 0.8),
            (f"CPU per token, paced, {mode}", "paced", "cpu_s_per_million", 0.8),
        )
    ),
    _Goal(
        title="resident MB without an index, P/D", mode="pd", case="unpaced", figure="rss_mb", goal=60, at_least=False
    ),
    *(
        _Goal(
            title=f"exact P/D cap {case}",
            mode="pd",
            case=case,
            figure="cap",
            goal=goal,
            at_least=True,
            against=against,
            ours=EXACT,
        )
        for case, against, goal in (
            ("1 KiB", _PD, 1.3),
            ("32 KiB", _PD, 0.8),
            ("1 KiB", DYNAMO, 3.0),
            ("32 KiB", DYNAMO, 3.0),
            ("messages 1 KiB", _PD, 1.3),
            ("messages 32 KiB", _PD, 0.8),
            ("messages 1 KiB", DYNAMO, 3.0),
            ("messages 32 KiB", DYNAMO, 3.0),
        )
    ),
)


def rows(samples: Samples) -> list[str]:
    """Markdown: figures of each peer, then each goal with what was measured of it."""
    return [*_figures(samples), "", *_goals(samples)]


def _figures(samples: Samples) -> list[str]:
    peers = list(dict.fromkeys(peer for peer, _, _ in samples))
    columns = list(dict.fromkeys((case, figure) for _, case, figure in samples))
    lines = [
        "| router | " + " | ".join(f"{case}: {figure}" for case, figure in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for peer in peers:
        cells = [_spread(samples.get((peer, *column), [])) for column in columns]
        lines.append(f"| {peer} | " + " | ".join(cells) + " |")
    return lines


def _spread(values: list[float]) -> str:
    if not values:
        return "-"
    digits = 0 if max(values) >= 100 else 2  # noqa: PLR2004 - three figures are enough
    low, middle, high = (f"{each:.{digits}f}" for each in (min(values), statistics.median(values), max(values)))
    return f"{middle} [{low}..{high}]"


def _goals(samples: Samples) -> list[str]:
    lines = ["| goal | against | wanted | median [range], paired | n | met |", "|---|---|---|---|---|---|"]
    for goal in _GOALS:
        ours = samples.get((goal.ours or OURS[goal.mode], goal.case, goal.figure), [])
        values = ours
        if goal.against is not None:
            theirs = samples.get((goal.against, goal.case, goal.figure), [])
            values = [a / b for a, b in zip(ours, theirs, strict=False)]
        wanted = f"{'>=' if goal.at_least else '<='} {goal.goal:g}{'x' if goal.against else ''}"
        against = goal.against or "-"
        if not values:
            lines.append(f"| {goal.title} | {against} | {wanted} | not measured | 0 | not known |")
            continue
        median = statistics.median(values)
        met = median >= goal.goal if goal.at_least else median <= goal.goal
        verdict = "yes" if met else f"no: {abs(median - goal.goal):.2f} away"
        lines.append(f"| {goal.title} | {against} | {wanted} | {_spread(values)} | {len(values)} | {verdict} |")
    return lines
