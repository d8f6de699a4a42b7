"""Where each part of a site stands in its picture: a parent above the middle of what hangs below it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcserve.draw.site_sketch import Part, Sketch
from hpcserve.draw.site_tree import part_name

__all__ = ["CHIP", "GAP", "LETTER", "RAIL_WIDTH", "SQUARE", "Placed", "Places", "places_of"]

LETTER = 7.0
"""Width that a letter of 12 px takes at the most on average, so that words stay inside their boxes."""
GAP = 12.0
SQUARE = 14.0
"""One node of many: a square that a pointer can still hit."""
RAIL_WIDTH = 58.0
CHIP = 12.0
"""One GPU inside the box of a named node."""

_LEVEL = 74.0
"""Room between a box and those below it, for the wire and two lines of words on it."""
_UPPER_HEIGHT = 46.0
_HEAD = 64.0
"""Title lines of a leaf box."""
_RAIL_HEAD = 34.0
_NODE_HEIGHT = 40.0
_DOMAIN_HEAD = 22.0
_MOST_NAMED = 40
"""Nodes of a leaf that get a box with their name; of more, each is a square."""
_MOST_SQUARES = 8192
"""More nodes than that in one box are only counted: the file would be larger than what a browser draws at once."""
_TINY, _TINY_STEP, _BLOCK_GAP = 7.0, 9.0, 6.0
_BLOCK_ROWS = 16
_MOST_BLOCKS_WIDTH = 900.0
_LEAST_WIDTH = 176.0
_COLUMNS = 10
_WIDE_COLUMNS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A part with its box, and, for a leaf, the box of each of its nodes."""

    part: Part
    x: float
    y: float
    width: float
    height: float
    below: tuple["Placed", ...]
    nodes: dict[str, tuple[float, float, float, float]]
    """x, y, width and height by node; empty where there are more than can be drawn."""
    named: bool
    domains: dict[str, tuple[float, float, float, float]]
    """The frame of each NVLink domain by name."""

    @property
    def middle(self) -> float:
        """Where its wires begin and end."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The whole picture of the switches: its roots, its width, where it ends below."""

    roots: tuple[Placed, ...]
    width: float
    bottom: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inside:
    """What a leaf box holds, relative to its top left: nodes and frames of NVLink domains."""

    width: float
    height: float
    nodes: dict[str, tuple[float, float, float, float]]
    named: bool
    domains: dict[str, tuple[float, float, float, float]]


def places_of(sketch: Sketch, *, left: float, top: float) -> Places:
    """Roots side by side from `left`, each with all below it underneath."""
    roots: list[Placed] = []
    x, bottom = left, top
    for root in sketch.roots:
        placed = _place(sketch, root, x, top)
        roots.append(placed)
        right, low = _extent(placed)
        x, bottom = right + 2 * GAP, max(bottom, low)
    return Places(roots=tuple(roots), width=x - 2 * GAP, bottom=bottom)


def _extent(placed: Placed) -> tuple[float, float]:
    """The right edge and the lower edge of a part and all below it."""
    edges = [_extent(one) for one in placed.below]
    return (
        max([placed.x + placed.width, *(right for right, _ in edges)]),
        max([placed.y + placed.height, *(low for _, low in edges)]),
    )


def _place(sketch: Sketch, part: Part, x: float, y: float) -> Placed:
    if not part.below:
        inside = _inside(sketch, part)
        return Placed(
            part=part, x=x, y=y, width=inside.width, height=inside.height, below=(), named=inside.named,
            nodes=_moved(inside.nodes, x, y), domains=_moved(inside.domains, x, y),
        )  # fmt: skip
    below: list[Placed] = []
    at = x
    own = _words_width(part)
    for one in part.below:
        below.append(_place(sketch, one, at, y + _UPPER_HEIGHT + _LEVEL))
        at = _extent(below[-1])[0] + 2 * GAP
    span = at - 2 * GAP - x
    if span < own:  # what hangs below a long name stands under its middle
        below = [_shifted(one, (own - span) / 2) for one in below]
        span = own
    middle = (below[0].middle + below[-1].middle) / 2
    left = min(max(middle - own / 2, x), x + span - own)
    return Placed(
        part=part, x=left, y=y, width=own, height=_UPPER_HEIGHT, below=tuple(below), nodes={}, named=False, domains={}
    )


def _shifted(placed: Placed, by: float) -> Placed:
    return Placed(
        part=placed.part, x=placed.x + by, y=placed.y, width=placed.width, height=placed.height, named=placed.named,
        below=tuple(_shifted(one, by) for one in placed.below),
        nodes=_moved(placed.nodes, by, 0), domains=_moved(placed.domains, by, 0),
    )  # fmt: skip


