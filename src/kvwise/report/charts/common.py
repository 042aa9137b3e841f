"""What charts share: a row of bars with its spread and its figure, axes, a whole specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvwise.report.document import Words
from kvwise.report.theme import CONFIG, INK, SCHEMA

Spec = dict[str, Any]
STEP = 30
"""Pixels of a row."""


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
    most = max((max(each["high"], each["value"]) for each in values if each["value"]), default=1)
    x = {"type": "quantitative", "scale": {"domain": [0, most * 1.02]}}
    samples = [
        {"label": each["label"], "sample": sample}
        for each in values
        for sample in each.get("samples", ())
    ]
    return {
        "title": {"text": title, "fontSize": 13, "anchor": "start", "offset": 6},
        "width": width,
        "height": {"step": STEP},
        "data": {"values": list(values)},
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
                "mark": {"type": "text", "align": "left", "dx": 8, "aria": False, "clip": False},
                "encoding": {
                    "y": y,
                    "x": {"field": "edge", **x},
                    "text": {"field": "text"},
                },
            },
        ],
    }  # fmt: skip


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
