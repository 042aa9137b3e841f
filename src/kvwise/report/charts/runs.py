"""Speculation beside plain decoding, and the way of a search for the fastest setting."""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.report.charts.common import Spec, bars, whole
from kvwise.report.charts.overview import MOST_ROWS, speed_bar
from kvwise.report.document import Picture
from kvwise.report.theme import AMBER, BLUE, GREY, TEAL
from kvwise.results import Measurement, total_of
from kvwise.results.label import labels
from kvwise.results.wording import number, unit_said
from kvwise.text import Phrase, phrase
from kvwise.units import MIB


def speculation(found: Sequence[Measurement]) -> Picture | None:
    """Tokens/s of each kind and depth, and how many tokens a pass of the target brings."""
    known = [each for each in found if each.shown][:MOST_ROWS]
    if not known:
        return None
    names = labels(known)
    accepted: list[Spec] = [
        _bar(name, value, phrase("{name}: {text}", name=name, text=number(value or 0)))
        for name, value in zip(names, map(_accepted, known), strict=True)
    ]
    return Picture(
        phrase("Speculation beside plain decoding"),
        _speeds(
            [speed_bar(name, each) for name, each in zip(names, known, strict=True)],
            phrase("generating, tokens/s"), accepted, phrase("tokens per pass"), AMBER,
        ),
        phrase("Speed of {count} ways to decode", count=len(known)),
    )  # fmt: skip


def embedding(found: Sequence[Measurement]) -> Picture | None:
    """Tokens/s at which texts become vectors, and the memory that it takes."""
    known = [each for each in found if each.shown][:MOST_ROWS]
    if not known:
        return None
    names = _by_length(known)
    sizes: list[Spec] = [
        _bar(name, size, phrase("{name}: {size} MiB", name=name, size=number(size or 0)))
        for name, size in zip(names, map(_memory, known), strict=True)
    ]
    return Picture(
        phrase("Texts to vectors"),
        _speeds(
            [speed_bar(name, each) for name, each in zip(names, known, strict=True)],
            phrase("embedding, tokens/s"), sizes, phrase("memory, MiB"), BLUE,
        ),
        phrase("Speed and memory of {count} ways to embed", count=len(known)),
    )  # fmt: skip


def _speeds(
    speeds: Sequence[Spec], title: Phrase, beside: Sequence[Spec], its_title: Phrase, colour: str
) -> Spec:
    """Bars of tokens/s, and a second panel with the same rows where any of them has a figure."""
    panels = [bars(speeds, title, TEAL, first=True, width=330)]
    if any(row["value"] for row in beside):
        panels.append(bars(beside, its_title, colour, first=False, width=200))
    return whole({"hconcat": panels, "resolve": {"scale": {"y": "shared"}}})


def _bar(label: str, value: float | None, says: Phrase) -> Spec:
    """A row whose figure was not measured several times; without one it keeps its place."""
    return {"label": label, "value": value, "low": value, "high": value,
            "text": number(value) if value else "", "says": says}  # fmt: skip


def _accepted(found: Measurement) -> float | None:
    value = found.figures.get("accepted_length")
    return value if isinstance(value, int | float) else None


def _by_length(found: Sequence[Measurement]) -> list[str]:
    """Labels with the tokens of a text; two that are alike are counted."""
    seen: dict[str, int] = {}
    made = []
    for label, each in zip(labels(found), found, strict=True):
        words = (label, f"embd{each.test.get('n_prompt', '')}")
        name = " ".join(word for word in words if word != "-")
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return made


def _memory(found: Measurement) -> float | None:
    """MiB: measured, else predicted; None where neither is known."""
    memory = found.figures.get("memory")
    for side in ("measured", "predicted"):
        total = sum(total_of(memory.get(side)).values()) if isinstance(memory, dict) else 0
        if total:
            return total / MIB
    return None


def search(found: Sequence[Measurement]) -> Picture | None:
    """Every evaluation of a search in its order, and the best so far."""
    known = [each for each in found if each.median is not None]
    if len(known) < 2:
        return None
    points: list[Spec] = []
    best = 0.0
    for place, (each, name) in enumerate(zip(known, labels(known), strict=True), 1):
        median, spread = each.median or 0.0, each.spread or 0.0
        best = max(best, median)
        points.append({
            "place": place, "value": median, "low": median - spread, "high": median + spread,
            "best": best, "says": phrase(
                "{place}. {name}: {value} {unit}", place=place, name=name, value=number(median),
                unit=unit_said(each.unit),
            ),
        })  # fmt: skip
    x: Spec = {"field": "place", "type": "quantitative", "title": phrase("evaluation"),
               "axis": {"tickMinStep": 1, "grid": False, "format": "d"}}  # fmt: skip
    y: Spec = {"type": "quantitative", "title": unit_said(known[0].unit), "scale": {"zero": False},
               "axis": {"grid": True}}  # fmt: skip
    layer: list[Spec] = [
        {
            "mark": {"type": "rule", "color": GREY, "aria": False},
            "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "circle", "size": 60, "color": BLUE, "opacity": 1},
            "encoding": {"x": x, "y": {"field": "value", **y}, "description": {"field": "says"}},
        },
        {
            "mark": {"type": "line", "color": TEAL, "strokeWidth": 2, "interpolate": "step-after"},
            "encoding": {"x": x, "y": {"field": "best", **y}},
        },
    ]
    return Picture(
        phrase("The search"),
        whole({"data": {"values": points}, "width": 760, "height": 280, "layer": layer}),
        phrase("{count} evaluations in their order", count=len(known)),
        phrase("Points are evaluations with their spread; the line is the best so far."),
    )
