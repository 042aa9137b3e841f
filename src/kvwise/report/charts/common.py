"""What charts share: a row of bars with its spread and its figure, axes, a whole specification."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from kvwise.report.document import Words
from kvwise.report.theme import CONFIG, INK, SCHEMA

Spec = dict[str, Any]
STEP = 30
"""Pixels of a row."""
_LETTER, _GAP = 7, 8
"""Pixels of a digit of a bar's figure, and before and behind the figure."""


def whole(spec: Mapping[str, Any]) -> Spec:
    """A specification that stands alone."""
    return {"$schema": SCHEMA, "config": CONFIG, **spec}


def rows_axis(order: Sequence[str], *, shown: bool = True) -> Spec:
    """The rows of bars, by their labels from top to bottom."""
    axis: Spec | None = {"title": None, "labelPadding": 10} if shown else None
    return {"field": "label", "type": "nominal", "sort": list(order), "axis": axis}


def bars(values: Sequence[Spec], title: Words, colour: str, *, first: bool, width: int) -> Spec:
    """A panel: a bar per row, its middle half, its samples, and the figure at its end.

    `values` have label, value, low, high, samples, text, says; rows without a value keep their
    place.
    """
    y = rows_axis([each["label"] for each in values], shown=first)
    drawn = [each for each in values if each["value"]]
    most = max((max(_above(each)) for each in drawn), default=1) * 1.02
    x = {"type": "quantitative", "scale": {"domain": [0, most]}}
    samples = [
        {"label": each["label"], "sample": sample}
        for each in values
        for sample in each.get("samples", ())
    ]
    return {
        "title": {"text": title, "fontSize": 13, "anchor": "start", "offset": 6},
        "width": width,
        "height": {"step": STEP},
        "data": {"values": [{**each, "edge": _edge(each, most / width)} for each in values]},
        "layer": [
            {
                "mark": {"type": "bar", "color": colour, "cornerRadiusEnd": 3, "height": 16},
                "encoding": {
                    "y": y,
                    "x": {"field": "value", "title": None, "axis": _few(), **x},
                    "description": {"field": "says"},
                    "opacity": {"condition": {"test": "datum.pale", "value": 0.45}, "value": 1},
                },
            },
            {
                "mark": {"type": "rule", "color": INK, "strokeWidth": 1.5, "aria": False},
                "encoding": {"y": y, "x": {"field": "low", **x}, "x2": {"field": "high"}},
            },
            {
                "data": {"values": samples},
                "mark": {"type": "tick", "color": INK, "opacity": 0.45, "size": 8, "aria": False},
                "encoding": {"y": y, "x": {"field": "sample", **x}},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": _GAP, "aria": False, "clip": False},
                "encoding": {
                    "y": y,
                    "x": {"field": "edge", **x},
                    "text": {"field": "text"},
                },
            },
        ],
    }  # fmt: skip


def _above(row: Spec) -> list[float]:
    """Where a row's marks end, from the end of its bar or middle half on, to the right."""
    end = max(row["high"], row["value"])
    return [end, *sorted(sample for sample in row.get("samples", ()) if sample > end)]


def _edge(row: Spec, pixel: float) -> float:
    """The mark behind which a row's figure stands: the first with room before the next one, so that
    a far sample does not carry the figure away from its bar. `pixel` = its worth on the axis."""
    if not row["value"]:
        return 0
    marks = _above(row)
    room = (len(row["text"]) * _LETTER + 2 * _GAP) * pixel
    for mark, following in itertools.pairwise(marks):
        if following - mark >= room:
            return mark
    return marks[-1]


def _few() -> Spec:
    return {"tickCount": 4, "title": None}


def note(values: Sequence[Spec], title: Words, width: int) -> Spec:
    """A panel of words: `label`, `text`, `colour`."""
    return {
        "title": {"text": title, "fontSize": 13, "anchor": "start", "offset": 6},
        "width": width,
        "height": {"step": STEP},
        "data": {"values": list(values)},
        "mark": {"type": "text", "align": "left", "x": 0, "fontWeight": 500},
        "encoding": {
            "y": rows_axis([each["label"] for each in values], shown=False),
            "text": {"field": "text"},
            "color": {"field": "colour", "type": "nominal", "scale": None},
        },
    }


def legend(domain: Sequence[Words], colours: Sequence[str], orient: str = "top") -> Spec:
    """A colour by name, in a given order."""
    return {
        "type": "nominal",
        "scale": {"domain": list(domain), "range": list(colours)},
        "legend": {"title": None, "orient": orient, "offset": 8},
    }
