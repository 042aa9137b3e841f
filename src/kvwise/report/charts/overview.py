"""The one picture: every setting a row; speeds with their spread, memory, verdict side by side."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from kvwise.report.charts.common import Spec, bars, legend, note, rows_axis, whole
from kvwise.report.document import Picture
from kvwise.report.lines import Line, Task, tests_of
from kvwise.report.theme import AMBER, BLUE, GREEN, GREY, INK, PAPER, ROSE, SOFT, TEAL, VIOLET
from kvwise.results import Measurement, spread
from kvwise.results.called import VERDICTS
from kvwise.results.wording import number, with_spread
from kvwise.text import Phrase, phrase
from kvwise.units import MIB

MOST_ROWS = 60
PARTS = (
    ("weights_bytes", phrase("weights"), GREY),
    ("context_bytes", phrase("KV cache"), VIOLET),
    ("compute_bytes", phrase("compute buffers"), AMBER),
    ("output_bytes", phrase("output"), TEAL),
    ("overhead_bytes", phrase("driver"), ROSE),
)
_COLOURS = {"lossless": GREEN, "high": TEAL, "medium": AMBER, "low": ROSE, "broken": ROSE}


def overview(lines: Sequence[Line]) -> Picture | None:
    """None when there is nothing to draw."""
    lines = lines[:MOST_ROWS]
    panels: list[Callable[[bool], Spec]] = []
    for metric, title, colour in (
        ("prompt", phrase("reading the prompt, tokens/s"), BLUE),
        ("decode", phrase("generating, tokens/s"), TEAL),
    ):
        tests = tests_of(lines, metric)
        for test in tests:
            words = title if len(tests) == 1 else phrase("{test}, tokens/s", test=test.name)
            panels.append(_panel([_bar(line, test) for line in lines], words, colour))
    if any(_beside_weights(line) for line in lines):
        panels.append(_memory(lines))
    if not panels:
        return None
    made = [panel(number == 0) for number, panel in enumerate(panels)]
    if any(line.verdict or line.failed for line in lines):
        made.append(note([_verdict(line) for line in lines], phrase("fidelity"), 110))
    spec = {"hconcat": made, "resolve": {"scale": {"y": "shared", "color": "independent"}}}
    return Picture(
        phrase("All settings at a glance"),
        whole(spec),
        phrase("Speeds and memory of {count} settings", count=len(lines)),
        phrase("Bars are medians; the line on a bar is the middle half of its samples, the ticks "
               "are the samples. Pale, with a question mark: something else ran during every "
               "sample."),
    )  # fmt: skip


def _panel(values: Sequence[Spec], title: Phrase, colour: str) -> Callable[[bool], Spec]:
    return lambda first: bars(values, title, colour, first=first, width=225)


def _bar(line: Line, test: Task) -> Spec:
    found = line.speeds.get(test)
    if found is None:
        return {"label": line.label, "value": None, "low": None, "high": None, "says": ""}
    return speed_bar(line.label, found)


def speed_bar(label: str, found: Measurement) -> Spec:
    """The bar of a measurement that has a sample; pale where all of them were disturbed."""
    values = sorted(found.shown)
    median, around = statistics.median(values), spread(values) or 0.0
    return {
        "label": label,
        "value": median,
        "low": max(0.0, median - around),
        "high": median + around,
        "samples": values if len(values) <= 50 else [],
        "pale": found.disturbed,
        "text": number(median) + ("?" if found.disturbed else ""),
        "says": phrase("{name}: {text}", name=label, text=with_spread(found)),
    }


def _beside_weights(line: Line) -> bool:
    return any(line.memory.get(part) for part, _, _ in PARTS[1:])


def _memory(lines: Sequence[Line]) -> Callable[[bool], Spec]:
    parts = [part for part in PARTS[1:] if any(line.memory.get(part[0]) for line in lines)]
    values = [
        {"label": line.label, "part": words, "place": place, "mib": line.memory[part] / MIB,
         "says": phrase("{label}: {part} {size} MiB", label=line.label, part=words,
                        size=number(line.memory[part] / MIB))}
        for line in lines
        for place, (part, words, _) in enumerate(parts)
        if part in line.memory
    ]  # fmt: skip
    totals = [_total(line, [part for part, _, _ in parts]) for line in lines]
    most = max(total["mib"] for total in totals) * 1.02
    x = {"type": "quantitative", "scale": {"domain": [0, most]}}

    def panel(first: bool) -> Spec:
        y = rows_axis([line.label for line in lines], shown=first)
        stack = {"field": "mib", "stack": "zero", "axis": {"tickCount": 4, "title": None}, **x}
        colours = [colour for _, _, colour in parts]
        return {
            "title": {
                "text": phrase("memory beside the weights, MiB"),
                "fontSize": 13,
                "offset": 6,
            },
            "width": 225,
            "height": {"step": 30},
            "layer": [
                {
                    "data": {"values": values},
                    "mark": {"type": "bar", "height": 16, "stroke": PAPER, "strokeWidth": 1},
                    "encoding": {
                        "y": y,
                        "x": stack,
                        "order": {"field": "place", "type": "quantitative"},
                        "description": {"field": "says"},
                        "color": {"field": "part"}
                        | legend([words for _, words, _ in parts], colours, orient="bottom"),
                    },
                },
                {
                    "data": {"values": totals},
                    "mark": {"type": "text", "align": "left", "dx": 6, "color": INK, "aria": False},
                    "encoding": {"y": y, "x": {"field": "mib", **x}, "text": {"field": "text"}},
                },
            ],
        }

    return panel


def _total(line: Line, parts: Sequence[str]) -> Spec:
    total = sum(line.memory.get(part, 0) for part in parts) / MIB
    return {"label": line.label, "mib": total, "text": number(round(total, 1)) if total else ""}


def _verdict(line: Line) -> Spec:
    if line.failed and not line.speeds:
        return {"label": line.label, "text": phrase("failed"), "colour": ROSE}
    return {
        "label": line.label,
        "text": VERDICTS.get(line.verdict, line.verdict),
        "colour": _COLOURS.get(line.verdict, SOFT),
    }
