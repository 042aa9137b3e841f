"""Speed against quality: where no other setting is both faster and truer, a line goes through."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from kvwise.report.charts.common import Spec, whole
from kvwise.report.document import Picture
from kvwise.report.lines import Line, Task
from kvwise.report.theme import GREY, INK, LINE, SOFT, TEAL
from kvwise.results import spread
from kvwise.results.wording import number, with_spread
from kvwise.text import phrase

_FLOOR = 1e-6
"""A divergence on a logarithmic axis cannot be 0."""
_WIDTH, _HEIGHT = 760, 340
_LETTER, _LINE = 7, 15
"""About the pixels that a letter and a line of text take."""


def pareto(points: Sequence[tuple[float, float]]) -> set[int]:
    """Numbers of the points (less is better, more is better) that no other beats in both."""
    best: set[int] = set()
    for number_, (cost, gain) in enumerate(points):
        beaten = any(
            other_cost <= cost and other_gain >= gain and (other_cost, other_gain) != (cost, gain)
            for other_cost, other_gain in points
        )
        if not beaten:
            best.add(number_)
    return best


def tradeoff(lines: Sequence[Line], test: Task, *, alone: bool = True) -> Picture | None:
    """None with fewer than two settings that have both figures. The title says which test it is of
    where it does not stand `alone`."""
    known = [line for line in lines if line.figure("kl_mean") is not None and test in line.speeds]
    if len(known) < 2:
        return None
    floors = [line.figure("noise_kl_mean") for line in known]
    noise = max((floor for floor in floors if floor is not None), default=None)
    divergences = [line.figure("kl_mean") or 0.0 for line in known]
    least = min((kl for kl in (*divergences, noise or 0.0) if kl > 0), default=_FLOOR) / 3
    points = [_point(line, test, least) for line in known]
    best = pareto([(kl, point["speed"]) for kl, point in zip(divergences, points, strict=True)])
    for place, point in enumerate(points):
        point["best"] = place in best
    title = phrase("Speed against fidelity")
    return Picture(
        title if alone else phrase("{name}: {text}", name=title, text=test.name),
        whole(_spec(points, noise)),
        phrase("{count} settings by divergence and tokens/s", count=len(points)),
        phrase(
            "Further left is truer to f16, higher is faster. The line joins the settings that no "
            "other beats in both. Grey = the model's own noise, where there is no difference."
        ),
    )  # fmt: skip


def _point(line: Line, test: Task, least: float) -> Spec:
    found, kl = line.speeds[test], line.figure("kl_mean")
    median, around = statistics.median(found.shown), spread(found.shown) or 0.0
    return {
        "label": line.label, "kl": max(kl or 0.0, least), "speed": median,
        "low": median - around, "high": median + around,
        "says": phrase(
            "{label}: KL {kl}, {speed}", label=line.label, kl=number(kl or 0.0),
            speed=with_spread(found),
        ),
    }  # fmt: skip


def _put_labels(points: list[Spec], across: tuple[float, float], up: tuple[float, float]) -> None:
    """Moves each label up or down until it lies on no other, nor on a point."""
    spots = [
        (
            math.log(point["kl"] / across[0]) / math.log(across[1] / across[0]) * _WIDTH,
            (up[1] - point["speed"]) / (up[1] - up[0] or 1) * _HEIGHT,
        )
        for point in points
    ]
    taken = [(x - 7, x + 7, y) for x, y in spots]
    for point, (x, y) in zip(points, spots, strict=True):
        end = x + 9 + _LETTER * len(point["label"])
        shift = next((shift for shift in _SHIFTS if _free(taken, x + 9, end, y + shift)), -9)
        taken.append((x + 9, end, y + shift))
        point["shift"] = shift


_SHIFTS = (-9, 13, -25, 29, -41, 45, -57, 61)


def _free(
    taken: Sequence[tuple[float, float, float]], start: float, end: float, height: float
) -> bool:
    return all(
        abs(height - other) >= _LINE * 0.8 or end < left or start > right
        for left, right, other in taken
    )


def _spec(points: list[Spec], noise: float | None) -> Spec:
    least = min(point["kl"] for point in points) * 0.7
    most = max(max(point["kl"] for point in points) * 3, (noise or 0) * 1.5)
    low = min(point["low"] for point in points)
    high = max(point["high"] for point in points)
    room = max((high - low) * 0.18, high * 0.02)
    bottom, top = max(0, low - room), high + room
    _put_labels(points, (least, most), (bottom, top))
    x: Spec = {
        "field": "kl", "type": "quantitative",
        "title": phrase("mean KL divergence from f16/f16, nats"),
        "scale": {"type": "log", "domain": [least, most], "nice": False},
        "axis": {"format": "~g", "grid": False, "tickCount": 5, "labelOverlap": True},
    }  # fmt: skip
    y: Spec = {
        "field": "speed", "type": "quantitative", "title": phrase("generating, tokens/s"),
        "scale": {"domain": [bottom, top], "nice": False},
        "axis": {"grid": True},
    }  # fmt: skip
    colour = {"condition": {"test": "datum.best", "value": TEAL}, "value": GREY}
    best = sorted((point for point in points if point["best"]), key=lambda point: point["kl"])
    layer: list[Spec] = []
    if noise:
        layer.append({
            "data": {"values": [{"kl": least, "end": min(max(noise, least), most)}]},
            "mark": {"type": "rect", "color": LINE, "opacity": 0.7},
            "encoding": {"x": x, "x2": {"field": "end"}},
        })  # fmt: skip
    layer += [
        {
            "data": {"values": best},
            "mark": {
                "type": "line",
                "color": TEAL,
                "strokeWidth": 1.5,
                "interpolate": "step-after",
            },
            "encoding": {"x": x, "y": y},
        },
        {
            "data": {"values": points},
            "mark": {"type": "rule", "color": SOFT, "strokeWidth": 1.2, "aria": False},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "data": {"values": points},
            "mark": {"type": "circle", "size": 110, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colour, "description": {"field": "says"}},
        },
    ]
    layer += [
        {
            "data": {"values": [point for point in points if point["shift"] == shift]},
            "mark": {"type": "text", "align": "left", "dx": 9, "dy": shift, "color": INK,
                     "aria": False},
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        }
        for shift in sorted({point["shift"] for point in points})
    ]  # fmt: skip
    return {"width": _WIDTH, "height": _HEIGHT, "layer": layer}
