"""A site's fabric as a picture: switches with rates, nodes, NVLink domains, rails, meshes, what was measured."""

from collections.abc import Sequence

from hpcserve.draw.canvas import Canvas
from hpcserve.draw.node_svg import draw_node_type, node_type_size
from hpcserve.draw.site_layout import CHIP, GAP, LETTER, RAIL_WIDTH, Placed, Places, places_of
from hpcserve.draw.site_sketch import Part, Sketch
from hpcserve.draw.site_tree import headline, part_name, slow_lines
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

__all__ = ["site_svg"]

_MARGIN = 20.0
_TOP = 64.0
_LINE = 18.0
_LEAST_WIDTH = 560.0
_DOMAIN_COLOURS = ("#00906a", "#2b80d0", "#c2569f", "#b06c00")
"""In the order of Okabe and Ito's palette ("Color Universal Design", 2008), each shaded so that its words stand out
from white and from near-black alike: about 4:1 on both."""
_MEASURED = "#2b80d0"
_KIND_COLOURS = ("#5a6b7b", "#8a6d3b", "#7b5a78", "#4f7a5b")
_SLOW = "#e0452c"


def site_svg(sketch: Sketch, measured: Measured) -> str:
    """The site as an SVG document; what is folded says how many it stands for, tool tips hold each rate's source."""
    places = places_of(sketch, left=_MARGIN, top=_TOP)
    kinds = list(sketch.site.node_types.items())
    sizes = [node_type_size(kind) for _, kind in kinds]
    notes = _notes(sketch, measured)
    words = [headline(sketch), _subtitle(sketch), *notes]
    width = max(
        places.width + _MARGIN,
        _LEAST_WIDTH,
        max(size[0] for size in sizes) + 2 * _MARGIN,
        max(map(len, words)) * LETTER + 2 * _MARGIN,
    )
    rows = _shelves([size[0] for size in sizes], room=width - 2 * _MARGIN)
    below = places.bottom + 2 * _MARGIN
    heights = [max(sizes[place][1] for place in row) for row in rows]
    height = below + sum(heights) + _MARGIN * len(rows) + _LINE * len(notes) + _MARGIN
    canvas = Canvas(width=width, height=height, title=headline(sketch))
    canvas.text(_MARGIN, 26, headline(sketch))
    canvas.text(_MARGIN, 26 + _LINE, _subtitle(sketch), kind="soft")
    _Picture(canvas, sketch, measured).draw(places)
    y = below
    for row, tall in zip(rows, heights, strict=True):
        x = _MARGIN
        for place in row:
            draw_node_type(canvas, *kinds[place], x=x, y=y)
            x += sizes[place][0] + _MARGIN
        y += tall + _MARGIN
    for number, line in enumerate(notes):
        slow = line.startswith("Slow ")
        canvas.text(_MARGIN, y + _LINE * number, line, colour=_SLOW if slow else "", kind="" if slow else "soft")
    return canvas.svg()


def _subtitle(sketch: Sketch) -> str:
    unknown = sum(rate.unknown for _, rate in named_rates(sketch.site))
    gaps = f"; {counted(unknown, 'rate')} unknown" if unknown else ""
    return f"GB/s are one way, 1e9 bytes{gaps}"


def _notes(sketch: Sketch, measured: Measured) -> list[str]:
    found = measured.found
    lines = [
        f"NVLink domain {one.name}: {rate_words(one.rate)} per GPU, {one.hosts}" for one in sketch.site.nvlink_domains
    ]
    if len(lines) > len(_DOMAIN_COLOURS):
        lines = [f"{counted(len(lines), 'NVLink domain')}, the first: {lines[0]}"]
    if found is None:
        return lines
    lines.append(f"Measured {found.day} with {found.tool}")
    lines += [
        f"{one.class_}: median {gb(one.median)} GB/s of {counted(one.n, 'pair')}, {gb(one.min)} to {gb(one.max)};"
        f" the site says {said_of(sketch, one.links)}"
        for one in found.classes
    ]
    return [*lines, *slow_lines(measured)]


def _shelves(widths: Sequence[float], *, room: float) -> list[list[int]]:
    """The node types' places in rows that are no wider than `room`."""
    rows: list[list[int]] = [[]]
    used = 0.0
    for place, width in enumerate(widths):
        if rows[-1] and used + width > room:
            rows.append([])
            used = 0.0
        rows[-1].append(place)
        used += width + _MARGIN
    return rows


