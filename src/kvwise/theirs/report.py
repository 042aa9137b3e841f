"""A comparison as part of the JSON document `kvwise/plan/1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvwise.errors import Refused
from kvwise.memory.report import ledger_json
from kvwise.text import Phrase, say
from kvwise.theirs import Given
from kvwise.theirs.compare import Change, Comparison


def comparison_json(
    given: Given, made: Comparison, notes: Sequence[Phrase], language: str = "en"
) -> dict[str, Any]:
    """`theirs` and `changes`, sentences in a language."""
    ledger, problem = made.ledger, made.problem
    return {
        "theirs": {
            "kind": given.kind,
            "name": given.found.name,
            "program": given.found.program,
            "argv": list(given.found.words),
            "environ": dict(given.found.environ),
            "ledger": ledger_json(ledger, language) if ledger else None,
            "fits": ledger.fits if ledger else False,
            "problem": {
                "type": problem.kind,
                "code": problem.code if isinstance(problem, Refused) else None,
                "message": say(problem.phrase, language),
            }
            if problem
            else None,
            "notes": [say(note, language) for note in notes],
        },
        "changes": [_change(each, language) for each in made.changes],
    }


def _change(each: Change, language: str) -> dict[str, Any]:
    return {
        "field": each.field,
        "flag": each.flag,
        "now": each.now,
        "advised": each.advised,
        "changes": each.changes,
        "kept": each.kept,
        "bytes": dict(each.bytes_by_buffer) if each.bytes_by_buffer is not None else None,
        "decode_ratio": None if each.decode is None else round(each.decode, 3),
        "prompt_ratio": None if each.prompt is None else round(each.prompt, 3),
        "why": say(each.why, language),
    }
