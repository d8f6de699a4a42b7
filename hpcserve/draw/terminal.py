"""Plans as terminal text: a map of who sits where, and a table of what each path costs."""

import io
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hpcserve.draw.seats import Seats, alike_paths, label, seats_of
from hpcserve.nouns import PathCost, Plan
from hpcserve.units import ms_text

__all__ = ["paths_table", "plan_map", "text_table"]

_ENDLESS_COLUMNS = 10_000
"""Tables are never wrapped: what is too wide for a terminal can still be piped, searched and copied."""

_IDLE = "·"
_BYTES_PER_MB = 1e6


def text_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[str] = frozenset()) -> str:
    """An aligned table as plain text without trailing blanks; the columns named in `right` are right-aligned."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(Text(name), justify="right" if name in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    page = io.StringIO()
    console = Console(file=page, width=_ENDLESS_COLUMNS, color_system=None, force_terminal=False, _environ={})
    console.print(table)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines() if line.strip()) + "\n"


def plan_map(plan: Plan, *, leaf_of: Callable[[str], str]) -> str:
    """The placement as a map: leaves, their nodes, one cell per GPU, the router; below it the workers in full.

    `leaf_of` gives the leaf switch of a node. Only nodes that the plan uses are drawn.
    """
    seats = seats_of(plan, leaf_of=leaf_of)
    lines = [_headline(plan)]
    for leaf, nodes in seats.leaves.items():
        lines += ["", leaf]
        for place, node in enumerate(nodes):
            branch = "└─" if place == len(nodes) - 1 else "├─"
            lines.append(f"{branch} {node.ljust(_widest(seats))}  {_cells(seats, node)}{_router(plan, node)}".rstrip())
    rows = [
        (
            label(worker.id),
            worker.id if worker.stages == 1 else f"{worker.id} stage {stage}",
            rank.node,
            _numbers(rank.gpus),
            str(worker.tensor_parallel),
            ", ".join(rank.nics) or "-",
            _numbers(rank.cores),
        )
        for worker in plan.workers
        for stage, rank in enumerate(worker.ranks)
    ]
    shared = "".join(f"Shared: {line}\n" for line in plan.shared)
    table = text_table(("", "worker", "node", "GPUs", "TP", "NICs", "cores"), rows)
    return "\n".join(lines) + "\n\n" + table + shared


def paths_table(plan: Plan) -> str:
    """Every prefill → decode path: distance, links, one-way GB/s, KV of one typical request, predicted milliseconds.

    Of more than 16 paths, those of equal distance and cost share a line, with the links of the first. An aggregated
    plan has no path; the text says so.
    """
    if not plan.paths:
        return "No KV is moved between workers: every request is served whole by one worker.\n"
    right = frozenset({"GB/s", "KV MB", "ms (predicted)"})
    columns = ("prefill → decode", "distance", "GB/s", "KV MB", "ms (predicted)", "links")
    rows = [
        (
            _pairs(alike),
            path.distance,
            f"{path.gb_per_s:.4g}",
            f"{path.kv_bytes / _BYTES_PER_MB:.2f}",
            ms_text(path.transfer_ms),
            _links(path),
        )
        for alike in alike_paths(plan)
        for path in alike[:1]
    ]
    return text_table(columns, rows, right=right) + "".join(f"{line}\n" for line in _sources(plan))


def _links(path: PathCost) -> str:
    """The links of the slowest pair of ranks, and how many more pairs there are."""
    others = path.rank_paths - 1
    return (" ".join(path.hops) or "-") + (f" (and {others} of other ranks)" if others else "")


def _pairs(alike: Sequence[PathCost]) -> str:
    first = f"{alike[0].prefill} → {alike[0].decode}"
    return first if len(alike) == 1 else f"{first} and {len(alike) - 1} alike"


def _sources(plan: Plan) -> list[str]:
    """Where each rate comes from, by the distances that it holds for."""
    distances: dict[str, list[str]] = {}
    for path in plan.paths:
        distances.setdefault(path.source, []).append(path.distance)
    return [f"Rate {', '.join(dict.fromkeys(where))}: {source}" for source, where in distances.items()]


def _headline(plan: Plan) -> str:
    where = "on the nodes that were granted" if plan.granted else "before nodes are granted"
    return f"{plan.service} on {plan.site}: {plan.mode}, {where}"


def _widest(seats: Seats) -> int:
    return max(len(node) for nodes in seats.leaves.values() for node in nodes)


def _cells(seats: Seats, node: str) -> str:
    width = max((len(label(worker)) for worker in seats.worker_at.values()), default=1)
    cells = (seats.worker_at.get((node, gpu)) for gpu in range(seats.gpus_per_node))
    return "[" + " ".join((label(worker) if worker else _IDLE).ljust(width) for worker in cells) + "]"


def _router(plan: Plan, node: str) -> str:
    return "  router" if plan.router.node == node else ""


def _numbers(numbers: Sequence[int]) -> str:
    """`0-3,8`: sorted numbers with runs folded; `-` where there are none."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs) or "-"
