"""A verification as the JSON document `kvwise/verify/1`."""

from __future__ import annotations

from typing import Any

from kvwise.memory.report import ledger_json
from kvwise.text import say
from kvwise.tiers import Tiers, tiers_json
from kvwise.verify.compare import Row
from kvwise.verify.run import Attempt, Verification

SCHEMA = "kvwise/verify/1"


def verification_json(verification: Verification, language: str = "en") -> dict[str, Any]:
    """Plain values; sizes in bytes, sentences in a language."""
    engine = verification.engine
    measured = verification.measured
    return {
        "schema": SCHEMA,
        "engine": {
            "kind": engine.kind,
            "path": engine.path or None,
            "build": engine.build,
            "version": engine.version,
        },
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
        "attempts": [_attempt(attempt, language) for attempt in verification.attempts],
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
        "log": attempt.log,
    }
