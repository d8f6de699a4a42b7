"""Good request rate against offered rate, one curve a placement."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpcserve.draw.canvas import Canvas

__all__ = ["Curve", "CurvePoint", "curve_svg"]

_WIDTH, _HEIGHT = 640.0, 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 60.0, 20.0, 46.0, 54.0
_TICKS = 5
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette ("Color Universal Design", 2008), told apart with any colour vision."""
_DASHES = ("", "7 3", "2 3", "9 3 2 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Requests/s offered, of them good, and the 95 % interval of the good ones."""

    offered_per_s: float
    good_per_s: float
    low_per_s: float
    high_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One placement's points, in any order."""

    name: str
    points: tuple[CurvePoint, ...]


def curve_svg(curves: Sequence[Curve], *, title: str = "Good request rate against offered rate") -> str:
    """The curves as an SVG document: intervals as bars, the dashed line is where every request is good."""
    canvas = Canvas(width=_WIDTH, height=_HEIGHT + 18 * len(curves), title=title)
    canvas.text(_LEFT, 24, title)
    points = [point for curve in curves for point in curve.points]
    if not points:
        canvas.text(_WIDTH / 2, _HEIGHT / 2, "no valid run", anchor="middle", kind="soft")
        return canvas.svg()
    top = max(max(point.offered_per_s, point.high_per_s) for point in points)
    step = _step(top)
    limit = step * math.ceil(top / step)
    _draw_axes(canvas, step=step, limit=limit)
    for place, curve in enumerate(curves):
        _draw_curve(canvas, curve, place=place, limit=limit)
    return canvas.svg()


def _draw_axes(canvas: Canvas, *, step: float, limit: float) -> None:
    for tick in range(round(limit / step) + 1):
        value = tick * step
        x, y = _at(value, value, limit)
        canvas.wire([(_LEFT, y), (_WIDTH - _RIGHT, y)])
        canvas.text(_LEFT - 8, y + 4, f"{value:g}", anchor="end", kind="soft")
        canvas.text(x, _HEIGHT - _BOTTOM + 18, f"{value:g}", anchor="middle", kind="soft")
    canvas.text(_LEFT, _TOP - 6, "good requests/s", kind="soft")
    canvas.text(_WIDTH - _RIGHT, _HEIGHT - _BOTTOM + 38, "offered requests/s", anchor="end", kind="soft")
    canvas.stroke([_at(0, 0, limit), _at(limit, limit, limit)], colour="#8a929a", width=1, dash="4 4",
                  tip="every request good")  # fmt: skip


def _draw_curve(canvas: Canvas, curve: Curve, *, place: int, limit: float) -> None:
    colour, dash = _COLOURS[place % len(_COLOURS)], _DASHES[place % len(_DASHES)]
    points = sorted(curve.points, key=lambda point: point.offered_per_s)
    line = [_at(point.offered_per_s, point.good_per_s, limit) for point in points]
    canvas.stroke(line, colour=colour, dash=dash, tip=curve.name)
    for point, (x, y) in zip(points, line, strict=True):
        low, high = _at(0, point.low_per_s, limit)[1], _at(0, point.high_per_s, limit)[1]
        canvas.stroke([(x, low), (x, high)], colour=colour, width=1)
        canvas.dot(x, y, colour=colour, tip=f"{curve.name}: {point.good_per_s:.3g} of {point.offered_per_s:.3g}/s good")
    y = _HEIGHT + 18 * place
    canvas.stroke([(_LEFT, y), (_LEFT + 30, y)], colour=colour, dash=dash)
    canvas.text(_LEFT + 38, y + 4, curve.name)


def _at(offered: float, good: float, limit: float) -> tuple[float, float]:
    x = _LEFT + offered / limit * (_WIDTH - _LEFT - _RIGHT)
    y = _HEIGHT - _BOTTOM - good / limit * (_HEIGHT - _TOP - _BOTTOM)
    return x, y


def _step(top: float) -> float:
    """A step of 1, 2 or 5 times a power of ten that gives about five ticks up to `top`."""
    rough = top / _TICKS
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
