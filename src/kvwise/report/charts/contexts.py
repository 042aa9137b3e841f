"""Context against memory, a curve per pair of cache types, and where the card ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.report.charts.common import Spec, whole
from kvwise.report.document import Picture, Words
from kvwise.report.theme import CYCLE, INK, ROSE
from kvwise.text import phrase
from kvwise.units import MIB


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes by context for one pair of types (`label`)."""

    label: str
    points: tuple[tuple[int, int], ...]


def contexts(
    curves: Sequence[Curve],
    limit: tuple[Words, int] | None = None,
    *,
    title: Words = phrase("Context against memory"),  # noqa: B008  (a frozen value)
    says: Words = phrase("memory, MiB"),  # noqa: B008
    caption: Words = "",
) -> Picture | None:
    """`limit` is a name and the bytes that there are. None without two points of a curve."""
    curves = [curve for curve in curves if len(curve.points) > 1][: len(CYCLE)]
    if not curves:
        return None
    values: list[Spec] = [
        {"label": curve.label, "n_ctx": n_ctx, "mib": size / MIB}
        for curve in curves
        for n_ctx, size in curve.points
    ]
    y = {"field": "mib", "type": "quantitative", "title": says}
    n_ctx = sorted({row["n_ctx"] for row in values})
    x = {
        "field": "n_ctx", "type": "quantitative", "title": phrase("context, tokens"),
        "scale": {"type": "log", "base": 2, "nice": False, "domain": [n_ctx[0], n_ctx[-1]]},
        "axis": {"values": n_ctx, "grid": False, "labelOverlap": True,
                 "labelExpr": "datum.value >= 1024 ? datum.value / 1024 + 'k' : datum.value"},
    }  # fmt: skip
    labels = [curve.label for curve in curves]
    colour: Spec = {
        "field": "label", "type": "nominal", "legend": None,
        "scale": {"domain": labels, "range": list(CYCLE[: len(labels)])},
    }  # fmt: skip
    layer: list[Spec] = [
        {
            "data": {"values": values},
            "mark": {"type": "line", "strokeWidth": 2.5, "point": {"size": 45}},
            "encoding": {"x": x, "y": {**y, "axis": {"grid": True}}, "color": colour},
        },
        {
            "data": {"values": _ends(curves)},
            "mark": {"type": "text", "align": "left", "dx": 10, "fontWeight": 600, "aria": False},
            "encoding": {
                "x": x, "y": {"field": "place", "type": "quantitative", "title": says},
                "text": {"field": "label"}, "color": colour,
            },
        },
    ]  # fmt: skip
    if limit is not None:
        layer += _limit(limit, y)
    return Picture(
        title,
        whole({"width": 760, "height": 340, "layer": layer}),
        phrase("Memory by context for {count} pairs of cache types", count=len(curves)),
        caption,
    )


def _ends(curves: Sequence[Curve]) -> list[Spec]:
    """A label at the end of each curve, moved apart where two would lie on each other."""
    ends = [(curve.points[-1][1] / MIB, curve) for curve in curves]
    ends.sort(key=lambda end: end[0])
    least = 0.055 * max((size for size, _ in ends), default=0)
    made: list[Spec] = []
    for size, curve in ends:
        place = size if not made else max(size, made[-1]["place"] + least)
        made.append({"label": curve.label, "n_ctx": curve.points[-1][0], "place": place})
    return made


def _limit(limit: tuple[Words, int], y: Spec) -> list[Spec]:
    data = {"values": [{"mib": limit[1] / MIB, "text": limit[0]}]}
    return [
        {
            "data": data,
            "mark": {"type": "rule", "color": ROSE, "strokeDash": [6, 4], "strokeWidth": 1.5},
            "encoding": {"y": y},
        },
        {
            "data": data,
            "mark": {"type": "text", "align": "left", "x": 6, "dy": -8, "color": INK},
            "encoding": {"y": y, "text": {"field": "text"}},
        },
    ]
