"""A sweep as the JSON document `kvwise/bench/1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvwise.bench.remarks import Remark, remarks
from kvwise.bench.run import Sweep
from kvwise.bench.summary import Figure, Line, base_of, ratio
from kvwise.diagnose.failed_run import findings_json
from kvwise.memory.report import ledger_json
from kvwise.results import Measurement, settings_seen
from kvwise.text import say

SCHEMA = "kvwise/bench/1"


def sweep_json(
    sweep: Sweep,
    lines: Sequence[Line],
    language: str = "en",
    quality: Mapping[str, Measurement] | None = None,
    noticed: Sequence[Remark] = (),
) -> dict[str, Any]:
    """Plain values; sizes in bytes, speeds in tokens per second, sentences in a language.

    `quality` has the fidelity by `Case.key`, where it was measured; `noticed` what was noticed in
    it, beside the remarks on speed."""
    means = sweep.means
    known = quality or {}
    found = [*remarks(lines), *noticed]
    return {
        "schema": SCHEMA,
        "engine": means.engine.as_json(),
        "bench": means.bench.as_json() if means.bench else None,
        "threads": means.threads,
        "cores": means.cores,
        "devices": [
            {"name": each.name, "backend": each.kind, "total_bytes": each.total_bytes}
            for each in means.devices
        ],
        "repetitions": sweep.repetitions,
        "retries": sweep.retries,
        "models": [
            {"name": model.called, "architecture": model.architecture, "path": model.path}
            for model in sweep.models
        ],
        "rows": [
            _line(line, lines, language) | {"quality": _quality(known.get(line.case.key))}
            for line in lines
        ],
        "remarks": [
            {
                "code": each.code,
                "message": say(each.message, language),
                "rows": list(each.keys),
                "test": each.test,
            }
            for each in found
        ],
    }


def _line(line: Line, lines: Sequence[Line], language: str) -> dict[str, Any]:
    base = base_of(line, lines)
    ledger = line.ruled.ledger
    return {
        "key": line.case.key,
        "model": line.case.model,
        "varied": dict(line.case.varied),
        "settings": settings_seen(line.case.launch),
        "measured_by": line.ruled.way,
        "not_llama_bench": say(line.ruled.instead, language) if line.ruled.instead else None,
        "state": line.state,
        "code": line.code or None,
        "message": say(line.why, language) if line.why else None,
        "findings": findings_json(line.findings, language),
        "tests": [_figure(each, ratio(line, base, each.test.name)) for each in line.figures],
        "tests_beyond_context": [test.name for test in line.ruled.beyond],
        "memory": line.parts,
        "memory_rows": [dict(row) for row in line.rows],
        "predicted": ledger_json(ledger, language) if ledger else None,
        "used": dict(line.used) if line.used else None,
        "effects": [
            {"code": code, "message": say(text, language), "lost": lost}
            for code, text, lost in line.effects
        ],
        "samples": [_sample(sample) for sample in line.samples],
        "argv": list(line.argv),
        "log": line.log,
        "seconds": round(line.seconds, 3),
    }


def _quality(found: Measurement | None) -> dict[str, Any] | None:
    """The figures of results/names.py, and the state: `failed` has its findings."""
    if found is None:
        return None
    return {
        "state": found.state,
        **found.figures,
        "findings": list(found.findings),
        "test": dict(found.test),
    }


def _figure(figure: Figure, against: float | None) -> dict[str, Any]:
    return {
        "test": figure.test.name,
        "metric": figure.test.kind,
        "tokens": figure.test.tokens,
        "depth": figure.test.depth,
        "tokens_per_s": {
            "median": figure.median, "min": figure.least, "max": figure.most,
            "spread": figure.spread,
        },
        "samples": figure.count,
        "disturbed": figure.disturbed,
        "doubtful": figure.doubtful,
        "against_f16": against,
    }  # fmt: skip


def _sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "test": sample["test"],
        "tokens_per_s": sample["value"],
        "seconds": sample["seconds"],
        "at": sample["at"],
        "flags": list(sample["flags"]),
        "discarded": sample["discarded"],
        "others_cores": sample["others"],
        "load": sample["load"],
    }
