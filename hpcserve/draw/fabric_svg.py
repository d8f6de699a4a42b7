"""A plan drawn on its fabric: spine, leaves, nodes, GPUs, and each prefill → decode path in the colour of its cost."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpcserve.draw.canvas import Canvas
from hpcserve.draw.seats import Seats, alike_paths, label, seats_of
from hpcserve.nouns import PathCost, Plan
from hpcserve.units import ms_text

__all__ = ["plan_svg"]

_MARGIN = 20.0
_CELL = 34.0
_GAP = 6.0
_NODE_HEIGHT = 62.0
_NODE_STEP = 96.0
_TOP = 96.0
"""Where the boxes of several leaves begin: spine and uplinks are above."""

_LETTER = 7.0
"""Width that a letter of 12 px takes at the most on average, so that names stay inside their boxes."""

_LANE = 22.0
"""Distance between two lanes of the paths, which run below the nodes."""

_FOOT = 52.0
_LEAST_WIDTH = 460.0
_FAST, _SLOW = (0x1A, 0x8F, 0x6D), (0xD1, 0x3F, 0x2A)
"""Green to red by way of amber, each clear on white and on near-black; the milliseconds are written out as well."""
_AMBER = (0xD9, 0x8A, 0x00)
_ROLE_COLOURS = {"prefill": "#3b6fd4", "decode": "#8a4fc7", "aggregated": "#5a6b7b"}
_CELL_INK = "#ffffff"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where each node stands, and how large the page is."""

    node_at: dict[str, tuple[float, float]]
    leaf_at: dict[str, tuple[float, float, float]]
    node_width: float
    bottom: float
    width: float


def plan_svg(plan: Plan, *, leaf_of: Callable[[str], str], scale_ms: tuple[float, float] | None = None) -> str:
    """The plan as an SVG document.

    Paths are coloured from green to red on a logarithmic scale. Where the prefill's own time is known, green is a tenth
    of it (a transfer that hardly shows) and red all of it; else `scale_ms` = (green, red), which also puts several
    plans on one scale; else the plan's own fastest and slowest path. Nodes without worker or router are not drawn,
    and of many paths of one cost the first stands for all.
    """
    seats = seats_of(plan, leaf_of=leaf_of)
    layout = _layout(seats)
    groups = alike_paths(plan)
    height = layout.bottom + _LANE * len(groups) + _FOOT
    canvas = Canvas(width=layout.width, height=height, title=f"{plan.service} on {plan.site}: {plan.mode}")
    _draw_switches(canvas, layout)
    for node in layout.node_at:
        _draw_node(canvas, plan, seats, layout, node)
    scale, meaning = _scale(plan, scale_ms)
    ends = [
        _draw_path(canvas, plan, layout, group[0], lane=lane, colour=_colour(group[0].transfer_ms, *scale))
        for lane, group in enumerate(groups)
    ]
    for end, group in zip(ends, groups, strict=True):
        canvas.text(*end, _path_words(group), kind="onwire")
    canvas.text(
        _MARGIN, height - 30, "KV of one typical request, alone on its path, predicted" if plan.paths else meaning
    )
    canvas.text(_MARGIN, height - 12, meaning if plan.paths else "", kind="soft")
    return canvas.svg()


def _scale(plan: Plan, scale_ms: tuple[float, float] | None) -> tuple[tuple[float, float], str]:
    """(green, red) in ms, and what they mean in words."""
    times = [path.transfer_ms for path in plan.paths]
    if not times:
        return (1.0, 1.0), "aggregated: no KV moves between workers"
    prefill_ms = plan.verdict.prefill_ms
    if prefill_ms is not None:
        return (
            prefill_ms / 10,
            prefill_ms,
        ), f"green: a tenth of the prefill's {ms_text(prefill_ms)} ms; red: all of it"
    low, high = scale_ms or (min(times), max(times))
    return (low, high), f"green: {ms_text(low)} ms; red: {ms_text(high)} ms"


def _layout(seats: Seats) -> _Layout:
    """Leaves side by side; a leaf's nodes side by side inside it."""
    longest = max(len(f"{node} · router") for nodes in seats.leaves.values() for node in nodes)
    node_width = max(seats.gpus_per_node * (_CELL + _GAP) + _GAP, longest * _LETTER + 2 * _GAP)
    top = _TOP if len(seats.leaves) > 1 else _MARGIN
    node_at: dict[str, tuple[float, float]] = {}
    leaf_at: dict[str, tuple[float, float, float]] = {}
    x = _MARGIN
    for leaf, nodes in seats.leaves.items():
        leaf_width = max(len(nodes) * (node_width + 2 * _GAP) + 2 * _GAP, len(leaf) * _LETTER + 24)
        leaf_at[leaf] = (x, top, leaf_width)
        for place, node in enumerate(nodes):
            node_at[node] = (x + 2 * _GAP + place * (node_width + 2 * _GAP), top + 40)
        x += leaf_width + _MARGIN
    return _Layout(
        node_at=node_at, leaf_at=leaf_at, node_width=node_width, bottom=top + _NODE_STEP + 30,
        width=max(x, _LEAST_WIDTH),
    )  # fmt: skip


