"""What the planner and the speed model may take from what was measured, and what they may not.

A speed holds on the same hardware, under the same drivers, with the same build of the engine, and
for so long; a fidelity is a property of the model and the build, whoever measured it. What is left
out is left out with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from kvwise.plan.quality import Fidelity
from kvwise.plan.speed.measured import Measured
from kvwise.results.keep import load
from kvwise.results.record import EngineSeen, Machine, Measurement, ModelSeen
from kvwise.store import Store
from kvwise.text import Phrase, phrase

SPEED_HOLDS_S = 90 * 86400.0
"""Older speeds are left out: systems are updated, fans gather dust."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Values for the planner; `used` are the measurements behind them, newest last, `left_out`
    those that were not used, with why."""

    speeds: tuple[Measured, ...] = ()
    fidelities: tuple[Fidelity, ...] = ()
    used: tuple[Measurement, ...] = ()
    left_out: tuple[tuple[Measurement, Phrase], ...] = ()


def learn_speeds(
    store: Store,
    model: ModelSeen,
    machine: Machine,
    engine: EngineSeen | None = None,
    now: float | None = None,
) -> Learned:
    """Speeds of this model here; where it was not measured, those of other models here, which tell
    the rates that the devices reach. `engine` None = any. Raises StoreError."""
    kept, left_out = [], []
    for found in _newest(load(store, kind="speed", state="ok", machine=machine.id)):
        why = _stale(found, machine, engine, time.time() if now is None else now)
        if why is not None:
            left_out.append((found, why))
        elif _speed(found) is not None:
            kept.append(found)
        elif found.disturbed and found.model.fingerprint == model.fingerprint:
            left_out.append((found, _disturbed(found)))
    own = [each for each in kept if each.model.fingerprint == model.fingerprint]
    used = tuple(own or kept)
    speeds = tuple(speed for speed in map(_speed, used) if speed is not None)
    return Learned(speeds, (), used, tuple(left_out))


def learn_fidelities(
    store: Store, model: ModelSeen, machine: Machine, engine: EngineSeen | None = None
) -> Learned:
    """What cache types cost this model: by any machine, this one's last, because the last counts.

    Raises StoreError.
    """
    kept, left_out = [], []
    for found in _newest(load(store, kind="fidelity", state="ok", fingerprint=model.fingerprint)):
        why = _other_engine(found, engine)
        if why is not None:
            left_out.append((found, why))
        elif _fidelity(found) is not None:
            kept.append(found)
    kept.sort(key=lambda each: (each.machine.id == machine.id, each.at))
    fidelities = tuple(each for each in map(_fidelity, kept) if each is not None)
    return Learned((), fidelities, tuple(kept), tuple(left_out))


def speeds_for(
    store: Store, model: ModelSeen, machine: Machine, engine: EngineSeen | None = None
) -> list[Measured]:
    """The results for `plan.speed.measured`; see `learn_speeds`."""
    return list(learn_speeds(store, model, machine, engine).speeds)


def fidelities_for(
    store: Store, model: ModelSeen, machine: Machine, engine: EngineSeen | None = None
) -> list[Fidelity]:
    """The results for `plan.quality.Grades.measured`; see `learn_fidelities`."""
    return list(learn_fidelities(store, model, machine, engine).fidelities)


def _newest(found: Iterable[Measurement]) -> list[Measurement]:
    """Of each identity the last, in the order of time (that of `load`); one that was disturbed
    only where there is no other."""
    last: dict[str, Measurement] = {}
    for each in found:
        before = last.get(each.identity)
        if before is not None and each.disturbed and not before.disturbed:
            continue
        last.pop(each.identity, None)
        last[each.identity] = each
    return list(last.values())


def _stale(
    found: Measurement, machine: Machine, engine: EngineSeen | None, now: float
) -> Phrase | None:
    if found.machine.drivers != machine.drivers:
        return phrase("measured under another driver")
    if now - found.at > SPEED_HOLDS_S:
        return phrase("measured {count} days ago", count=int((now - found.at) // 86400))
    return _other_engine(found, engine)


def _other_engine(found: Measurement, engine: EngineSeen | None) -> Phrase | None:
    if engine is None or (found.engine.kind, found.engine.build) == (engine.kind, engine.build):
        return None
    return phrase(
        "measured with {build}", build=found.engine.build or phrase("an engine of unknown build")
    )


def _disturbed(found: Measurement) -> Phrase:
    if any("contended" in each.flags for each in found.samples):
        return phrase("something else ran meanwhile")
    return phrase("the machine was slowed down meanwhile")


_SPEEDS = {"decode": "decode_tokens_per_s", "prompt": "prompt_tokens_per_s"}


def _speed(found: Measurement) -> Measured | None:
    """None for a measurement that does not say what a token costs, or has no sample that counts."""
    work, speed = found.figures.get("work"), _SPEEDS.get(str(found.test.get("metric")))
    if not isinstance(work, dict) or speed is None or not found.median or found.median < 0:
        return None
    try:
        around = (found.spread or 0.0) / found.median
        return Measured(**dict(_work(work)) | {speed: found.median, "spread": around})
    except (KeyError, TypeError):
        return None


def _work(work: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Raises KeyError or TypeError for what `work_of` never made."""
    for each in fields(Measured):
        if each.name == "devices":
            names = work["devices"]
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise TypeError(names)
            yield "devices", tuple(names)
        elif each.default is MISSING:
            value = work[each.name]
            wanted = str if each.type == "str" else int
            if type(value) is not wanted or (isinstance(value, int) and value < 0):
                raise TypeError(each.name)
            yield each.name, value


def _fidelity(found: Measurement) -> Fidelity | None:
    """None for a measurement that lacks its types or its divergence."""
    type_k, type_v = found.settings.get("type_k"), found.settings.get("type_v")
    divergence, same = _figure(found, "kl_mean"), _figure(found, "same_top")
    if not isinstance(type_k, str) or not isinstance(type_v, str) or divergence is None:
        return None
    noise, noise_same = _figure(found, "noise_kl_mean"), _figure(found, "noise_same_top")
    broken = found.figures.get("verdict") == "broken"
    return Fidelity(type_k, type_v, divergence, same, noise or 0.0, noise_same, broken)


def _figure(found: Measurement, name: str) -> float | None:
    value = found.figures.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
