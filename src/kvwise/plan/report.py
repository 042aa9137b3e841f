"""A plan as the JSON document `kvwise/plan/1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvwise.memory.placement import HOST
from kvwise.memory.report import ledger_json
from kvwise.plan.choose import Choice, Plan, shell_commands
from kvwise.plan.speed import Range, Speed
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


def speed_json(speed: Speed, language: str = "en") -> dict[str, Any]:
    """The `speed` object: tokens per second to compare by, their ranges, what they stand on."""
    return {
        "prompt_tokens_per_s": speed.prompt_tokens_per_s,
        "decode_tokens_per_s": speed.decode_tokens_per_s,
        "prompt_range": _range(speed.prompt),
        "decode_range": _range(speed.decode),
        "basis": speed.basis,
        "prompt_basis": speed.prompt_basis,
        "depth": speed.depth,
        "read_bytes_gpu": speed.read_bytes_gpu,
        "read_bytes_host": speed.read_bytes_host,
        "devices": [
            {
                "device": None if part.device == HOST else part.device,
                "host": part.device == HOST,
                "weights_read_bytes": part.weights,
                "cache_read_bytes": part.cache,
                "flops": part.matrix_flops + part.output_flops,
                "attention_flops": part.attention_flops,
            }
            for part in speed.parts
        ],
        "bound_by": say(speed.bound_by, language) if speed.bound_by else None,
        "stands_on": [say(each, language) for each in speed.stands_on],
        "penalties": [
            {
                "prompt": list(each.prompt),
                "decode": list(each.decode),
                "why": say(each.why, language),
                "source": say(each.source, language),
            }
            for each in speed.penalties
        ],
    }


def _range(found: Range | None) -> dict[str, float] | None:
    if found is None:
        return None
    return {"low": round(found.low, 2), "high": round(found.high, 2)}


def _what_if(each: WhatIf, language: str) -> dict[str, Any]:
    return each.as_json() | {"sentence": say(each.sentence, language)}