class _Picture:
    """Draws placed parts onto a canvas."""

    def __init__(self, canvas: Canvas, sketch: Sketch, measured: Measured) -> None:
        self._canvas = canvas
        self._sketch = sketch
        self._measured = measured
        domains = [domain.name for domain in sketch.site.nvlink_domains]
        kinds = list(sketch.site.node_types)
        self._domain_colour = {
            name: _DOMAIN_COLOURS[place % len(_DOMAIN_COLOURS)] for place, name in enumerate(domains)
        }
        self._kind_colour = {name: _KIND_COLOURS[place % len(_KIND_COLOURS)] for place, name in enumerate(kinds)}

    def draw(self, places: Places) -> None:
        """Wires first, boxes on them, words on the wires last."""
        for root in places.roots:
            self._wires(root)
        for root in places.roots:
            self._boxes(root)
        for root in places.roots:
            self._rates(root)

    def _wires(self, placed: Placed) -> None:
        if not placed.below:
            return
        bus = placed.y + placed.height + 20
        meshed = bool(placed.part.meshes)
        ends = [placed.middle, *(one.middle for one in placed.below)]
        self._line([(placed.middle, placed.y + placed.height), (placed.middle, bus)], meshed=meshed)
        self._line([(min(ends), bus), (max(ends), bus)], meshed=meshed)
        for one in placed.below:
            self._line([(one.middle, bus), (one.middle, one.y)], meshed=meshed)
            self._wires(one)

    def _line(self, points: Sequence[tuple[float, float]], *, meshed: bool) -> None:
        if meshed:
            self._canvas.stroke(points, colour="#8a929a", width=2, dash="6 4", tip="direct links, no switch above")
        else:
            self._canvas.wire(points)

    def _boxes(self, placed: Placed) -> None:
        part = placed.part
        if part.count > 1:  # a second edge behind the first says that there are more of them
            self._canvas.box(placed.x + 5, placed.y + 5, placed.width, placed.height, radius=8)
        self._canvas.box(placed.x, placed.y, placed.width, placed.height, kind="ground", radius=8)
        self._canvas.box(placed.x, placed.y, placed.width, placed.height, radius=8)
        slow = any(self._measured.is_slow(name) for name in part.names)
        self._canvas.text(placed.x + GAP, placed.y + 20, part_name(part), colour=_SLOW if slow else "")
        self._canvas.text(placed.x + GAP, placed.y + 38, self._second_line(part), kind="soft")
        if not part.below:
            self._leaf(placed)
        for one in placed.below:
            self._boxes(one)

    def _second_line(self, part: Part) -> str:
        if not part.hosts:
            if part.count > 1:
                return counted(part.count, "group" if part.meshes else "switch")
            return "no switch of its own" if part.meshes else "upper switch"
        low, high = part.fewest_hosts, part.most_hosts
        each = counted(high, "node") if low == high else f"{low} to {high} nodes"
        each = each if part.count == 1 else f"{part.count} x {each}"
        return f"{each}, {gpu_words(self._sketch, part.hosts)}"

    def _leaf(self, placed: Placed) -> None:
        part = placed.part
        if part.hosts:
            room = int((placed.width - 2 * GAP) / LETTER)
            self._canvas.text(placed.x + GAP, placed.y + 55, names_words(part.hosts, most=room), kind="soft")
        if len(part.rails) > 1:
            self._rails(placed)
        for name, (x, y, width, height) in placed.domains.items():
            colour = self._domain_colour[name]
            corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
            self._canvas.stroke(corners, colour=colour, width=1.5, tip=f"NVLink domain {name}")
            rate = next(one.rate for one in self._sketch.site.nvlink_domains if one.name == name)
            words = f"NVLink {name}" + ("" if rate.unknown else f", {gb(rate.gb_per_s)} GB/s")
            self._canvas.text(x + 6, y + 15, words, colour=colour)
        for host, box in placed.nodes.items():
            self._node(host, box, named=placed.named)

    def _rails(self, placed: Placed) -> None:
        """A leaf for each rail: a row of boxes above the nodes that all of them reach."""
        switches = {switch.name: switch for switch in self._sketch.site.switches}
        y = placed.y + 64
        step = (placed.width - 2 * GAP) / len(placed.part.rails)
        for place, rail in enumerate(placed.part.rails):
            name = next((one for one in placed.part.names if switches[one].rail == rail), "")
            slow = self._measured.is_slow(name)
            x = placed.x + GAP + place * step
            self._canvas.box(x, y, max(step - 4, RAIL_WIDTH - 8), 24, kind="ground", radius=3)
            self._canvas.box(x, y, max(step - 4, RAIL_WIDTH - 8), 24, radius=3)
            self._canvas.text(x + (step - 4) / 2, y + 16, f"rail {rail}", anchor="middle", colour=_SLOW if slow else "")

    def _node(self, host: str, box: tuple[float, float, float, float], *, named: bool) -> None:
        x, y, width, height = box
        kind = self._sketch.kind_of[host]
        colour = _SLOW if self._measured.is_slow(host) else self._kind_colour[self._sketch.kind_name_of[host]]
        tip = f"{host}: {self._sketch.kind_name_of[host]}, {kind.gpu.count} x {kind.gpu.model}"
        if not named:
            self._canvas.filled(x, y, width, height, colour=colour, tip=tip)
            return
        self._canvas.box(x, y, width, height, kind="ground")
        self._canvas.box(x, y, width, height)
        self._canvas.text(x + 6, y + 15, host, colour=_SLOW if colour == _SLOW else "")
        shown = min(kind.gpu.count, 8)
        for gpu in range(shown):
            self._canvas.filled(x + 6 + gpu * CHIP, y + 23, CHIP - 3, CHIP - 3, colour=colour, tip=f"{tip}, GPU {gpu}")

    def _rates(self, placed: Placed) -> None:
        """What each wire carries, and below it what was measured."""
        for one in placed.below:
            self._rates(one)
            part = one.part
            middle, y = one.middle, one.y - 26
            each = " each" if len(part.names) > 1 else ""
            if part.uplinks:
                self._canvas.text(middle, y, f"up {rate_range(part.uplinks)}{each}", anchor="middle", kind="onwire")
            values = self._measured.of_uplinks(part)
            if values:
                words = f"measured {measured_range(values)}"
                self._canvas.text(middle, y + 15, words, anchor="middle", kind="onwire", colour=_MEASURED)