def _moved(
    boxes: dict[str, tuple[float, float, float, float]], x: float, y: float
) -> dict[str, tuple[float, float, float, float]]:
    return {name: (left + x, top + y, width, height) for name, (left, top, width, height) in boxes.items()}


def _words_width(part: Part) -> float:
    return max(_LEAST_WIDTH, len(part_name(part)) * LETTER + 2 * GAP)


def _inside(sketch: Sketch, part: Part) -> _Inside:
    """The nodes of a leaf box: of one switch by name or as squares, of several as one block of squares for each."""
    rails = len(part.rails) * RAIL_WIDTH if len(part.rails) > 1 else 0.0
    width = max(_words_width(part), rails + 2 * GAP)
    top = _HEAD + (_RAIL_HEAD if rails else 0.0)
    if not part.hosts or len(part.hosts) > _MOST_SQUARES:
        return _Inside(width=width, height=top + GAP, nodes={}, named=False, domains={})
    if part.count > 1:
        return _blocks(part, width, top)
    return _nodes(sketch, part.hosts, width, top)


def _blocks(part: Part, width: float, top: float) -> _Inside:
    """Many small leaves: each a block of squares, side by side, in as many rows as the width makes."""
    tall = min(part.most_hosts, _BLOCK_ROWS)
    block = -(-part.most_hosts // _BLOCK_ROWS) * _TINY_STEP
    across = max(int(min(_MOST_BLOCKS_WIDTH, width - 2 * GAP + _BLOCK_GAP) // (block + _BLOCK_GAP)), 1)
    if part.count > across:  # wider than its words only where that saves rows
        across = min(part.count, max(int(_MOST_BLOCKS_WIDTH // (block + _BLOCK_GAP)), 1))
    across = -(-part.count // -(-part.count // across))  # rows of equal length
    nodes: dict[str, tuple[float, float, float, float]] = {}
    for number, hosts in enumerate(part.leaves):
        left = GAP + number % across * (block + _BLOCK_GAP)
        upper = top + number // across * (tall * _TINY_STEP + _BLOCK_GAP)
        for place, host in enumerate(hosts):
            x, y = left + place // tall * _TINY_STEP, upper + place % tall * _TINY_STEP
            nodes[host] = (x, y, _TINY, _TINY)
    rows = -(-part.count // across)
    return _Inside(
        width=max(width, min(across, part.count) * (block + _BLOCK_GAP) - _BLOCK_GAP + 2 * GAP),
        height=top + rows * (tall * _TINY_STEP + _BLOCK_GAP) + GAP - _BLOCK_GAP,
        nodes=nodes,
        named=False,
        domains={},
    )


def _nodes(sketch: Sketch, hosts: Sequence[str], width: float, top: float) -> _Inside:
    """The nodes of one switch, those of an NVLink domain in one frame."""
    named = len(hosts) <= _MOST_NAMED
    cell = _cell(sketch, hosts, named=named)
    step_x, step_y = cell[0] + GAP / 2, cell[1] + GAP / 2
    most = _columns(len(hosts), named=named)
    columns = min(len(hosts), max(int((width - 2 * GAP + GAP / 2) // step_x), most))
    width = max(width, columns * step_x - GAP / 2 + 2 * GAP)
    nodes: dict[str, tuple[float, float, float, float]] = {}
    frames: dict[str, tuple[float, float, float, float]] = {}
    y = top
    for domain, members in _by_domain(sketch, hosts):
        first = y + (_DOMAIN_HEAD if domain else 0.0)
        for place, host in enumerate(members):
            nodes[host] = (GAP + place % columns * step_x, first + place // columns * step_y, *cell)
        end = first + -(-len(members) // columns) * step_y - GAP / 2
        if domain:
            frames[domain] = (GAP / 2, y, width - GAP, end - y + GAP / 2)
        y = end + GAP
    return _Inside(width=width, height=y, nodes=nodes, named=named, domains=frames)


def _columns(hosts: int, *, named: bool) -> int:
    if named:
        return 2 if hosts <= 2 * _COLUMNS else 4
    return _COLUMNS if hosts <= _COLUMNS**2 else _WIDE_COLUMNS


def _cell(sketch: Sketch, hosts: Sequence[str], *, named: bool) -> tuple[float, float]:
    """Width and height of one node's box."""
    if not named:
        return SQUARE, SQUARE
    gpus = min(max(sketch.kind_of[host].gpu.count for host in hosts), 8)
    return max(max(map(len, hosts)) * LETTER + GAP, gpus * CHIP + GAP), _NODE_HEIGHT


def _by_domain(sketch: Sketch, hosts: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The hosts by NVLink domain, those of none under an empty name."""
    groups: dict[str, list[str]] = {}
    for host in hosts:
        domain = sketch.domain_of.get(host)
        groups.setdefault(domain.name if domain else "", []).append(host)
    yield from groups.items()
