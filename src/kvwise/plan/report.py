"""A plan as the JSON document `kvwise/plan/1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvwise.memory.report import ledger_json
from kvwise.plan.choose import Choice, Plan, shell_commands
from kvwise.plan.speed.document import speed_json
from kvwise.plan.why import details
from kvwise.text import say

if TYPE_CHECKING:
    from kvwise.plan.outlook import WhatIf

PLAN = "kvwise/plan/1"


def plan_json(
    plan: Plan, language: str = "en", what_if: Sequence[WhatIf] | None = None
) -> dict[str, Any]:
    """The plan as plain values, sentences in a language. `what_if` None = nobody asked."""
    goal = plan.goal
    return {
        "schema": PLAN,
        "goal": goal.purpose,
        "prompt_tokens": goal.prompt_tokens,
        "predict_tokens": goal.predict_tokens,
        "predict_tokens_max": plan.predict_tokens_max,
        "turns": goal.turns,
        "tokens_per_turn": goal.turn_tokens,
        "turns_max": plan.turns_max,
        "min_quality": goal.floor,
        "fixed": list(plan.fixed),
        "choice": _choice(plan.choice, language),
        "alternatives": [_choice(each, language) for each in plan.alternatives],
        "ladder": [ledger_json(each.ledger, language)["launch"] for each in plan.ladder],
        "steps": [say(each.step, language) if each.step else None for each in plan.ladder],
        "what_if": None if what_if is None else [_what_if(each, language) for each in what_if],
        "commands": shell_commands(plan.choice.launch),
    }


def _choice(choice: Choice, language: str) -> dict[str, Any]:
    ledger = ledger_json(choice.ledger, language)
    return {
        "launch": ledger["launch"],
        "slot_tokens": choice.slot_tokens,
        "ledger": ledger,
        "speed": speed_json(choice.speed, language),
        "quality": {"class": choice.quality, "basis": choice.quality_basis},
        "binds": choice.binds.as_json() if choice.binds else None,
        "costs": [
            cost.as_json() | {"sentence": say(cost.sentence, language)} for cost in choice.costs
        ],
        "trades": say(choice.trades, language) if choice.trades else None,
        "why": [say(sentence, language) for sentence in choice.why],
        "details": [say(sentence, language) for sentence in details(choice)],
    }


def _what_if(each: WhatIf, language: str) -> dict[str, Any]:
    return each.as_json() | {"sentence": say(each.sentence, language)}
