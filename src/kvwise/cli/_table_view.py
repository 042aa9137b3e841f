"""A table of models and GPUs as a person reads it: heat map, Markdown, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from kvwise.cli import _shapes
from kvwise.cli.output import Printer
from kvwise.plan.table import Table
from kvwise.plan.table_notes import notes
from kvwise.plan.table_report import COLUMNS, table_rows
from kvwise.plan.table_words import Said, Shown, Words, tables


def show_text(printer: Printer, table: Table) -> None:
    """Tables for a terminal or a pipe."""
    for shown in tables(table):
        printer.table(_shape(shown))
        printer.text()
    printer.bullets(notes(table), "dim")


def show_markdown(printer: Printer, table: Table) -> None:
    """The same tables in Markdown."""
    for shown in tables(table):
        printer.text(f"### {printer.say(shown.title)}\n")
        for line in _markdown(printer, shown):
            printer.text(line)
        printer.text()
    for note in notes(table):
        printer.text(f"- {printer.say(note)}")


def show_csv(printer: Printer, table: Table) -> None:
    """A row per cell and context, names as in the JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(table_rows(table))
    printer.text(out.getvalue().rstrip("\n"))


def _shape(shown: Shown) -> _shapes.Table:
    """With the styles of a terminal, which are called as the tones are."""
    columns = [_shapes.Column(each.words, right=each.right) for each in shown.columns]
    rows = [
        [_shapes.Cell(each.words, each.tone) if isinstance(each, Said) else each for each in row]
        for row in shown.rows
    ]
    return _shapes.Table(columns, rows, shown.title)


def _markdown(printer: Printer, shown: Shown) -> Iterator[str]:
    def words(cell: Said | Words) -> str:
        text = printer.say(cell.words if isinstance(cell, Said) else cell)
        return text.replace("|", "\\|")

    yield "| " + " | ".join(words(column.words) for column in shown.columns) + " |"
    yield "|" + "|".join("---:" if column.right else "---" for column in shown.columns) + "|"
    for row in shown.rows:
        yield "| " + " | ".join(map(words, row)) + " |"
