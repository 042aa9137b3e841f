"""A diagnosis as the JSON document `kvwise/diagnosis/1`."""

from __future__ import annotations

from typing import Any

from kvwise.diagnose.case import Case
from kvwise.diagnose.claims import Claim
from kvwise.diagnose.finding import Diagnosis, Evidence, Finding
from kvwise.diagnose.numbers import Numbers, Refusal
from kvwise.diagnose.titles import TITLES
from kvwise.engine import events as ev
from kvwise.engine.loaded import Amounts, CacheLoad
from kvwise.engine.printed import Printed
from kvwise.memory.report import ledger_json
from kvwise.plan.report import plan_json
from kvwise.text import phrase, say

SCHEMA = "kvwise/diagnosis/1"


def diagnosis_json(found: Diagnosis, language: str = "en") -> dict[str, Any]:
    """Plain values; sentences in a language; sizes in MiB as the log prints them, else in bytes."""
    document = {"schema": SCHEMA, **_one(found, language)}
    document["loads"] = [_one(each, language) for each in found.loads]
    return document


def _one(found: Diagnosis, language: str) -> dict[str, Any]:
    return {
        "build": found.build,
        "model": found.model,
        "outcome": found.outcome,
        "lines": [found.first_line, found.last_line],
        "findings": [finding_json(each, language) for each in found.findings],
        "advice": [finding_json(each, language) for each in found.advice],
        "unexplained": [_evidence(each) for each in found.unexplained],
        "last": _evidence(found.last) if found.last else None,
        "measured": measured(found.case) if found.case else None,
        "refusal": _refusal(found.refusal) if found.refusal else None,
        "claims": [_claim(each) for each in found.claims],
        "numbers": _numbers(found.numbers, language) if found.numbers else None,
    }


def finding_json(each: Finding, language: str) -> dict[str, Any]:
    """One finding: kind, cause, evidence and remedies, its sentences in a language."""
    return {
        "kind": each.kind,
        "title": say(phrase(TITLES[each.kind]), language),
        "memory_is_the_cause": each.memory_is_the_cause,
        "memory_pool": each.memory_pool,
        "confidence": each.confidence,
        "evidence": [_evidence(line) for line in each.evidence],
        "cause": say(each.cause, language),
        "remedies": [
            {"text": say(remedy.text, language), "flags": list(remedy.flags)}
            for remedy in each.remedies
        ],
        "rule": each.rule,
        "reason_known": each.reason_known,
    }


def _evidence(line: Evidence) -> dict[str, Any]:
    return {"line": line.line, "text": line.text}


def measured(case: Case) -> dict[str, Any]:
    """What the log says was allocated, in MiB as printed; the fields of the public reports."""
    loaded = case.loaded
    main, model = loaded.main, loaded.model
    caches = main.caches if main else []
    return {
        "model_mib": _amounts(model.weights) if model else {},
        "kv": [_kv(each, each.total) for each in caches if isinstance(each.total, ev.KVCache)],
        "rs": [
            _rs(each, each.total) for each in caches if isinstance(each.total, ev.RecurrentState)
        ],
        "compute_mib": _amounts(main.compute) if main else {},
        "output_mib": _amounts(main.output) if main else {},
    }


def _amounts(amounts: Amounts) -> dict[str, float]:
    return {name: round(total.mib, 4) for name, total in amounts.items()}


def _mib(size: Printed | None) -> float | None:
    return None if size is None else size.mib


def _kv(cache: CacheLoad, total: ev.KVCache) -> dict[str, Any]:
    return {
        "cache": cache.what, "cells": total.cells, "layers": total.layers,
        "n_seq_max": total.seqs, "n_stream": total.streams, "type_k": total.type_k,
        "type_v": total.type_v, "size_mib": total.size.mib, "k_mib": _mib(total.k),
        "v_mib": _mib(total.v), "per_device_mib": _amounts(cache.by_buffer),
    }  # fmt: skip


def _rs(cache: CacheLoad, total: ev.RecurrentState) -> dict[str, Any]:
    return {
        "cells": total.cells, "layers_printed": total.layers, "n_seq_max": total.seqs,
        "rs_seq": total.rs_seq, "size_mib": total.size.mib, "r_mib": _mib(total.r),
        "s_mib": _mib(total.s), "per_device_mib": _amounts(cache.by_buffer),
    }  # fmt: skip


def _refusal(each: Refusal) -> dict[str, Any]:
    return {
        "buffer": each.buffer, "part": each.part, "asked_bytes": each.asked_bytes,
        "free_bytes": each.free_bytes, "taken_bytes": each.taken_bytes,
        "computed_bytes": each.computed_bytes,
    }  # fmt: skip


def _claim(each: Claim) -> dict[str, Any]:
    return {
        "what": each.what, "printed_bytes": each.printed_bytes,
        "computed_bytes": each.computed_bytes, "cells": each.cells, "layers": each.layers,
        "width": each.width, "type": each.type,
    }  # fmt: skip


def _numbers(numbers: Numbers, language: str) -> dict[str, Any]:
    ledger = numbers.ledger
    return {
        "basis": numbers.basis,
        "note": say(numbers.note, language) if numbers.note else None,
        "ledger": ledger_json(ledger, language) if ledger and numbers.basis == "file" else None,
        "rows": [
            {
                "kind": row.kind, "name": row.name, "computed_bytes": row.computed,
                "logged_mib": [str(part) for part in row.measured.parts] if row.measured else [],
                "difference_bytes": row.difference,
            }
            for row in numbers.rows
        ],
        "options": [
            {"flags": list(option.flags), "context_bytes": option.context_bytes,
             "saved_bytes": option.saved_bytes}
            for option in numbers.options
        ],
        "plan": plan_json(numbers.plan, language) if numbers.plan else None,
    }  # fmt: skip
