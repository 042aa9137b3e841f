"""A report as Markdown: facts, tables, remarks. Pictures are left out, with their captions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvwise.report.document import Grid, Picture, Report, word
from kvwise.text import phrase, say

MARK = "<!-- kvwise report -->"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")


def markdown(report: Report, language: str) -> str:
    """The whole text."""
    return "\n".join(_lines(report, language)) + "\n"


def _lines(report: Report, language: str) -> Iterator[str]:
    yield MARK
    yield f"# {escape(word(report.title, language))}"
    yield ""
    for name, text in report.facts:
        label = say(phrase("{name}: {text}", name="**\0**", text=""), language).strip()
        named = label.replace("\0", escape(word(name, language)))
        yield f"- {named} {escape(word(text, language))}"
    for section in report.sections:
        yield ""
        yield f"## {escape(word(section.title, language))}"
        for block in section.blocks:
            if isinstance(block, Picture):  # its figures stand in a table
                continue
            yield ""
            if isinstance(block, Grid):
                yield from _grid(block, language)
            else:
                yield from (f"- {escape(word(item, language))}" for item in block.items)


def _grid(grid: Grid, language: str) -> Iterator[str]:
    yield _row(escape(word(column.words, language)) for column in grid.columns)
    yield _row("---:" if column.right else "---" for column in grid.columns)
    for number, row in enumerate(grid.rows):
        cells = [escape(word(cell, language)) for cell in row]
        if number in grid.strong:
            cells[0] = f"**{cells[0]}**"
        yield _row(cells)
    if grid.caption:
        yield ""
        yield f"*{escape(word(grid.caption, language))}*"


def _row(cells: Iterator[str] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """A text that Markdown and HTML inside it leave as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", text).replace("\\<", "&lt;").replace("\\>", "&gt;")
