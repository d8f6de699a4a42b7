"""An errand and a measurement for people to read."""

from collections.abc import Sequence

from hpcserve.draw import text_table
from hpcserve.fabric import Fabric
from hpcserve.measure.errand import Errand, Flow, Task
from hpcserve.measure.summary import static_gb_per_s
from hpcserve.nouns import Measurement, PairMeasured

__all__ = ["NO_MPI", "causes_of", "errand_text", "measurement_text"]

NO_MPI = "no MPI on "
"""How a rank's complaint begins that could not start MPI; its node and the reason follow, `NODE: REASON`."""

_MOST_ROUNDS = 40
_MOST_PAIRS = 64


def errand_text(errand: Errand) -> str:
    """What would be measured: seats, and the pairs of each round."""
    pairs = sum(len(task.flows) for tasks in errand.rounds for task in tasks if not task.links)
    lines = [
        f"{len(errand.nodes)} nodes, {len(errand.seats)} NICs; {pairs} pairs ({errand.scope})",
        f"{len(errand.rounds)} rounds, {errand.seconds:g} s each; no two pairs of a round share a link or a NIC",
    ]
    for number, tasks in enumerate(errand.rounds[:_MOST_ROUNDS], start=1):
        lines.append(f"  round {number}: " + "; ".join(_task(errand, task) for task in tasks))
    if len(errand.rounds) > _MOST_ROUNDS:
        lines.append(f"  and {len(errand.rounds) - _MOST_ROUNDS} rounds more")
    return "\n".join(lines) + "\n"


def measurement_text(measurement: Measurement, *, fabric: Fabric) -> str:
    """Tables per class, per shared link and per pair, beside what the site file says; then what stands out."""
    statics = [static_gb_per_s(fabric, pair) for pair in measurement.pairs]
    parts = [
        f"{measurement.site}, {measurement.day}: GB/s one way (1e9 bytes/s). {measurement.tool}\n",
        _classes(measurement),
        _links(measurement),
        _pairs(measurement.pairs, statics),
        _findings(measurement),
    ]
    return "\n".join(part for part in parts if part)


def causes_of(missing: Sequence[str], log: Sequence[str]) -> list[str]:
    """Why nothing was measured, one line for each cause: what ranks complained of first, then what pairs lack."""
    lines = [line for line in log if line.startswith(NO_MPI)] + list(missing)
    alike: dict[str, list[str]] = {}
    for line in lines:
        alike.setdefault(line.rpartition(": ")[2], []).append(line)
    return [those[0] + (f" ({len(those) - 1} more like this)" if those[1:] else "") for those in alike.values()]


def _classes(measurement: Measurement) -> str:
    rows = [
        (one.class_, str(one.n), f"{one.median:.4g}", f"{one.min:.4g}", f"{one.max:.4g}", ", ".join(one.links))
        for one in measurement.classes
    ]
    heads = ("class", "pairs", "median", "min", "max", "links of one of them")
    return text_table(heads, rows, right=frozenset(heads[1:5])) if rows else ""


def _links(measurement: Measurement) -> str:
    rows = [
        (one.name, f"{least}{one.gb_per_s:.4g}", *_beside(one.gb_per_s, one.static_gb_per_s), what)
        for least, what, links in (
            ("", "what it carries", measurement.links),
            ("at least ", "not the limit", measurement.not_filled),
        )
        for one in links
    ]
    heads = ("shared link", "all flows together", "site says", "of it", "")
    return text_table(heads, rows, right=frozenset(heads[1:4])) if rows else ""


def _beside(gb_per_s: float, static_gb_per_s: float | None) -> tuple[str, str]:
    """What the site says, and how much of that was reached."""
    if static_gb_per_s is None:
        return "unknown", ""
    return f"{static_gb_per_s:.4g}", f"{100 * gb_per_s / static_gb_per_s:.0f} %"


def _pairs(pairs: Sequence[PairMeasured], statics: Sequence[float | None]) -> str:
    rows = [
        (
            f"{pair.a.node}:{pair.a.gpu} to {pair.b.node}:{pair.b.gpu}",
            f"{pair.gb_per_s:.4g}",
            *_beside(pair.gb_per_s, static),
            "" if pair.latency_us is None else f"{pair.latency_us:.0f}",
            pair.transport or "not said",
            pair.device or "not proved",
            str(pair.n),
            f"{100 * pair.spread:.0f} %",
        )
        for pair, static in sorted(zip(pairs, statics, strict=True), key=lambda one: one[0].gb_per_s)[:_MOST_PAIRS]
    ]
    heads = ("pair", "measured", "site says", "of it", "latency us", "transport", "NIC", "reads", "spread")
    more = f"the slowest {_MOST_PAIRS} of {len(pairs)} pairs\n" if len(pairs) > _MOST_PAIRS else ""
    return (text_table(heads, rows, right=frozenset(heads[1:5] + heads[7:])) + more) if rows else ""


def _findings(measurement: Measurement) -> str:
    lines = [
        f"SLOW {one.kind} {one.name}: {one.gb_per_s:.4g} of {one.expected_gb_per_s:.4g} GB/s; {one.why}"
        for one in measurement.outliers
    ]
    lines += [f"not measured: {line}" for line in measurement.missing]
    return "\n".join(lines or ["No pair is slower than its like."]) + "\n"


def _task(errand: Errand, task: Task) -> str:
    if task.links:
        return f"together over {', '.join(task.links)}: " + ", ".join(_flow(errand, flow) for flow in task.flows)
    return _flow(errand, task.flows[0])


def _flow(errand: Errand, flow: Flow) -> str:
    return f"{errand.seats[flow.source].name} to {errand.seats[flow.reader].name}"
