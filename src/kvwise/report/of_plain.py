"""Sections of what has no speeds to compare: speculation, embedding, tuning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvwise.report.document import Grid, Heading, Picture, Section
from kvwise.results import Measurement
from kvwise.results.called import figure_name, figure_text
from kvwise.results.label import labels, metric_of
from kvwise.results.wording import outcome
from kvwise.text import Phrase, phrase


def by_model(found: Sequence[Measurement]) -> list[list[Measurement]]:
    """Apart by machine and model."""
    made: dict[tuple[str, str], list[Measurement]] = {}
    for each in found:
        made.setdefault((each.machine.id, each.model.fingerprint), []).append(each)
    return list(made.values())


def plain_section(
    name: Phrase,
    found: Sequence[Measurement],
    picture: Callable[[Sequence[Measurement]], Picture | None] | None,
) -> Section:
    """A row per measurement, below the picture if there is one."""
    figures = _plain_figures(found)
    columns = [
        Heading(phrase("settings")),
        Heading(phrase("what")),
        Heading(phrase("outcome"), True),
    ]
    columns += [Heading(figure_name(name_), True) for name_ in figures]
    rows = [
        (
            label,
            metric_of(each),
            outcome(each),
            *(figure_text(name_, each.figures.get(name_)) for name_ in figures),
        )
        for each, label in zip(found, labels(found), strict=True)
    ]
    grid = Grid(tuple(columns), tuple(rows))
    shown = picture(found) if picture else None
    title = phrase("{what}: {model}", what=name, model=found[0].model.name)
    return Section(title, (shown, grid) if shown else (grid,))


def _plain_figures(found: Sequence[Measurement]) -> list[str]:
    names = dict.fromkeys(name for each in found for name in each.figures)
    return [
        name
        for name in names
        if all(not isinstance(each.figures.get(name), dict | list) for each in found)
        and any(figure_text(name, each.figures.get(name)) for each in found)
    ][:8]
