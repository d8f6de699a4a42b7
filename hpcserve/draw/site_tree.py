"""A site in the terminal: its switches as a tree with rates, its node types, its NVLink domains, what was measured."""

from collections.abc import Iterator, Sequence

from hpcserve.draw.site_sketch import Part, Sketch
from hpcserve.draw.site_words import (
    Measured,
    counted,
    gb,
    gpu_words,
    measured_range,
    named_rates,
    names_words,
    rate_range,
    rate_words,
    said_of,
)
from hpcserve.draw.terminal import text_table
from hpcserve.nouns import Nic, NodeType

__all__ = ["headline", "part_name", "site_tree", "slow_lines", "unknown_lines"]

_MOST_NAMES = 48
"""Letters of a host list in the tree; what is longer is in the site file."""

_MOST_UNKNOWN = 4
"""Links of one reason that a line names."""


def site_tree(sketch: Sketch, measured: Measured) -> str:
    """The whole site as text: the tree first, below it a table for each thing that the site has."""
    return "\n".join([headline(sketch) + "\n", *_tables(sketch, measured)])


def headline(sketch: Sketch) -> str:
    """`onebox: 4 nodes, 4 x cpu: four nodes on one machine`."""
    site = sketch.site
    models = {kind.gpu.model for kind in sketch.kind_of.values()}
    what = counted(sketch.gpus, f"{models.pop()} GPU" if len(models) == 1 else "GPU")
    if "cpu" in what:
        what = counted(sketch.gpus, "slot")
    return f"{site.name}: {counted(len(sketch.kind_of), 'node')}, {what}: {site.description}"


def _tables(sketch: Sketch, measured: Measured) -> Iterator[str]:
    rows = [row for root in sketch.roots for row in _rows(sketch, measured, root, "")]
    columns = ("switch", "up", "measured", "nodes", "GPUs of each", "names")
    shown = [place for place, name in enumerate(columns) if name != "measured" or any(row[place] for row in rows)]
    yield text_table(
        [columns[place] for place in shown],
        [[row[place] for place in shown] for row in rows],
        right=frozenset({"nodes"}),
    )
    site = sketch.site
    yield text_table(
        ("node type", "nodes", "GPUs", "NVLink, one way", "NICs, one way", "through the host"),
        [_kind_row(sketch, name, kind) for name, kind in site.node_types.items()],
        right=frozenset({"nodes"}),
    )
    if site.nvlink_domains:
        yield text_table(
            ("NVLink domain", "one way per GPU", "nodes"),
            [(one.name, rate_words(one.rate), one.hosts) for one in site.nvlink_domains],
        )
    yield from (f"{line}\n" for line in unknown_lines(sketch))
    yield from _measured_tables(sketch, measured)


def unknown_lines(sketch: Sketch) -> Sequence[str]:
    """A sentence for each rate that the site does not know, and why."""
    gaps: dict[str, list[str]] = {}
    for what, rate in named_rates(sketch.site):
        if rate.unknown:
            gaps.setdefault(rate.source, []).append(what)
    return [f"Unknown, {_some(names)}: {why}" for why, names in gaps.items()]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_UNKNOWN
    return "; ".join(names[:_MOST_UNKNOWN]) + (f" and {more} more" if more > 0 else "")


def _rows(sketch: Sketch, measured: Measured, part: Part, lead: str) -> Iterator[tuple[str, ...]]:
    """The row of a part and those of all below it; `lead` is what stands before its name."""
    slow = [name for name in part.names if measured.is_slow(name)]
    yield (
        lead + part_name(part),
        rate_range(part.uplinks),
        measured_range(measured.of_uplinks(part)) + (f" slow: {names_words(slow, most=24)}" if slow else ""),
        _nodes(part),
        gpu_words(sketch, part.hosts),
        names_words(part.hosts, most=_MOST_NAMES) if part.hosts else "",
    )
    under = lead.replace("├─ ", "│  ").replace("└─ ", "   ")
    for number, one in enumerate(part.below):
        branch = "└─ " if number == len(part.below) - 1 else "├─ "
        yield from _rows(sketch, measured, one, under + branch)


def part_name(part: Part) -> str:
    """`leaf1`, `leaf[01-63] (63)`, `leaf[1-8] (rails 0-7)`, with the rate of its mesh."""
    words = names_words(part.names, most=_MOST_NAMES)
    notes = []
    if len(part.rails) > 1:
        notes.append(f"rails {part.rails[0]}-{part.rails[-1]}")
    elif part.rails:
        notes.append(f"rail {part.rails[0]}")
    if part.count > 1:
        notes.append(f"{part.count} alike")
    if part.meshes:
        notes.append(f"direct links between each two: {rate_range(part.meshes)}")
    return f"{words} ({', '.join(notes)})" if notes else words


def _nodes(part: Part) -> str:
    if not part.hosts:
        return ""
    if part.count == 1:
        return str(part.most_hosts)
    each = f"{part.most_hosts}" if part.fewest_hosts == part.most_hosts else f"{part.fewest_hosts}-{part.most_hosts}"
    return f"{part.count} x {each}"


def _kind_row(sketch: Sketch, name: str, kind: NodeType) -> tuple[str, ...]:
    nodes = sum(kind_name == name for kind_name in sketch.kind_name_of.values())
    islands = ", ".join(
        f"{'+'.join(map(str, island.gpus)) if len(kind.nvlink) > 1 else 'all'}: {rate_words(island.rate)}"
        for island in kind.nvlink
    )
    return (
        name,
        str(nodes),
        f"{kind.gpu.count} x {kind.gpu.model}, {kind.gpu.memory_gib:g} GiB",
        islands or "-",
        "; ".join(f"{len(like)} x {like[0].kind.value} {rate_words(like[0].rate)}" for like in _like_nics(kind)),
        rate_words(kind.host_path),
    )


def _like_nics(kind: NodeType) -> list[list[Nic]]:
    """The NICs of a node, those of one kind and rate together."""
    groups: dict[tuple[object, ...], list[Nic]] = {}
    for nic in kind.nics:
        groups.setdefault((nic.kind, nic.rate), []).append(nic)
    return list(groups.values())


def _measured_tables(sketch: Sketch, measured: Measured) -> Iterator[str]:
    found = measured.found
    if found is None:
        return
    yield f"Measured {found.day} with {found.tool}:\n"
    if found.classes:
        yield text_table(
            ("path", "site says", "GB/s median", "least", "most", "pairs", "links"),
            [
                (
                    one.class_,
                    said_of(sketch, one.links),
                    gb(one.median),
                    gb(one.min),
                    gb(one.max),
                    str(one.n),
                    " ".join(one.links),
                )
                for one in found.classes
            ],
            right=frozenset({"site says", "GB/s median", "least", "most", "pairs"}),
        )
    yield from (f"{line}\n" for line in slow_lines(measured))
    if found.missing:
        yield "Not measured: " + "; ".join(found.missing) + "\n"


def slow_lines(measured: Measured) -> Sequence[str]:
    """A sentence for each node or link that was slower than its like."""
    found = measured.found
    return [
        f"Slow {one.kind} {one.name}: {gb(one.gb_per_s)} GB/s, its like {gb(one.expected_gb_per_s)} GB/s ({one.why})"
        for one in (found.outliers if found else ())
    ]
