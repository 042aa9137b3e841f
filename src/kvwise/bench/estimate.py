"""What a sweep would do and how long it would take, before anything is started.

The time is a guess from the speed model: what the tests read and decode, and a second for each
start. The first real starts tell better; the progress line goes by those.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvwise.bench.by_tool import ToolVisit
from kvwise.bench.ruled import Ruled
from kvwise.bench.run import Sweep
from kvwise.bench.schedule import all_units, depths, visits
from kvwise.engine.server import command, shown
from kvwise.memory.ledger import Ledger
from kvwise.memory.report import ledger_json
from kvwise.plan.speed.estimate import estimate as speed_of
from kvwise.results import settings_seen
from kvwise.text import Phrase, say

SCHEMA = "kvwise/bench-plan/1"
_START_S = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """A setting and its starts. `seconds` None = not known."""

    ruled: Ruled
    starts: int
    seconds: float | None

    @property
    def label(self) -> str:
        return self.ruled.case.label

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(test.name for test in self.ruled.tests)

    @property
    def why(self) -> Phrase | None:
        """Why it is not started."""
        return self.ruled.skipped

    def as_json(self, language: str) -> dict[str, Any]:
        """Named as in a row of kvwise/bench/1."""
        case, ledger = self.ruled.case, self.ruled.ledger
        return {
            "key": case.key,
            "model": case.model,
            "varied": dict(case.varied),
            "settings": settings_seen(case.launch),
            "measured_by": self.ruled.way,
            "tests": list(self.tests),
            "tests_beyond_context": [test.name for test in self.ruled.beyond],
            "starts": self.starts,
            "seconds": self.seconds,
            "code": self.ruled.code or None,
            "message": say(self.why, language) if self.why else None,
            "predicted": ledger_json(ledger, language) if ledger else None,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """All settings, and the command of each (of its first depth); those of the embedded engine are
    kvwise's own, and `shown` has what a llama-server would be told."""

    rows: tuple[Row, ...]
    commands: tuple[str, ...]
    shown: tuple[str, ...]

    @property
    def starts(self) -> int:
        return sum(row.starts for row in self.rows)

    @property
    def seconds(self) -> float | None:
        """Altogether; None when a setting's is not known."""
        known = [row.seconds for row in self.rows if not row.why]
        return None if None in known else sum(each or 0.0 for each in known)

    def as_json(self, language: str) -> dict[str, Any]:
        """Plain values."""
        return {
            "schema": SCHEMA,
            "starts": self.starts,
            "seconds": self.seconds,
            "rows": [row.as_json(language) for row in self.rows],
            "commands": list(self.commands),
            "internal": self.commands != self.shown,
            "as_llama_server": [
                None if one == other else other
                for one, other in zip(self.commands, self.shown, strict=True)
            ],
        }


def estimate(sweep: Sweep) -> Plan:
    """The plan of a sweep; starts nothing."""
    times = {
        (each.case.key, depth): _seconds(each, depth, sweep)
        for each in sweep.ruled
        if each.skipped is None
        for depth in depths(each)
    }
    counts: dict[tuple[int, int, str], int] = {}
    for each in sweep.ruled:
        for depth in () if each.skipped is not None else depths(each):
            fixed, measured = times[each.case.key, depth] or (_START_S, 1.0)
            counts.setdefault(
                (each.case.model, depth, each.way), visits(sweep.repetitions, fixed, measured)
            )
    units = all_units(sweep.ruled, counts, sweep.repetitions)
    rows = []
    for each in sweep.ruled:
        mine = [unit for unit in units if unit.ruled is each]
        spent = [(times[each.case.key, unit.depth], unit.times) for unit in mine]
        known = [fixed_and[0] + fixed_and[1] * many for fixed_and, many in spent if fixed_and]
        rows.append(Row(each, len(mine), sum(known) if len(known) == len(spent) else None))
    return Plan(tuple(rows), tuple(_commands(sweep, command)), tuple(_commands(sweep, shown)))


def _seconds(ruled: Ruled, depth: int, sweep: Sweep) -> tuple[float, float] | None:
    """(what a start costs beside measuring, what one repetition takes); None = not known."""
    ledger = ruled.ledger
    rates = _rates(ledger, depth, sweep) if ledger else None
    if rates is None:
        return None
    prompt, decode = rates
    spent = sum(
        test.tokens / (decode if test.kind == "decode" else prompt)
        for test in ruled.tests_at(depth)
    )
    return _START_S + depth / prompt, spent


def _rates(ledger: Ledger, depth: int, sweep: Sweep) -> tuple[float, float] | None:
    speed = speed_of(ledger, max(depth, 1), host=sweep.means.host)
    prompt, decode = speed.prompt_tokens_per_s, speed.decode_tokens_per_s
    return (prompt, decode) if prompt and decode else None


def _commands(sweep: Sweep, made: Callable[..., list[str]]) -> list[str]:
    found = []
    for each in sweep.ruled:
        if each.skipped is not None:
            continue
        means, model = sweep.means, sweep.models[each.case.model]
        if each.way == "llama-bench" and means.bench is not None:
            tests = each.tests_at(depths(each)[0])
            argv = ToolVisit(
                model.loadable, each.case.launch, means.bench, means.threads, tests,
                sweep.repetitions, 0, 0, means.cpu_only,
            ).argv()  # fmt: skip
        else:
            argv = made(model.loadable, each.case.launch, means.engine, means.run)
        found.append(shlex.join(argv))
    return found
