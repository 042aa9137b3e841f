"""The last probe of this machine, kept with its time; what of it still holds, and for how long."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from kvwise import paths
from kvwise.errors import SourceError, UsageError
from kvwise.oserrors import reason_of
from kvwise.probe.document import document, read_document
from kvwise.probe.driver import driver_of
from kvwise.probe.report import DeviceReport, Report

_NAME = "probe.json"
_MOST = 4 << 20
FRESH_DISPLAY_S, FRESH_S = 15 * 60.0, 24 * 3600.0
"""How long a measurement holds on a card with a display (or Windows), and on any other."""


def save(report: Report) -> Path:
    """Keep it; a reader never sees half of it. Raises OSError."""
    target = paths.data_dir() / _NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    try:
        part.write_text(json.dumps(document(report), ensure_ascii=False), "utf-8")
        part.replace(target)
    finally:
        with contextlib.suppress(OSError):  # of a disk that is full
            part.unlink()
    return target


def last() -> Report | None:
    """The kept one, None if there is none or it cannot be read."""
    with contextlib.suppress(SourceError, UsageError):
        return read(paths.data_dir() / _NAME)
    return None


def read(path: Path) -> Report:
    """The report in a file. Raises SourceError (cannot be read), UsageError (is no probe)."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST + 1)
    except OSError as error:
        raise SourceError("{path}: {reason}", path=str(path), reason=reason_of(error)) from None
    return decoded(raw, str(path))


def decoded(raw: bytes, path: str) -> Report:
    """The report that the bytes of a file hold. Raises UsageError."""
    if len(raw) > _MOST:
        raise UsageError("{path} is too large for a probe", path=path)
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError("{path} is no JSON: {why}", path=path, why=str(error)[:80]) from None
    return read_document(value)


def fresh(report: Report) -> tuple[DeviceReport, ...]:
    """The devices whose measurement still says something: not too old, and of the same driver."""
    age = report.age_s
    return tuple(
        each
        for each in report.devices
        if 0 <= age < _holds_s(each)
        and report.drivers.get(each.backend, "") in ("", driver_of(each.backend))
    )


def _holds_s(found: DeviceReport) -> float:
    windows = found.driver_model in ("WDDM", "MCDM")
    return FRESH_DISPLAY_S if found.display or windows else FRESH_S
