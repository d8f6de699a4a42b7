"""An SVG page: escaped, self-contained, readable on light and on dark ground."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

__all__ = ["Canvas", "number"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 (section 2.2) cannot carry even when escaped."""

_STYLE = (
    ".hs{--ink:#1b1f24;--soft:#6a737d;--line:#c4c9cf;--fill:#f4f6f8;--ground:#ffffff}"
    "@media(prefers-color-scheme:dark)"
    "{.hs{--ink:#e6e9ec;--soft:#9aa4ae;--line:#454d56;--fill:#22272e;--ground:#16191d}}"
    ".hs text{font:12px system-ui,sans-serif;fill:var(--ink)}"
    ".hs .soft{fill:var(--soft)}.hs .box{fill:var(--fill);stroke:var(--line)}"
    ".hs .onwire{paint-order:stroke;stroke:var(--ground);stroke-width:4px;stroke-linejoin:round}"
    ".hs .ground{fill:var(--ground)}.hs .wire{stroke:var(--line);fill:none}"
)
"""Colours of ink and ground; the reader's own preference picks the set. No font or file is fetched."""


def number(value: float) -> str:
    """A coordinate with at most two decimals, the same text on every machine."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Canvas:
    """Collects shapes; `svg()` gives the document. Coordinates are pixels from the top left."""

    def __init__(self, *, width: float, height: float, title: str) -> None:
        self._root = ET.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "class": "hs",
                "role": "img",
                "viewBox": f"0 0 {number(width)} {number(height)}",
                "width": number(width),
                "height": number(height),
            },
        )
        ET.SubElement(self._root, "title").text = _clean(title)
        ET.SubElement(self._root, "style").text = _STYLE
        self.box(0, 0, width, height, kind="ground", radius=0)

    def box(self, x: float, y: float, width: float, height: float, *, kind: str = "box", radius: float = 4) -> None:
        """A rectangle of a style class."""
        size = {"x": number(x), "y": number(y), "width": number(width), "height": number(height)}
        ET.SubElement(self._root, "rect", {**size, "rx": number(radius), "class": kind})

    def filled(self, x: float, y: float, width: float, height: float, *, colour: str, tip: str = "") -> None:
        """A rectangle of one colour with an optional tool tip."""
        size = {"x": number(x), "y": number(y), "width": number(width), "height": number(height)}
        self._tip(ET.SubElement(self._root, "rect", {**size, "rx": "3", "fill": colour}), tip)

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", kind: str = "", colour: str = "") -> None:
        """A line of text with its baseline at `y`; `anchor` is start, middle or end."""
        look = {"class": kind} if kind else {}
        if colour:
            look["style"] = f"fill:{colour}"
        place = {"x": number(x), "y": number(y), "text-anchor": anchor}
        ET.SubElement(self._root, "text", {**place, **look}).text = _clean(words)

    def wire(self, points: Sequence[tuple[float, float]]) -> None:
        """A thin line in the line colour."""
        ET.SubElement(self._root, "polyline", {"points": _points(points), "class": "wire"})

    def stroke(
        self, points: Sequence[tuple[float, float]], *, colour: str, width: float = 2, dash: str = "", tip: str = ""
    ) -> None:
        """A polyline of one colour."""
        look = {"points": _points(points), "fill": "none", "stroke": colour, "stroke-width": number(width)}
        if dash:
            look["stroke-dasharray"] = dash
        self._tip(ET.SubElement(self._root, "polyline", {**look, "stroke-linejoin": "round"}), tip)

    def area(self, points: Sequence[tuple[float, float]], *, colour: str, opacity: float = 1) -> None:
        """A filled polygon."""
        look = {"points": _points(points), "fill": colour, "fill-opacity": number(opacity)}
        ET.SubElement(self._root, "polygon", look)

    def dot(self, x: float, y: float, *, colour: str, tip: str = "") -> None:
        """A small disc."""
        look = {"cx": number(x), "cy": number(y), "r": "3.5", "fill": colour}
        self._tip(ET.SubElement(self._root, "circle", look), tip)

    def svg(self) -> str:
        """The document, to stand alone or inside an HTML page."""
        ET.indent(self._root, space=" ")
        return ET.tostring(self._root, encoding="unicode") + "\n"

    @staticmethod
    def _tip(element: ET.Element, tip: str) -> None:
        if tip:
            ET.SubElement(element, "title").text = _clean(tip)


def _clean(words: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", words)


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{number(x)},{number(y)}" for x, y in points)
