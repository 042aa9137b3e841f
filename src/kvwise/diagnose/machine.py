"""How this machine is: engine, devices, memory, limits, variables, the build. Nothing is taken."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from kvwise.diagnose.known import bad_build
from kvwise.diagnose.variables import changing
from kvwise.engine.devices import list_devices
from kvwise.engine.find import Engine, find
from kvwise.errors import KvwiseError
from kvwise.here import may_have_gpu
from kvwise.probe.host import limits
from kvwise.probe.report import DeviceReport
from kvwise.probe.survey import Wish, running_engines, survey
from kvwise.text import Phrase, phrase
from kvwise.units import GIB, show

Level = Literal["good", "note", "warn", "bad"]
_LITTLE = GIB
_APART = 0.05
"""Free memory that engine and driver report may differ by, as a share of the total."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: how it is, and what to do about it."""

    name: str
    level: Level
    said: Phrase
    hint: Phrase | None = None


def checks(engine: str | None = None, environ: Mapping[str, str] | None = None) -> Iterator[Check]:
    """All checks, as they are made. Starts the engine to list its devices, and quick probes."""
    environ = os.environ if environ is None else environ
    used, found = _engine(engine)
    yield from found
    report = survey(Wish(quick=True))
    yield from _devices(used, report.devices)
    for backend, note in report.failures:
        yield Check(backend, "warn", note.message)
    yield from _memory()
    for name, value, effect, harms in changing(environ):
        said = phrase("{name}={value}: {effect}", name=name, value=value[:80], effect=effect)
        yield Check("variable", "warn" if harms else "note", said)
    holders = running_engines()
    if holders:
        yield Check("programs", "note", phrase("programs that may hold a model: {names}",
                                               names=", ".join(holders)))  # fmt: skip


def _engine(wanted: str | None) -> tuple[Engine | None, list[Check]]:
    try:
        used = find(wanted)
    except KvwiseError as error:
        hint = error.hint or phrase("install llama.cpp, or kvwise with its engine")
        return None, [Check("engine", "bad", error.phrase, hint)]
    found = [Check("engine", "good", phrase("{name}, build {build}", name=used.name,
                                            build=used.build or "?"))]  # fmt: skip
    number = (used.build or "").removeprefix("b")
    bad = bad_build(int(number)) if number.isdecimal() else None
    if bad:
        said = phrase(
            "a known bug of this build: {what} ({source})", what=bad.what, source=bad.source
        )
        found.append(Check("build", "warn", said, bad.good))
    if used.build is None:
        found.append(Check("build", "note", phrase("the engine does not say which build it is")))
    return used, found


def _devices(used: Engine | None, probed: tuple[DeviceReport, ...]) -> Iterator[Check]:
    """What the engine sees beside what the drivers say."""
    cards = [each for each in probed if not each.software]
    try:
        seen = list_devices(used) if used else []
    except KvwiseError as error:
        yield Check("devices", "bad", error.phrase)
        return
    for device in seen:
        said = phrase("the engine sees {name}: {free} of {total} free", name=device.name,
                      free=show(device.free_bytes), total=show(device.total_bytes))  # fmt: skip
        yield Check("device", "good", said)
        yield from _against(device.name, device.free_bytes, device.total_bytes, cards)
    if not seen and cards:
        names = ", ".join(dict.fromkeys(each.name for each in cards))
        yield Check(
            "devices", "bad",
            phrase("the drivers show {names}, the engine sees none of them", names=names),
            phrase("take a build for this GPU, and look at the variables below"),
        )  # fmt: skip
    elif not seen:
        sure = phrase("no GPU") if not may_have_gpu() else phrase("no GPU that a driver shows")
        yield Check("devices", "note", sure)
    for card in cards:
        yield from _driver(card)


def _against(name: str, free: int, total: int, cards: list[DeviceReport]) -> Iterator[Check]:
    same = [each for each in cards if each.name == name and each.free_bytes is not None]
    for card in same[:1]:
        gap = abs(free - (card.free_bytes or 0))
        if gap > _APART * max(total, 1):
            yield Check("device", "warn", phrase(
                "engine and driver disagree about {name}: {free} and {other} free",
                name=name, free=show(free), other=show(card.free_bytes or 0),
            ), phrase("kvwise probe measures what can be had"))  # fmt: skip


def _driver(card: DeviceReport) -> Iterator[Check]:
    if card.driver_model in ("WDDM", "MCDM"):
        yield Check(
            "driver", "note",
            phrase("{name} is driven by {model}: it moves memory to the system when the card is "
                   "full, without an error", name=card.name, model=card.driver_model),
            phrase("NVIDIA control panel, CUDA sysmem fallback policy: prefer no fallback makes it "
                   "an error"),
        )  # fmt: skip
    if card.free_bytes is not None and card.free_bytes < card.total_bytes // 2:
        said = phrase(
            "only {free} of {total} are free on {name}",
            name=card.name,
            free=show(card.free_bytes),
            total=show(card.total_bytes),
        )
        hint = phrase("another program, or a model that was not released, holds the rest")
        yield Check("driver", "warn", said, hint)


def _memory() -> Iterator[Check]:
    from kvwise.probe.host import host  # noqa: PLC0415

    here = host()
    said = phrase("{available} of {total} of system memory are available",
                  available=show(here.available_bytes), total=show(here.total_bytes))  # fmt: skip
    yield Check("memory", "good" if here.available_bytes > _LITTLE else "bad", said)
    for limit in limits():
        yield Check("limit", "note", phrase(
            "{name} limits memory to {limit}; {room} are left", name=limit.name,
            limit=show(limit.limit_bytes), room=show(limit.room_bytes)),
            phrase("llama.cpp does not see this limit: its fitting may promise more"))  # fmt: skip
    if sys.platform.startswith("linux"):
        yield from _locked()


def _locked() -> Iterator[Check]:
    import resource  # noqa: PLC0415  (not on Windows)

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY:
        yield Check("limit", "note", phrase("--mlock can lock {size}", size=show(soft)))
