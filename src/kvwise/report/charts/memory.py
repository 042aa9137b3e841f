"""Memory bars: every kind of memory stacked, what was predicted beside what the engine took."""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.report.charts.common import Spec, legend, rows_axis, whole
from kvwise.report.charts.overview import MOST_ROWS, PARTS
from kvwise.report.document import Picture
from kvwise.report.lines import Line
from kvwise.report.theme import INK, PAPER
from kvwise.results.wording import number
from kvwise.text import phrase
from kvwise.units import MIB

_SIDES = (("predicted", phrase("predicted")), ("measured", phrase("measured")))


def memory(lines: Sequence[Line]) -> Picture | None:
    """None where no memory is known. Settings with the same memory stand once."""
    lines = _different(lines)[:MOST_ROWS]
    values: list[Spec] = []
    totals: list[Spec] = []
    for line in lines:
        for side, words in _SIDES:
            sizes = _comparable(line, side)
            if not sizes:
                continue
            total = sum(sizes.values()) / MIB
            text = phrase("{size} {side}", size=number(round(total, 1)), side=words)
            totals.append({"label": line.label, "side": words, "mib": total, "text": text})
            values += [
                {"label": line.label, "side": words, "part": name, "place": place,
                 "mib": sizes[part] / MIB,
                 "says": phrase("{label}: {part} {size} MiB", label=line.label, part=name,
                                size=number(sizes[part] / MIB))}
                for place, (part, name, _) in enumerate(PARTS)
                if sizes.get(part)
            ]  # fmt: skip
    if not values:
        return None
    return Picture(
        phrase("Memory: predicted beside measured"),
        whole(_spec(values, totals)),
        phrase("Memory of {count} settings by kind", count=len(lines)),
        phrase("Predicted from the model's header before anything was loaded; measured = what the "
               "engine said it took. MiB over all devices and the host."),
    )  # fmt: skip


def _comparable(line: Line, side: str) -> dict[str, int]:
    """The kinds that both sides know: no engine says what a driver takes."""
    sizes: dict[str, int] = dict(getattr(line, side))
    if line.predicted and line.measured and not line.measured.get("overhead_bytes"):
        sizes.pop("overhead_bytes", None)
    return sizes


def _different(lines: Sequence[Line]) -> list[Line]:
    seen: set[tuple[object, ...]] = set()
    made = []
    for line in lines:
        key = (line.types, *sorted(line.predicted.items()), *sorted(line.measured.items()))
        if line.memory and key not in seen:
            seen.add(key)
            made.append(line)
    return made


def _spec(values: list[Spec], totals: list[Spec]) -> Spec:
    present = [part for part in PARTS if any(row["part"] == part[1] for row in values)]
    names, colours = [name for _, name, _ in present], [colour for _, _, colour in present]
    sides = [words for _, words in _SIDES if any(row["side"] == words for row in totals)]
    offset = {"field": "side", "type": "nominal", "sort": sides, "scale": {"paddingInner": 0.15}}
    order = list(dict.fromkeys(row["label"] for row in totals))
    y = rows_axis(order) | {"scale": {"paddingInner": 0.28}}
    most = max(row["mib"] for row in totals)
    x = {"type": "quantitative", "scale": {"domain": [0, most * 1.12]}}
    return {
        "width": 720,
        "height": {"step": 17, "for": "offset"},
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "bar", "stroke": PAPER, "strokeWidth": 1},
                "encoding": {
                    "y": y,
                    "yOffset": offset,
                    "x": {"field": "mib", "stack": "zero", "title": "MiB", **x},
                    "order": {"field": "place", "type": "quantitative"},
                    "description": {"field": "says"},
                    "color": {"field": "part"} | legend(names, colours),
                },
            },
            {
                "data": {"values": totals},
                "mark": {"type": "text", "align": "left", "dx": 6, "color": INK, "aria": False,
                         "fontSize": 11},
                "encoding": {
                    "y": y, "yOffset": offset, "x": {"field": "mib", **x},
                    "text": {"field": "text"},
                },
            },
        ],
    }  # fmt: skip
