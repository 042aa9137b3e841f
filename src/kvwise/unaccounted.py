"""What a driver took beside the engine's buffers on this machine, as `kvwise verify` found it.

Kept in the data folder, a row per device, driver, engine and load; a row of another driver or
another build of the engine is never used. Free memory changes with other programs too, so the
largest of the last loads counts.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kvwise import paths
from kvwise.device import Device
from kvwise.engine.find import Engine
from kvwise.probe.driver import driver_of
from kvwise.text import Phrase, phrase

SCHEMA = "kvwise/overhead/1"
KEPT = 8
"""Loads that are remembered of one device under one driver and engine."""
_NAME = "overhead.json"
_MOST = 1 << 20
_MOST_ROWS = 512
_HOUR, _DAY = 3600, 86400


@dataclass(frozen=True, slots=True)
class Key:
    """What must be the same for a figure to hold. `engine` is its version line, which has the
    build where the engine knows it."""

    kind: str
    index: int
    name: str
    driver: str
    build: str
    engine: str


@dataclass(frozen=True, slots=True)
class Load:
    """One load: what it took beside its buffers, and when (seconds since 1970)."""

    key: Key
    taken_bytes: int
    at: float


def key_of(device: Device, engine: Engine, driver: str | None = None) -> Key:
    """The key of a device that an engine listed; `driver` None = looked up."""
    found = driver_of(device.kind) if driver is None else driver
    return Key(device.kind, device.index, device.name, found, engine.build or "", engine.version)


def remember(found: Iterable[tuple[Device, int]], engine: Engine) -> tuple[Load, ...]:
    """Keep what a load took beside its buffers; returns what was kept.

    Nothing is kept where the driver cannot be told from another. Raises OSError.
    """
    now = time.time()
    new = tuple(Load(key_of(device, engine), taken, now) for device, taken in found)
    new = tuple(load for load in new if load.key.driver)
    if new:
        _write((*new, *_read()))
    return new


def with_measured(devices: Sequence[Device], engine: Engine) -> list[Device]:
    """The devices with what was measured on them under this driver and engine."""
    loads = _read()
    return [_measured(device, engine, loads) for device in devices] if loads else list(devices)


def _measured(device: Device, engine: Engine, loads: Sequence[Load]) -> Device:
    key = key_of(device, engine)
    mine = [load for load in loads if load.key == key] if key.driver else []
    if not mine:
        return device
    most = max(load.taken_bytes for load in mine)
    return replace(device, overhead_bytes=most, overhead_reason=_reason(key, mine))


def _reason(key: Key, loads: Sequence[Load]) -> Phrase:
    return phrase(
        "measured on this machine by `kvwise verify` {age} with {build}, driver {driver}: the most "
        "that {count} load(s) took beside their buffers",
        age=_age(time.time() - max(load.at for load in loads)),
        build=key.build or phrase("an engine of unknown build"),
        driver=key.driver.partition(" #")[0],
        count=len(loads),
    )


def _age(seconds: float) -> Phrase:
    if seconds < _HOUR:
        return phrase("less than an hour ago")
    if seconds < 2 * _DAY:
        return phrase("{count} hour(s) ago", count=int(seconds // _HOUR))
    return phrase("{count} days ago", count=int(seconds // _DAY))


def _path() -> Path:
    return paths.data_dir() / _NAME


def _write(loads: Sequence[Load]) -> None:
    """Whole or not at all; the newest loads of each key."""
    counts: dict[Key, int] = {}
    rows = []
    for load in sorted(loads, key=lambda load: -load.at):
        counts[load.key] = counts.get(load.key, 0) + 1
        if counts[load.key] <= KEPT:
            rows.append(asdict(load.key) | {"taken_bytes": load.taken_bytes, "at": load.at})
    target = _path()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")
    document = {"schema": SCHEMA, "loads": rows[:_MOST_ROWS]}
    try:
        part.write_text(json.dumps(document, ensure_ascii=False), "utf-8")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _read() -> tuple[Load, ...]:
    """What is kept; a file that is not sound is as good as none."""
    try:
        with _path().open("rb") as file:
            raw = file.read(_MOST + 1)
        value = json.loads(raw) if len(raw) <= _MOST else None
    except (OSError, ValueError, RecursionError):
        return ()
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        return ()
    rows = value.get("loads")
    return tuple(_loads(rows[:_MOST_ROWS])) if isinstance(rows, list) else ()


def _loads(rows: Sequence[Any]) -> Iterator[Load]:
    for row in rows:
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            yield _load(row)


def _load(row: Mapping[str, Any]) -> Load:
    """Raises KeyError, TypeError, ValueError for a row of other things."""
    texts = [row[name] for name in ("kind", "name", "driver", "build", "engine")]
    numbers = [row[name] for name in ("index", "taken_bytes")]
    sound = all(isinstance(text, str) for text in texts) and all(
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 50
        for number in numbers
    )
    at = row["at"]
    if not sound or isinstance(at, bool) or not isinstance(at, int | float):
        raise TypeError(row)
    kind, name, driver, build, engine = texts
    index, taken = numbers
    if not 0 <= at <= time.time() + _DAY:
        raise ValueError(row)
    return Load(Key(kind, index, name, driver, build, engine), taken, float(at))