def _draw_switches(canvas: Canvas, layout: _Layout) -> None:
    if len(layout.leaf_at) > 1:
        middle = layout.width / 2
        canvas.box(middle - 60, 16, 120, 28)
        canvas.text(middle, 34, "upper switches", anchor="middle")
        for x, y, width in layout.leaf_at.values():
            canvas.wire([(middle, 44), (middle, 62), (x + width / 2, 62), (x + width / 2, y)])
    for leaf, (x, y, width) in layout.leaf_at.items():
        canvas.box(x, y, width, _NODE_STEP + 20, radius=8)
        canvas.text(x + 12, y + 20, leaf)


def _draw_node(canvas: Canvas, plan: Plan, seats: Seats, layout: _Layout, node: str) -> None:
    x, y = layout.node_at[node]
    canvas.box(x, y, layout.node_width, _NODE_HEIGHT, kind="ground")
    canvas.box(x, y, layout.node_width, _NODE_HEIGHT)
    canvas.text(x + _GAP, y + 15, node + (" · router" if plan.router.node == node else ""), kind="soft")
    for gpu in range(seats.gpus_per_node):
        left = x + _GAP + gpu * (_CELL + _GAP)
        worker = seats.worker_at.get((node, gpu))
        if worker is None:
            canvas.box(left, y + 24, _CELL, 28, radius=3)
            continue
        colour = _ROLE_COLOURS[plan.worker(worker).role.value]
        canvas.filled(left, y + 24, _CELL, 28, colour=colour, tip=f"{worker} on GPU {gpu} of {node}")
        canvas.text(left + _CELL / 2, y + 42, label(worker), anchor="middle", colour=_CELL_INK)


def _draw_path(
    canvas: Canvas, plan: Plan, layout: _Layout, path: PathCost, *, lane: int, colour: str
) -> tuple[float, float]:
    """Draws one path; where its words go, which are drawn after all paths to stand above them, comes back."""
    start, end = _seat(plan, layout, path.prefill), _seat(plan, layout, path.decode)
    level = layout.bottom + lane * _LANE
    leave, arrive = start[0] - 5 + 3 * (lane % 3), end[0] + 4 - 3 * (lane % 3)
    cost = f"{ms_text(path.transfer_ms)} ms"
    tip = f"{path.prefill} → {path.decode}: {path.distance}, {path.gb_per_s:.4g} GB/s, {cost} predicted"
    canvas.stroke([(leave, start[1]), (leave, level), (arrive, level), (arrive, end[1] + 7)], colour=colour, tip=tip)
    canvas.area([(arrive, end[1]), (arrive - 5, end[1] + 8), (arrive + 5, end[1] + 8)], colour=colour)
    return max(leave, arrive) + 6, level + 4


def _path_words(group: Sequence[PathCost]) -> str:
    more = f", {len(group) - 1} more alike" if len(group) > 1 else ""
    return f"{label(group[0].prefill)} → {label(group[0].decode)}  {ms_text(group[0].transfer_ms)} ms{more}"


def _seat(plan: Plan, layout: _Layout, worker_id: str) -> tuple[float, float]:
    """The bottom middle of the worker's first GPU."""
    rank = plan.worker(worker_id).ranks[0]
    x, y = layout.node_at[rank.node]
    return x + _GAP + rank.gpus[0] * (_CELL + _GAP) + _CELL / 2, y + 52


def _colour(value_ms: float, low_ms: float, high_ms: float) -> str:
    """The colour of a time between the fastest and the slowest, on a logarithmic scale."""
    span = math.log(high_ms / low_ms) if high_ms > low_ms else 0.0
    share = min(max(math.log(value_ms / low_ms) / span, 0.0), 1.0) if span else 0.0
    first, last, part = (_FAST, _AMBER, 2 * share) if share < 0.5 else (_AMBER, _SLOW, 2 * share - 1)  # noqa: PLR2004 - amber is half way
    mixed = (round(a + (b - a) * part) for a, b in zip(first, last, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)
