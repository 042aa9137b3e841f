"""The document kvwise/probe/1: a report as JSON, and reading one that a friend sent.

A file is trusted with nothing: wrong types and sizes are refused, and what is not known is
dropped, before anything is planned with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from kvwise.device import Host
from kvwise.errors import UsageError
from kvwise.probe.advice import planned
from kvwise.probe.notes import Note
from kvwise.probe.report import OUTCOMES, VARIABLES, DeviceReport, Report
from kvwise.text import Phrase, phrase, say

SCHEMA = "kvwise/probe/1"
MOST_BYTES = 1 << 52
_MOST_DEVICES, _MOST_IN_A_LIST = 64, 256
_TEXT = 400


def document(report: Report, language: str = "en") -> dict[str, Any]:
    """The report as JSON, its remarks in words too."""
    devices = []
    for each in report.devices:
        row = {**asdict(each), "notes": [_note(note, language) for note in each.notes]}
        plan = planned(each, report.system)
        row["plan"] = {
            "free_bytes": plan.free_bytes,
            "reserve_bytes": plan.reserve_bytes,
            "max_block_bytes": plan.max_block_bytes,
        }
        devices.append(row)
    return {
        "schema": SCHEMA,
        "time": report.time.isoformat(timespec="seconds"),
        "system": report.system,
        "environment": dict(report.environment),
        "drivers": dict(report.drivers),
        "devices": devices,
        "host": {
            "total_bytes": report.host.total_bytes,
            "available_bytes": report.host.available_bytes,
            "limit_bytes": report.host.limit_bytes,
            "limits": [dict(limit) for limit in report.host_limits],
        },
        "failures": [
            {"backend": backend, **_note(note, language)} for backend, note in report.failures
        ],
        "remarks": [
            {"backend": backend, **_note(note, language)} for backend, note in report.remarks
        ],
    }


def _note(note: Note, language: str) -> dict[str, Any]:
    return {"code": note.code, "values": dict(note.values), "message": say(note.message, language)}


def read_document(value: Any) -> Report:
    """The report of a document. Raises UsageError for anything that is none."""
    whole = _object(value, phrase("the document"))
    if whole.get("schema") not in (SCHEMA, None):
        raise UsageError("not a {schema} document", schema=SCHEMA)
    rows = whole.get("devices")
    if not isinstance(rows, list) or len(rows) > _MOST_DEVICES:
        raise UsageError("a probe has a list of devices")
    found, drivers = whole.get("environment"), whole.get("drivers")
    return Report(
        time=_time(whole.get("time")),
        system=_text(whole.get("system")),
        devices=_devices(rows),
        host=_host(_object(whole.get("host") or {}, phrase("the host"))),
        environment={
            name: _text(value)
            for name, value in (found.items() if isinstance(found, dict) else ())
            if name in VARIABLES
        },
        drivers={
            _text(name): _text(value)
            for name, value in list(drivers.items() if isinstance(drivers, dict) else ())[:16]
        },
    )


def _devices(rows: list[Any]) -> tuple[DeviceReport, ...]:
    """Each device once: two of one backend with the same number would be taken for one another.

    A device without a number gets the next of its backend.
    """
    found: dict[tuple[str, int], DeviceReport] = {}
    for row in rows:
        place = _object(row, phrase("a device"))
        each = _device(place)
        if place.get("index") is None:
            used = [number for backend, number in found if backend == each.backend]
            each = replace(each, index=max(used, default=-1) + 1)
        if (each.backend, each.index) in found:
            raise UsageError(
                "two devices are number {number} of {backend}",
                number=each.index, backend=each.backend or "-",
            )  # fmt: skip
        found[each.backend, each.index] = each
    return tuple(found.values())


def _device(row: Mapping[str, Any]) -> DeviceReport:
    made: dict[str, Any] = {"name": _text(row.get("name")) or "GPU"}
    made["backend"] = _text(row.get("backend"))
    for name in _SIZES:
        made[name] = _size(row.get(name), name)
    made["total_bytes"] = made["total_bytes"] or 0
    made["spilled_bytes"] = made["spilled_bytes"] or 0
    for name in ("index", "sm_count", "compute_mode"):
        made[name] = _size(row.get(name), name) or 0
    made["sm_count"] = made["sm_count"] or None
    for name in ("driver_model", "compute_capability"):
        made[name] = _text(row.get(name)) or None
    for name in ("device", "driver", "uuid", "pci"):
        made[name] = _text(row.get(name))
    for name in ("spilled", "display", "mig"):
        made[name] = row.get(name) if isinstance(row.get(name), bool) else None
    for name in ("unified", "software"):
        made[name] = row.get(name) is True
    outcome = row.get("outcome")
    made["outcome"] = outcome if outcome in OUTCOMES else _outcome(made)
    made["notes"] = tuple(_read_note(each) for each in _list(row.get("notes")))
    blocks = [_size(each, "blocks") for each in _list(row.get("blocks"))]
    made["blocks"] = tuple(sorted((each for each in blocks if each), reverse=True))
    if not made["total_bytes"] and made["outcome"] != "failed":
        raise UsageError("{name} has no memory at all", name=made["name"])
    return DeviceReport(**made)


_SIZES = ("total_bytes", "free_bytes", "largest_block_bytes", "all_blocks_bytes", "spilled_bytes",
          "write_bytes_per_s", "bus_bytes_per_s", "others_bytes", "card_free_bytes",
          "ceiling_bytes", "margin_bytes", "context_bytes", "max_allocation_bytes",
          "max_buffer_bytes", "chunk_bytes")  # fmt: skip


def _outcome(made: Mapping[str, Any]) -> str:
    """Of a document with the contract's fields only."""
    return "asked" if made["all_blocks_bytes"] is None else "measured"


def _host(row: Mapping[str, Any]) -> Host:
    total, available, limit = (
        _size(row.get(name), name) for name in ("total_bytes", "available_bytes", "limit_bytes")
    )
    total = total or 0
    return Host(total, min(total, total if available is None else available), limit)


def _read_note(value: Any) -> Note:
    row = _object(value, phrase("a note"))
    values = row.get("values")
    kept = values if isinstance(values, dict) else {}
    return Note(
        _text(row.get("code")),
        {
            _text(name): _number(each) if isinstance(each, int) else _text(each)
            for name, each in list(kept.items())[:16]
        },
    )


def _object(value: Any, what: Phrase) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError("{what} is no JSON object", what=what)
    return value


def _list(value: Any) -> list[Any]:
    return value[:_MOST_IN_A_LIST] if isinstance(value, list) else []


def _size(value: Any, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_BYTES:
        raise UsageError("{name} is no size: {value}", name=name, value=_text(str(value))[:40])
    return value


def _number(value: int) -> int:
    """A value of a note: a size, a rate, seconds or a driver's code."""
    if not -MOST_BYTES <= value <= MOST_BYTES:
        raise UsageError("{name} is no size: {value}", name="values", value=_text(str(value))[:40])
    return value


def _text(value: Any) -> str:
    """Printable text of a bearable length; anything else is nothing."""
    if not isinstance(value, str):
        return ""
    return "".join(char for char in value[:_TEXT] if char.isprintable())


def _time(value: Any) -> datetime:
    try:
        found = datetime.fromisoformat(_text(value))
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
