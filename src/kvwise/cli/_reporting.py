"""`--report FILE` of every command that measures, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kvwise.cli.output import Printer
from kvwise.results import Measurement
from kvwise.text import Phrase, phrase

if TYPE_CHECKING:
    from kvwise.report import Report

REPORT = click.Option(
    ["--report"],
    metavar="FILE",
    help="Write a report there: .html, .md, .png, .csv or .json.",
)


def check_report(path: str | None) -> None:
    """Before long work: raises what would keep the report from being written after it."""
    if path is not None:
        from kvwise.report import check  # noqa: PLC0415

        check(path)


def save_report(
    printer: Printer,
    path: str | None,
    found: Sequence[Measurement],
    title: Phrase | str | None = None,
) -> Report | None:
    """Write the report of these measurements, and say so; nothing without a path or any."""
    if path is None or not found:
        return None
    from kvwise.report import results_report  # noqa: PLC0415
    from kvwise.report.curves import curves_here  # noqa: PLC0415

    made = results_report(found, title, curves_here)
    write_report(printer, path, made)
    return made


def write_report(printer: Printer, path: str, report: Report) -> None:
    """Write any report, and say so beside the answer."""
    from kvwise.report import write  # noqa: PLC0415

    backup = write(report, path, printer.language)
    printer.remark(phrase("{path} is written", path=path))
    if backup:
        printer.remark(phrase("the file that was there is {backup}", backup=str(backup)))
