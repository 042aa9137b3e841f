"""A whole sweep as a job: every unit is on the disk before the next one starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kvwise.bench.by_server import ServerVisit, Tokens, checkpoints
from kvwise.bench.by_tool import ToolVisit
from kvwise.bench.effects import effects, seen
from kvwise.bench.memory import beside
from kvwise.bench.ruled import Means, Ruled, lacks
from kvwise.bench.schedule import Unit, all_units, first_units, visits
from kvwise.bench.visit import Visit
from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.jobs import Job, Pace
from kvwise.probe.host import host as this_host
from kvwise.verify.codec import encode

KIND = "bench"
FAILED, OK, LEFT_OUT, SKIPPED = "failed", "ok", "left_out", "skipped"
"""What became of a unit: LEFT_OUT = an earlier start of the same failed; SKIPPED = memory."""

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sweep:
    """All that is to be measured. `retries` = how often a disturbed sample is taken again."""

    models: tuple[Model, ...]
    ruled: tuple[Ruled, ...]
    means: Means
    repetitions: int
    retries: int
    force: bool = False
    logs: Path | None = None


def run(
    sweep: Sweep,
    job: Job,
    progress: Callable[[Pace], None] | None = None,
    saved: Callable[[Ruled, Mapping[str, Result]], object] | None = None,
) -> dict[str, Result]:
    """Results of all units by their key. `saved` is called after each with all that is known of
    its setting. The job stays open: finish it when what came out has been told.

    Raises Interrupted on Ctrl-C; a start that fails is a result.
    """
    plain = {unit.key: unit for unit in first_units(sweep.ruled)}
    work = _Work(sweep, job, plain, saved)
    work.save(sweep.ruled)  # a kill may have come between a unit and this
    try:
        job.run(list(plain), work.do, progress, last=False)
        work.units = plain | _units(sweep, job, plain)
        job.run(list(work.units), work.do, progress, last=False)
    finally:
        work.save(work.pending)
    return dict(job.results)


def _units(sweep: Sweep, job: Job, plain: Mapping[str, Unit]) -> dict[str, Unit]:
    """All units; how many starts each has is decided once, by the first unit of its kind."""
    counts: dict[tuple[int, int, str], int] = {}
    for unit in plain.values():
        name = (unit.ruled.case.model, unit.depth, unit.ruled.way)
        count = _count(sweep.repetitions, job.results[unit.key], unit.ruled.way)
        counts[name] = int(job.note("visits " + " ".join(map(str, name)), count))
    return {unit.key: unit for unit in all_units(sweep.ruled, counts, sweep.repetitions)}


def _count(repetitions: int, first: Result, way: str) -> int:
    """Starts to spread the repetitions over, by what the first one took."""
    spent = sum(each["seconds"] for each in first["samples"])
    kept = sum(each["seconds"] for each in first["samples"] if not each["discarded"])
    if not kept:
        return min(2, repetitions)
    fixed = first["seconds"] - spent
    if way == "llama-bench":  # a disturbed start was repeated as a whole
        fixed = first["ready_s"] or fixed
    return visits(repetitions, max(fixed, 0.01), kept)


@dataclass(slots=True)
class _Work:
    """Does one unit after another."""

    sweep: Sweep
    job: Job
    units: dict[str, Unit]
    saved: Callable[[Ruled, Mapping[str, Result]], object] | None
    pending: tuple[Ruled, ...] = ()  # whose last unit is done and not yet saved

    def save(self, settings: Sequence[Ruled]) -> None:
        """Hand on what is known of these settings: only units that are on the disk."""
        for ruled in settings if self.saved else ():
            found = of_case(ruled, self.job.results)
            if found and self.saved:
                self.saved(ruled, found)
        self.pending = ()

    def do(self, key: str) -> Result:
        unit = self.units[key]
        if self._failed_before(unit):
            return _result(LEFT_OUT)
        self.save(self.pending)
        found = self._one(unit)
        self.pending = (unit.ruled,)
        return found

    def _failed_before(self, unit: Unit) -> bool:
        start = f"{unit.ruled.case.key} @{unit.depth} #"
        mine = (self.job.results.get(f"{start}{visit}") for visit in range(unit.visit))
        return any(each is not None and each["state"] != OK for each in mine)

    def _one(self, unit: Unit) -> Result:
        sweep, ruled = self.sweep, unit.ruled
        ledger = ruled.ledger
        if ledger is not None and not sweep.force:
            why = lacks(ledger, this_host())  # others may have taken memory since
            if why is not None:
                return _result(SKIPPED, error=encode(why))
        log = sweep.logs / f"{_file(unit.key)}.log" if sweep.logs else None
        visit = self._visit(unit).go(log)
        found = _result(
            OK if visit.error is None else FAILED,
            samples=[asdict(taken) for taken in visit.samples],
            seconds=visit.seconds,
            ready_s=visit.ready_s,
            argv=list(visit.argv),
            build=visit.build,
            log=str(log) if log else None,
            error=encode(visit.error),
            outcome=encode(visit.outcome) if visit.error else None,
            tail=list(visit.tail) if visit.error else [],
        )
        return found | self._said(unit, visit)

    def _said(self, unit: Unit, visit: Visit) -> Result:
        """What its log tells: sizes beside ours, what was really used, what was not."""
        loaded = visit.loaded
        if loaded is None:
            return {}
        sweep, ruled = self.sweep, unit.ruled
        model = sweep.models[ruled.case.model]
        used, lost = seen(loaded), effects(_launch(ruled), loaded, visit.missing)
        try:
            rows, figures = beside(ruled, model, sweep.means, loaded, unit.depth)
        except KvwiseError:
            rows, figures = [], {}
        return {
            "memory": rows,
            "figures": figures,
            "used": used,
            "effects": [[each.code, encode(each.message), each.lost] for each in lost],
        }

    def _visit(self, unit: Unit) -> ServerVisit | ToolVisit:
        sweep, ruled, means = self.sweep, unit.ruled, self.sweep.means
        model = sweep.models[ruled.case.model]
        tests, launch = ruled.tests_at(unit.depth), ruled.case.launch
        if ruled.way == "llama-bench" and means.bench is not None:
            return ToolVisit(
                model.path, launch, means.bench, means.threads, tests, unit.times,
                sweep.retries, means.free_cores(launch), means.cpu_only,
            )  # fmt: skip
        run = replace(means.run, checkpoints=checkpoints(model, launch, tests))
        return ServerVisit(
            model.path, launch, means.engine, run, Tokens.of(model, unit.visit),
            tests, unit.times, sweep.retries, means.free_cores(launch),
            () if means.cpu_only else tests,
        )  # fmt: skip


def _launch(ruled: Ruled) -> Any:
    """What the settings are compared with; llama-bench takes its context from the tests."""
    return ruled.ledger.launch if ruled.ledger and ruled.way == "llama-bench" else ruled.case.launch


def of_case(ruled: Ruled, results: Mapping[str, Result]) -> dict[str, Result]:
    """Results of the units of a setting."""
    start = f"{ruled.case.key} @"
    return {key: result for key, result in results.items() if key.startswith(start)}


def _result(state: str, **more: Any) -> Result:
    empty: Result = {
        "state": state, "at": time.time(), "samples": [], "seconds": 0.0, "ready_s": None,
        "argv": [], "build": "", "log": None,
        "error": None, "outcome": None, "tail": [], "memory": [], "figures": {}, "used": {},
        "effects": [],
    }  # fmt: skip
    return empty | more


def _file(key: str) -> str:
    """A unit's key as a name of a file."""
    return "".join(char if char.isalnum() or char in "-_." else "_" for char in key)
