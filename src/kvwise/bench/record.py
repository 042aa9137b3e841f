"""A setting's figures as measurements that are kept: one per test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvwise.bench.cases import Task
from kvwise.bench.ruled import Ruled
from kvwise.bench.run import OK, SKIPPED, Result, Sweep, of_case
from kvwise.bench.summary import Line, line_of
from kvwise.diagnose.failed_run import findings_json
from kvwise.results import (
    EngineSeen,
    Machine,
    Measurement,
    ModelSeen,
    Sample,
    engine_seen,
    model_seen,
    settings_seen,
)

UNIT = "tokens/s"


def all_measurements(
    sweep: Sweep, results: Mapping[str, Result], machine: Machine
) -> list[Measurement]:
    """Of all settings, in their order."""
    return [
        each
        for ruled in sweep.ruled
        for each in measurements(sweep, ruled, of_case(ruled, results), machine)
    ]


def measurements(
    sweep: Sweep, ruled: Ruled, results: Mapping[str, Result], machine: Machine
) -> list[Measurement]:
    """What is known of a setting so far. The time of a measurement is that of its first sample:
    saved again with more samples it is the same one."""
    model = sweep.models[ruled.case.model]
    line = line_of(ruled, model, results)
    if line is None or line.state == SKIPPED:
        return []
    seen = model_seen(model)
    engine = _engine(sweep, ruled, results)
    found = [
        _one(line, test, _figures(ruled, results, test.depth), (machine, engine, seen), sweep)
        for test in ruled.tests
    ]
    return [each for each in found if each is not None]


def _engine(sweep: Sweep, ruled: Ruled, results: Mapping[str, Result]) -> EngineSeen:
    bench = sweep.means.bench
    if ruled.way == "llama-bench" and bench is not None:
        seen = engine_seen(bench, "llama-bench")
        said = next((unit["build"] for unit in results.values() if unit["build"]), "")
        return seen if seen.build else replace(seen, build=said)
    return engine_seen(sweep.means.engine)


def _figures(ruled: Ruled, results: Mapping[str, Result], depth: int) -> Mapping[str, Any]:
    """Of the starts at a depth, those of the first that told its sizes."""
    start = f"{ruled.case.key} @{depth} #"
    mine = [unit["figures"] for key, unit in results.items() if key.startswith(start)]
    return next((figures for figures in mine if figures), {})


def _one(
    line: Line,
    test: Task,
    figures: Mapping[str, Any],
    where: tuple[Machine, EngineSeen, ModelSeen],
    sweep: Sweep,
) -> Measurement | None:
    mine = [sample for sample in line.samples if sample["test"] == test.name]
    if not mine and line.state == OK:
        return None
    machine, engine, model = where
    read = test.kind != "decode"
    return Measurement(
        kind="embedding" if test.kind == "embedding" else "speed",
        at=mine[0]["at"] if mine else line.at,
        machine=machine,
        engine=engine,
        model=model,
        settings=settings_seen(line.case.launch)
        | {"threads": sweep.means.threads_of(line.case.launch)},
        test={
            "metric": test.kind,
            "n_prompt": test.tokens if read else 0,
            "n_gen": 0 if read else test.tokens,
            "depth": test.depth,
        },
        samples=tuple(_sample(sample) for sample in mine),
        figures={**figures, "used": dict(line.used or {})} | _error(line),
        findings=_findings(line),
        state="ok" if line.state == OK else "failed",
    )


def _error(line: Line) -> dict[str, str]:
    """Why it failed, where no finding says so."""
    if line.state == OK or line.findings or line.why is None:
        return {}
    return {"error": str(line.why)}


def _sample(sample: Mapping[str, Any]) -> Sample:
    return Sample(sample["value"], UNIT, sample["at"], tuple(sample["flags"]))


def _findings(line: Line) -> tuple[Mapping[str, Any], ...]:
    found: Sequence[Mapping[str, Any]] = findings_json(line.findings)
    return tuple(found)
