"""What was measured, for a plan: which results count here, and in words where they come from."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvwise import paths, store
from kvwise.gguf.model import Model
from kvwise.plan.quality import Fidelity, Grades
from kvwise.plan.speed import Measured
from kvwise.text import Phrase, phrase, say

if TYPE_CHECKING:
    from kvwise.cli._request import Machine
    from kvwise.results import Learned, Measurement

_DAY_S = 86400

RESULTS = click.Option(
    ["--results"],
    metavar="FILE",
    help="Also use what another machine measured: JSON lines of `kvwise results export`.",
)


@dataclass(frozen=True, slots=True)
class Known:
    """What a plan may use; `said` tells where it comes from and what is left out."""

    grades: Grades | None = None
    speeds: tuple[Measured, ...] = ()
    said: tuple[Phrase, ...] = ()

    def as_json(self, language: str) -> dict[str, Any] | None:
        """The `measured` object of kvwise/plan/1; None = nothing was measured."""
        if not self.said:
            return None
        return {
            "speeds": len(self.speeds),
            "fidelities": len(self.grades.known) if self.grades else 0,
            "said": [say(each, language) for each in self.said],
        }


NOTHING = Known()


def known(model: Model, on: Machine, build: str, *, here: bool, file: str | None = None) -> Known:
    """Results for a model on these devices, for a plan for `build` of the engine.

    `here`: the devices are this machine's own; else speeds are taken from `file` alone. Quality is
    the model's, whoever measured it. Raises UsageError, SourceError (the file), StoreError.
    """
    place = paths.data_dir() / store.NAME
    found: list[_Found] = []
    shut: list[Phrase] = []
    if place.exists():
        with store.Store(place) as kept:
            shut += [store.as_it_is(kept)] if kept.read_only else []
            found += _of_store(kept, model, on, build, here=here)
    if file is not None:
        found += _of_file(file, model, build)
    speeds = tuple(speed for each in found for speed in each.speeds)
    fidelities = [one for each in reversed(found) for one in each.fidelities]
    grades = Grades.measured(fidelities, model.architecture) if fidelities else None
    said = (*shut, *(sentence for each in found for sentence in each.said()))
    return Known(grades, speeds, said)


@dataclass(frozen=True, slots=True)
class _Found:
    """What one machine measured, of one build where there is any of that; `machine` is its name,
    empty = this one; `build` is what is planned for."""

    used: tuple[Measurement, ...]
    speeds: tuple[Measured, ...]
    fidelities: tuple[Fidelity, ...]
    left_out: tuple[tuple[Measurement, Phrase], ...]
    machine: str
    build: str
    same_build: bool

    @classmethod
    def of(cls, learned: Learned, machine: str, build: str) -> _Found:
        """Results of the very build first: others only where there are none."""
        same = [each.engine.build == build for each in learned.used]
        kept = [which or not any(same) for which in same]
        return cls(
            tuple(compress(learned.used, kept)),
            tuple(replace(each, same_build=any(same)) for each in compress(learned.speeds, kept)),
            tuple(compress(learned.fidelities, kept)),
            learned.left_out,
            machine,
            build,
            any(same),
        )

    def said(self) -> Iterable[Phrase]:
        if self.used:
            yield self._used(self.used)
        for why, count in _counted(self.left_out):
            yield phrase("{count} result(s) not used: {why}", count=count, why=why)

    def _used(self, used: Sequence[Measurement]) -> Phrase:
        newest = max(used, key=lambda each: each.at)
        fields = {
            "age": _age(newest.at),
            "build": newest.engine.build or phrase("an unknown build"),
        }
        quality = newest.kind == "fidelity"
        if self.machine and quality:
            said = phrase("quality: measured on {machine} {age} with {build}",
                          machine=self.machine, **fields)  # fmt: skip
        elif self.machine:
            said = phrase("speed: measured on {machine} {age} with {build}",
                          machine=self.machine, **fields)  # fmt: skip
        elif quality:
            said = phrase("quality: measured on this machine {age} with {build}", **fields)
        else:
            said = phrase("speed: measured on this machine {age} with {build}", **fields)
        if self.same_build:
            return said
        return phrase(
            "{said}; {wanted} is planned for, so that it only corrects what was worked out",
            said=said, wanted=self.build or phrase("an unknown build"),
        )  # fmt: skip


def _age(at: float) -> Phrase:
    days = max(0, int((time.time() - at) // _DAY_S))
    if days == 0:
        return phrase("today")
    return phrase("yesterday") if days == 1 else phrase("{days} days ago", days=days)


def _counted(
    left_out: Iterable[tuple[Measurement, Phrase]],
) -> list[tuple[Phrase, int]]:
    counts: dict[str, tuple[Phrase, int]] = {}
    for _, why in left_out:
        counts[str(why)] = (why, counts.get(str(why), (why, 0))[1] + 1)
    return list(counts.values())


def _of_store(
    kept: store.Store, model: Model, on: Machine, build: str, *, here: bool
) -> list[_Found]:
    """Speeds of this machine, if the plan is for it, and what cache types cost the model."""
    from kvwise.results import (  # noqa: PLC0415  (only where something was measured)
        learn_fidelities,
        learn_speeds,
        machine_seen,
        model_seen,
    )

    seen, machine = model_seen(model), machine_seen(on.devices)
    learned = [learn_speeds(kept, seen, machine)] if here else []
    return [_Found.of(each, "", build)
            for each in (*learned, learn_fidelities(kept, seen, machine))]  # fmt: skip


def _of_file(file: str, model: Model, build: str) -> list[_Found]:
    """The same of all machines of a file, the last first."""
    from kvwise.results import (  # noqa: PLC0415
        learn_fidelities,
        learn_speeds,
        load,
        model_seen,
    )
    from kvwise.results.files import merge  # noqa: PLC0415

    seen = model_seen(model)
    with store.Store(Path(":memory:")) as kept:
        merge(kept, [file])
        machines = {each.machine.id: each.machine for each in load(kept)}
        return [
            _Found.of(learn(kept, seen, machine), machine.name or machine.cpu or machine.id, build)
            for machine in reversed(machines.values())
            for learn in (learn_speeds, learn_fidelities)
        ]
