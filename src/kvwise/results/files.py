"""Files of results: JSON lines to carry measurements to another machine, CSV for a spreadsheet."""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from kvwise.errors import SourceError, UsageError
from kvwise.oserrors import reason_of
from kvwise.results.codec import MOST_LINE, from_line, line
from kvwise.results.keep import save_in
from kvwise.results.record import Measurement
from kvwise.results.wording import visible
from kvwise.store import Store

STDIN = "-"
_FORMULA = ("=", "+", "-", "@")


def json_lines(found: Iterable[Measurement]) -> str:
    """A measurement a line. Files can be joined with `cat`."""
    return "".join(f"{line(each)}\n" for each in found)


def anonymous(found: Measurement) -> Measurement:
    """Without the machine's name and without folders (an engine's own words may name some); it
    stays the same measurement."""
    return replace(
        found,
        figures={name: value for name, value in found.figures.items() if name != "error"},
        machine=replace(found.machine, name=""),
        engine=replace(found.engine, path=_file(found.engine.path)),
        model=replace(found.model, path=_file(found.model.path)),
    )


def _file(path: str) -> str:
    """The last part of a path of any system."""
    return path.replace("\\", "/").rpartition("/")[2]


# -- reading ---------------------------------------------------------------------------------------


def merge(store: Store, paths: Sequence[str]) -> tuple[int, int]:
    """Take files in, all or none: (measurements in them, of those new here). `-` = standard input.

    Raises UsageError (a line that is no result), SourceError (cannot be read), StoreError; then
    nothing was taken from any of them.
    """
    count = 0

    def counted() -> Iterator[Measurement]:
        nonlocal count
        for path in paths:
            for each in read(path):
                count += 1
                yield each

    with store.transaction() as db:
        new = save_in(db, counted())
    return count, new


def read(path: str) -> Iterator[Measurement]:
    """The measurements of a file, one by one. Raises UsageError, SourceError."""
    try:
        if path == STDIN:
            yield from read_lines(sys.stdin.buffer, path)
            return
        place = Path(path)
        if place.exists() and not place.is_file():  # a device or a pipe may never end
            raise SourceError("{path} is no ordinary file", path=path)
        with place.open("rb") as file:
            yield from read_lines(file, path)
    except FileNotFoundError:
        raise SourceError(
            "{path}: there is no such file", path=path,
            hint="`kvwise results export --out FILE.jsonl` writes one",
        ) from None  # fmt: skip
    except OSError as error:
        raise SourceError("{path}: {reason}", path=path, reason=reason_of(error)) from None


def read_lines(file: BinaryIO, name: str) -> Iterator[Measurement]:
    """The measurements in an open file; empty lines are skipped. Raises UsageError."""
    number = 0
    while text := file.readline(MOST_LINE + 1):
        number += 1
        if not text.strip():
            continue
        if number == 1 and text.removeprefix(codecs.BOM_UTF8).startswith(b"identity,at,"):
            raise UsageError(
                "{path} is the CSV for spreadsheets, which leaves things out: import takes JSON "
                "lines",
                path=name, hint="`kvwise results export --out FILE.jsonl` writes them",
            )  # fmt: skip
        try:
            found = from_line(text)
        except UsageError as error:
            raise UsageError(
                "{path}, line {number}: {problem}; nothing was taken",
                path=name, number=number, problem=error.phrase,
                hint="`kvwise results export` writes such files",
            ) from None  # fmt: skip
        yield found


# -- CSV -------------------------------------------------------------------------------------------

_FIRST = (
    "identity", "at", "kind", "state", "machine_id", "machine", "os", "cpu", "cores", "ram_bytes",
    "devices", "drivers", "engine", "build", "tool", "engine_version", "model", "architecture",
    "fingerprint", "n_params", "tensor_bytes", "median", "spread", "unit", "samples", "flagged",
)  # fmt: skip
HEAD = ",".join(_FIRST)
"""How every such CSV begins."""


def csv_text(found: Sequence[Measurement]) -> str:
    """A row per measurement, a column per setting, test and figure that any of them has."""
    rows = [_row(each) for each in found]
    more = sorted({name for row in rows for name in row} - {*_FIRST})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([cell(name) for name in (*_FIRST, *more)])
    for row in rows:
        writer.writerow([cell(row.get(name)) for name in (*_FIRST, *more)])
    return out.getvalue()


def _row(found: Measurement) -> dict[str, Any]:
    machine, engine, model = found.machine, found.engine, found.model
    row: dict[str, Any] = {
        "identity": found.identity,
        "at": datetime.fromtimestamp(found.at, UTC).isoformat(timespec="milliseconds"),
        "kind": found.kind,
        "state": found.state,
        "machine_id": machine.id,
        "machine": machine.name,
        "os": machine.os,
        "cpu": machine.cpu,
        "cores": machine.cores,
        "ram_bytes": machine.ram_bytes,
        "devices": " + ".join(each.name for each in machine.devices),
        "drivers": " + ".join(machine.drivers),
        "engine": engine.kind,
        "build": engine.build,
        "tool": engine.tool,
        "engine_version": engine.version,
        "model": model.name,
        "architecture": model.architecture,
        "fingerprint": model.fingerprint,
        "n_params": model.n_params,
        "tensor_bytes": model.tensor_bytes,
        "median": found.median,
        "spread": found.spread,
        "unit": found.unit,
        "samples": len(found.values),
        "flagged": len(found.samples) - len(found.values),
    }
    for name in ("settings", "test", "figures"):
        row |= dict(_flat(name, getattr(found, name)))
    row["findings"] = " ".join(str(each.get("kind", "")) for each in found.findings)
    return row


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """`settings.type_k`; a list of plain values in one cell, other lists by number."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(f"{name}.{key}", each)
    elif isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value):
        for number, each in enumerate(value):
            yield from _flat(f"{name}.{number}", each)
    elif isinstance(value, list):
        yield name, " ".join(map(str, value))
    else:
        yield name, value


def cell(value: Any) -> Any:
    """A value as a spreadsheet may have it: a text that it would run as a formula is quoted."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, str):
        text = visible(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    return value
