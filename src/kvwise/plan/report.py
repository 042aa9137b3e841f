"""A plan as the JSON document `kvwise/plan/1`."""

from __future__ import annotations

from typing import Any

from kvwise.memory.report import ledger_json
from kvwise.plan.choose import Choice, Plan, shell_commands
from kvwise.text import say

PLAN = "kvwise/plan/1"


def plan_json(plan: Plan, language: str = "en") -> dict[str, Any]:
    """The plan as plain values, sentences in a language."""
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
        "commands": shell_commands(plan.choice.launch),
    }


def _choice(choice: Choice, language: str) -> dict[str, Any]:
    ledger = ledger_json(choice.ledger, language)
    speed = choice.speed
    return {
        "launch": ledger["launch"],
        "slot_tokens": choice.slot_tokens,
        "ledger": ledger,
        "speed": {
            "prompt_tokens_per_s": speed.prompt_tokens_per_s,
            "decode_tokens_per_s": speed.decode_tokens_per_s,
            "basis": speed.basis,
            "depth": speed.depth,
            "read_bytes_gpu": speed.read_bytes_gpu,
            "read_bytes_host": speed.read_bytes_host,
        },
        "quality": {"class": choice.quality, "basis": "cache types"},
        "why": [say(sentence, language) for sentence in choice.why],
    }
