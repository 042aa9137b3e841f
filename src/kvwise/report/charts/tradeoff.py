"""Speed against quality: where no other setting is both faster and truer, a line goes through."""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.report.charts.common import Spec, whole
from kvwise.report.document import Picture
from kvwise.report.lines import Line
from kvwise.report.theme import GREY, INK, LINE, SOFT, TEAL
from kvwise.results.wording import number
from kvwise.text import phrase

_FLOOR = 1e-6
"""A divergence on a logarithmic axis cannot be 0."""


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


def tradeoff(lines: Sequence[Line], speed: str = "decode") -> Picture | None:
    """None with fewer than two settings that have both figures."""
    known = [line for line in lines if line.figure("kl_mean") is not None and speed in line.speeds]
    if len(known) < 2:
        return None
    points = [_point(line, speed) for line in known]
    best = pareto([(point["kl"], point["speed"]) for point in points])
    for place, point in enumerate(points):
        point["best"] = place in best
    floors = [line.figure("noise_kl_mean") for line in known]
    noise = max((floor for floor in floors if floor is not None), default=None)
    return Picture(
        phrase("Speed against fidelity"),
        whole(_spec(points, noise)),
        phrase("{count} settings by divergence and tokens/s", count=len(points)),
        phrase(
            "Further left is truer to f16, higher is faster. The line joins the settings that no "
            "other beats in both. Grey = the model's own noise, where there is no difference."
        ),
    )  # fmt: skip


def _point(line: Line, speed: str) -> Spec:
    found, kl = line.speeds[speed], line.figure("kl_mean")
    median, spread = found.median or 0.0, found.spread or 0.0
    return {
        "label": line.label, "kl": max(kl or 0.0, _FLOOR), "speed": median,
        "low": median - spread, "high": median + spread,
        "says": f"{line.label}: KL {number(kl or 0.0)}, {number(median)} {found.unit}",
    }  # fmt: skip


def _spec(points: list[Spec], noise: float | None) -> Spec:
    least = min(point["kl"] for point in points) * 0.6
    most = max(max(point["kl"] for point in points) * 2.2, (noise or 0) * 1.5)
    low = min(point["low"] for point in points)
    high = max(point["high"] for point in points)
    room = max((high - low) * 0.18, high * 0.02)
    x: Spec = {
        "field": "kl", "type": "quantitative",
        "title": phrase("mean KL divergence from f16/f16, nats"),
        "scale": {"type": "log", "domain": [least, most], "nice": False},
        "axis": {"format": "~g", "grid": False, "tickCount": 5, "labelOverlap": True},
    }  # fmt: skip
    y: Spec = {
        "field": "speed", "type": "quantitative", "title": phrase("generating, tokens/s"),
        "scale": {"domain": [max(0, low - room), high + room], "nice": False},
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
        {
            "data": {"values": points},
            "mark": {
                "type": "text",
                "align": "left",
                "dx": 9,
                "dy": -9,
                "color": INK,
                "aria": False,
            },
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        },
    ]
    return {"width": 600, "height": 320, "layer": layer}
