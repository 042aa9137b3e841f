"""A report into a file, in the format that its name says; whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvwise.errors import SourceError, UsageError
from kvwise.export import files
from kvwise.oserrors import reason_of
from kvwise.plan.table_report import COLUMNS
from kvwise.report import draw, markdown, page
from kvwise.report.document import Report, word
from kvwise.results.files import HEAD

_HEADS = (HEAD.encode(), ",".join(COLUMNS).encode())
_START = 4096
"""Bytes of a file that tell whether it is a report."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a report is made, and how a file of this kind is known as ours."""

    make: Callable[[Report, str], bytes]
    ours: Callable[[bytes], bool]
    drawn: bool = False


def _page(report: Report, language: str) -> bytes:
    return page.page(report, language).encode("utf-8")


def _markdown(report: Report, language: str) -> bytes:
    return markdown.markdown(report, language).encode("utf-8")


def _csv(report: Report, _language: str) -> bytes:
    return report.csv.encode("utf-8")


def _json(report: Report, language: str) -> bytes:
    document = {"title": word(report.title, language), **report.document}
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8")


def _png(report: Report, language: str) -> bytes:
    if not report.pictures:
        raise UsageError("there is nothing to draw", hint="write .html, .md, .csv or .json")
    facts = [word(text, language) for _, text in report.facts[:3]]
    return draw.png(report.pictures, word(report.title, language), facts, language)


FORMATS = {
    "html": Format(_page, lambda start: page.MARK.encode() in start, drawn=True),
    "md": Format(_markdown, lambda start: start.startswith(markdown.MARK.encode())),
    "png": Format(_png, draw.is_signed, drawn=True),
    "csv": Format(_csv, lambda start: start.startswith(_HEADS)),
    "json": Format(_json, lambda start: b'"kvwise/' in start),
}
"""By the end of a file's name."""


def format_of(path: str) -> Format:
    """Raises UsageError for a name that ends otherwise."""
    suffix = Path(path).suffix.lower().removeprefix(".")
    suffix = {"htm": "html", "markdown": "md"}.get(suffix, suffix)
    if suffix not in FORMATS:
        raise UsageError(
            "{path} ends in no format of a report", path=path,
            hint="call it .html, .md, .png, .csv or .json",
        )  # fmt: skip
    return FORMATS[suffix]


def check(path: str) -> None:
    """Before long work: can a report be written there? Raises UsageError, SourceError."""
    if format_of(path).drawn:
        draw.check()
    place = Path(path)
    if place.is_dir():
        raise SourceError("{path} is a folder", path=path)
    files.check(place)
    above = next((each for each in place.absolute().parents if each.exists()), place)
    if not above.is_dir():
        raise SourceError("{path}: {folder} is no folder", path=path, folder=str(above))
    if not os.access(above, os.W_OK):
        raise SourceError("{path}: {folder} cannot be written", path=path, folder=str(above))


def write(report: Report, path: str, language: str) -> Path | None:
    """Write it; returns the backup of a file that was there and was no report of ours.

    Raises UsageError, SourceError.
    """
    check(path)
    form = format_of(path)
    content = form.make(report, language)
    place = Path(path)
    keep = place.exists() and not form.ours(_start(place))
    return files.write(place, content, backup=keep)


def _start(place: Path) -> bytes:
    try:
        with place.open("rb") as file:
            return file.read(_START)
    except OSError as error:
        raise SourceError("{path}: {reason}", path=str(place), reason=reason_of(error)) from None
