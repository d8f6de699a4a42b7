"""What shared links carried under several flows at once, and whether they were what held those flows."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, Link, max_min
from hpcserve.measure.errand import Errand, Flow, Reading, Task
from hpcserve.measure.outliers import SLOW
from hpcserve.measure.pairs import at
from hpcserve.nouns import LinkMeasured

__all__ = ["links_carried"]


def links_carried(
    errand: Errand, good: Sequence[Reading], *, fabric: Fabric
) -> tuple[tuple[LinkMeasured, ...], tuple[LinkMeasured, ...]]:
    """Links that slowed the flows over them, with what they can carry, and links that did not, with what they did.

    A link that all flows of a task pass was their limit where together they moved clearly less than they can apart: the
    same flows alone, or, where those were not measured, the best that their ends reached, or their NICs as the site has
    them. `SLOW` is what `clearly` means. Where their ends are not known either, nothing is said of a limit.
    """
    tasks: dict[tuple[int, int], list[Reading]] = defaultdict(list)
    alone: dict[Flow, float] = {}
    for reading in good:
        if errand.rounds[reading.round][reading.task].links:
            tasks[reading.round, reading.task].append(reading)
        else:
            alone[reading.flow] = median(reading.rates_gb_per_s)
    carried: dict[str, tuple[float, bool, Task]] = {}
    for (number, place), flows in tasks.items():
        task = errand.rounds[number][place]
        together = _together_gb_per_s(flows) if len(flows) == len(task.flows) else None
        if not together:
            continue
        apart = _apart_gb_per_s(errand, task, alone, fabric)
        was_held = apart is not None and together < SLOW * apart
        for link in task.links:
            # What it carried in one task it can carry in all: of two tasks the one that moved more has the word.
            if link not in carried or (together, was_held) > carried[link][:2]:
                carried[link] = (together, was_held, task)
    held: list[LinkMeasured] = []
    not_filled: list[LinkMeasured] = []
    for name, (rate, was_held, task) in carried.items():
        measured = LinkMeasured(name=name, gb_per_s=rate, static_gb_per_s=_static_gb_per_s(errand, task, fabric))
        (held if was_held else not_filled).append(measured)
    return tuple(held), tuple(not_filled)


def _static_gb_per_s(errand: Errand, task: Task, fabric: Fabric) -> float | None:
    """What the flows of a task should move in sum by the site file; None where it leaves a rate unknown."""
    try:
        shares = fabric.share([(at(errand.seats[flow.source]), at(errand.seats[flow.reader])) for flow in task.flows])
    except PlacementError:
        return None
    return sum(share.gb_per_s for share in shares)


def _together_gb_per_s(flows: Sequence[Reading]) -> float | None:
    """GB/s of all flows in the time when all of them ran; a read that lies partly in it counts in part."""
    start = max(flow.batches_s[0][0] for flow in flows)
    end = min(flow.batches_s[-1][1] for flow in flows)
    if end <= start:
        return None
    moved = 0.0
    for flow in flows:
        for began, ended in flow.batches_s:
            moved += flow.batch_bytes * max(0.0, min(ended, end) - max(began, start)) / (ended - began)
    return moved / (end - start) / 1e9


def _apart_gb_per_s(errand: Errand, task: Task, alone: Mapping[Flow, float], fabric: Fabric) -> float | None:
    """What the flows of a task would move in sum if the links that all of them pass held nobody, GB/s.

    Links that only some of them share hold them still, so that those are not taken for the one that all share. None
    where it is not known.
    """
    ways = []
    for flow in task.flows:
        path = fabric.links(at(errand.seats[flow.source]), at(errand.seats[flow.reader]))
        way = _way_apart([link for link in path if link.name not in task.links], flow, alone)
        if way is None:
            return None
        ways.append(way)
    return sum(share.gb_per_s for share in max_min(ways))


def _way_apart(others: Sequence[Link], flow: Flow, alone: Mapping[Flow, float]) -> list[Link] | None:
    """What holds a flow besides the links in question; a limit of its own stands in it as a link."""
    known = [link for link in others if link.gb_per_s]
    name = f"flow {flow.source} to {flow.reader}"
    if (own := alone.get(flow)) is not None:
        # What it passed alone can carry that much, whatever the site says.
        return [Link(name, own, "alone"), *(replace(link, gb_per_s=max(link.gb_per_s, own)) for link in known)]
    out = [rate for each, rate in alone.items() if each.source == flow.source]
    into = [rate for each, rate in alone.items() if each.reader == flow.reader]
    if out and into:
        return [Link(name, min(max(out), max(into)), "the best of its ends"), *known]
    return known if known and len(known) == len(others) else None
