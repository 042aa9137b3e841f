"""A verification as the JSON document `kvwise/verify/1`."""

from __future__ import annotations

from typing import Any

from kvwise.memory.report import ledger_json
from kvwise.text import say
from kvwise.tiers import Tiers, tiers_json
from kvwise.verify.attempt import Attempt, MemoryUse
from kvwise.verify.compare import Row
from kvwise.verify.run import Verification
from kvwise.verify.summary import Cause, Spread, Summary, summarise

SCHEMA = "kvwise/verify/1"


def verification_json(verification: Verification, language: str = "en") -> dict[str, Any]:
    """Plain values; sizes in bytes, sentences in a language."""
    engine = verification.engine
    measured = verification.measured
    return {
        "schema": SCHEMA,
        "engine": engine.as_json(),
        "argv": list(verification.argv),
        "differs": verification.differs,
        "runs": len(verification.attempts),
        "failures": verification.failures,
        "lines": [_row(row) for row in verification.rows],
        "computed": ledger_json(verification.computed, language),
        "simulated": _simulated(verification.simulated, language),
        "not_simulated": (
            say(verification.unsimulated, language) if verification.unsimulated else None
        ),
        "measured": ledger_json(measured, language) if measured else None,
        "engine_misjudges": [row.name for row in verification.misjudged],
        "summary": _summary(summarise(verification), language),
        "tokens_per_slot": verification.fill,
        "attempts": [_attempt(attempt, language) for attempt in verification.attempts],
    }


def _summary(found: Summary, language: str) -> dict[str, Any]:
    """Spreads are `{"min", "median", "max", "runs"}`, None where nothing was measured."""
    return {
        "failed": found.failed,
        "causes": [_cause(cause, language) for cause in found.causes],
        "runs_that_differ": found.differing,
        "load_s": _spread(found.load_s),
        "seconds": _spread(found.seconds),
        "prompt_tokens_per_s": _spread(found.prompt_per_s),
        "decode_tokens_per_s": _spread(found.decode_per_s),
        "peak_rss_bytes": _spread(found.peak_bytes),
        "own_bytes": _spread(found.own_bytes),
        "growth_bytes": found.growth,
        "grows": found.grows,
        "device_growth_bytes": found.card_growth,
        "contended_runs": found.contended,
        "busy_cores": round(found.busy_cores, 2),
        "threads": found.threads,
        "cores": found.cores,
    }


def _spread(found: Spread | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"min": found.least, "median": found.median, "max": found.most, "runs": found.count}


def _cause(cause: Cause, language: str) -> dict[str, Any]:
    return {
        "ending": cause.ending,
        "message": say(cause.why, language),
        "runs": [number + 1 for number in cause.runs],
    }


def _simulated(beside: Tiers | None, language: str) -> dict[str, Any] | None:
    if beside is None:
        return None
    ledger = ledger_json(beside.simulation.ledger, language)
    return ledger | {"beside": tiers_json(beside)}


def _row(row: Row) -> dict[str, Any]:
    measured = row.measured
    return {
        "kind": row.kind,
        "name": row.name,
        "computed_bytes": row.computed,
        "measured_bytes": row.measured_bytes if measured else None,
        "measured_mib": [str(part) for part in measured.parts] if measured else None,
        "measured_low_bytes": measured.low if measured else None,
        "measured_high_bytes": measured.high if measured else None,
        "simulated_bytes": row.simulated.bytes if row.simulated else None,
        "difference_bytes": row.difference,
        "decisive": row.decisive,
    }


def _attempt(attempt: Attempt, language: str) -> dict[str, Any]:
    outcome = attempt.outcome
    return {
        "number": attempt.number,
        "failed": attempt.failed,
        "error": say(attempt.error, language) if attempt.error else None,
        "ending": str(outcome.ending) if outcome else None,
        "exit_code": outcome.code if outcome else None,
        "seconds": round(attempt.seconds, 3),
        "text": attempt.text,
        "tokens": attempt.tokens,
        "prompt_tokens": attempt.prompt_tokens,
        "prompt_tokens_per_s": attempt.prompt_per_s,
        "decode_tokens_per_s": attempt.decode_per_s,
        "peak_rss_bytes": attempt.peak_rss_bytes,
        "load_s": attempt.load_s,
        "busy_cores": round(attempt.busy_cores, 2),
        "memory": _memory(attempt.memory),
        "log": attempt.log,
    }


def _memory(found: MemoryUse | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "ready_bytes": found.ready,
        "full_bytes": found.full,
        "own_bytes": found.own,
        "available_before_bytes": found.available,
        "devices": [
            {
                "name": card.name,
                "free_before_bytes": card.free_before,
                "free_full_bytes": card.free_full,
            }
            for card in found.cards
        ],
    }
