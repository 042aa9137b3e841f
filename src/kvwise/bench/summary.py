"""A few figures of many samples: one line per setting, one figure per test."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvwise.bench import memory
from kvwise.bench.cases import Case, Task
from kvwise.bench.ruled import Ruled
from kvwise.bench.run import FAILED, OK, SKIPPED, Result, Sweep, of_case
from kvwise.diagnose.failed_run import why_failed
from kvwise.diagnose.finding import Finding
from kvwise.engine.outcome import Outcome
from kvwise.gguf.model import Model
from kvwise.results import spread
from kvwise.text import Phrase
from kvwise.verify.codec import decode

_BASE = ("f16", "f16")


@dataclass(frozen=True, slots=True)
class Figure:
    """Tokens per second of a test: median, least and most of the samples that count, and half of
    what the middle half lies apart (None for a single one). `doubtful` = none counted, these are
    of all samples, each of them disturbed; `disturbed` = how many were."""

    test: Task
    median: float
    least: float
    most: float
    spread: float | None
    count: int
    disturbed: int
    doubtful: bool

    @property
    def share(self) -> float | None:
        """The spread as a share of the median."""
        return None if self.spread is None else self.spread / self.median


@dataclass(frozen=True, slots=True)
class Line:
    """What became of a setting: `state` ok, failed or skipped. `rows` are sizes of its longest
    context, `used` what the engine's log says was used, `effects` (code, message, lost)."""

    case: Case
    ruled: Ruled
    state: str
    figures: tuple[Figure, ...] = ()
    why: Phrase | None = None
    code: str = ""
    findings: tuple[Finding, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    used: Mapping[str, Any] | None = None
    effects: tuple[tuple[str, Phrase, bool], ...] = ()
    samples: tuple[Mapping[str, Any], ...] = ()
    argv: tuple[str, ...] = ()
    log: str | None = None
    seconds: float = 0.0
    at: float = 0.0  # when its first start ended, seconds since 1970

    @property
    def parts(self) -> dict[str, dict[str, int | None]]:
        """Sums of sizes; computed alone where nothing was measured."""
        if self.rows:
            return memory.sums([dict(row) for row in self.rows])
        ledger = self.ruled.ledger
        sizes = memory.predicted(ledger) if ledger else {}
        return {
            part: {
                "computed_bytes": sizes.get(part),
                "measured_bytes": None,
                "difference_bytes": None,
            }
            for part in memory.PARTS
        }

    def figure(self, test: str) -> Figure | None:
        """Of a test by its name."""
        return next((each for each in self.figures if each.test.name == test), None)

    @property
    def types(self) -> tuple[str, str]:
        return self.case.launch.type_k, self.case.launch.type_v


def lines_of(sweep: Sweep, results: Mapping[str, Result]) -> tuple[Line, ...]:
    """One line per setting, in their order; those not reached yet are left out."""
    found = []
    for ruled in sweep.ruled:
        line = line_of(ruled, sweep.models[ruled.case.model], of_case(ruled, results))
        if line is not None:
            found.append(line)
    return tuple(found)


def line_of(ruled: Ruled, model: Model, results: Mapping[str, Result]) -> Line | None:
    """What the results of a setting's units say; None without any."""
    if ruled.skipped is not None:
        return Line(ruled.case, ruled, SKIPPED, why=ruled.skipped, code=ruled.code)
    if not results:
        return None
    units = list(results.values())
    samples = tuple(sample for unit in units for sample in unit["samples"])
    figures = [_figure(test, samples) for test in ruled.tests]
    line = Line(
        case=ruled.case,
        ruled=ruled,
        state=OK,
        figures=tuple(each for each in figures if each is not None),
        rows=tuple(memory.widest_rows([unit["memory"] for unit in units])),
        used=next((unit["used"] for unit in units if unit["used"]), None),
        effects=_effects(units),
        samples=samples,
        argv=tuple(next((unit["argv"] for unit in units if unit["argv"]), ())),
        seconds=sum(unit["seconds"] for unit in units),
        at=min(unit["at"] for unit in units),
    )
    bad = next((unit for unit in units if unit["state"] in (FAILED, SKIPPED)), None)
    return line if bad is None else _failed(line, model, bad)


def _failed(line: Line, model: Model, unit: Result) -> Line:
    outcome: Outcome | None = decode(unit["outcome"])
    findings: tuple[Finding, ...] = ()
    if unit["state"] == FAILED:
        lines = unit["log"] or unit["tail"] or None
        findings = why_failed(lines, outcome, model=model, launch=line.case.launch)
    why = findings[0].cause if findings else decode(unit["error"])
    code = (
        findings[0].kind if findings else "does_not_fit" if unit["state"] == SKIPPED else "failed"
    )
    return replace(
        line, state=unit["state"], why=why, code=code, findings=findings, log=unit["log"]
    )


def _effects(units: Iterable[Result]) -> tuple[tuple[str, Phrase, bool], ...]:
    found: dict[str, tuple[str, Phrase, bool]] = {}
    for unit in units:
        for code, message, lost in unit["effects"]:
            text: Phrase = decode(message)
            found.setdefault(f"{code} {text}", (code, text, bool(lost)))
    return tuple(found.values())


def _figure(test: Task, samples: Sequence[Mapping[str, Any]]) -> Figure | None:
    mine = [sample for sample in samples if sample["test"] == test.name]
    good = [sample["value"] for sample in mine if not sample["flags"]]
    values = good or [sample["value"] for sample in mine]  # as `Measurement.shown` has it
    if not values:
        return None
    return Figure(
        test=test,
        median=statistics.median(values),
        least=min(values),
        most=max(values),
        spread=spread(values),
        count=len(values),
        disturbed=sum(bool(sample["flags"]) for sample in mine),
        doubtful=not good,
    )


def base_of(line: Line, lines: Sequence[Line]) -> Line | None:
    """The line with the same settings but for the cache, which is f16 for K and V."""
    for other in lines:
        same = other.case.model == line.case.model and other.case.rest == line.case.rest
        if same and other.types == _BASE and other.state == OK:
            return other
    return None


def doubted(line: Line, base: Line | None, test: str) -> bool:
    """Whether one of the two figures of a `ratio` is of disturbed samples only."""
    figures = (line.figure(test), base.figure(test) if base else None)
    return any(figure is not None and figure.doubtful for figure in figures)


def ratio(line: Line, base: Line | None, test: str) -> float | None:
    """Speed of a test as a share of the base's; None where either is not known."""
    mine, its = line.figure(test), base.figure(test) if base else None
    return mine.median / its.median if mine and its and its.median else None
