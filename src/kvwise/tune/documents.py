"""kvwise/tune/1."""

from __future__ import annotations

from typing import Any

from kvwise.options import to_argv
from kvwise.plan.commands import all_shells
from kvwise.text import say
from kvwise.tune.judge import Candidate
from kvwise.tune.knobs import Point, key_of
from kvwise.tune.run import Asked, Tuned

SCHEMA = "kvwise/tune/1"


def chosen(done: Tuned) -> Point:
    """What to use: the best, or the start."""
    return done.verdict.best.point if done.verdict.best else done.asked.space.start


def argv(asked: Asked, point: Point) -> list[str]:
    """The command of a point; the start leaves to the engine what the engine chooses alike."""
    launch = asked.base if point == asked.space.start else asked.launch(point)
    return [launch.tool, *to_argv(launch)]


def space_json(asked: Asked) -> dict[str, Any]:
    """The knobs, where they start, and how much of the grid will be measured."""
    return {
        "knobs": [{"name": knob.name, "values": list(knob.values)} for knob in asked.space.knobs],
        "start": dict(asked.space.start),
        "size": asked.space.size,
        "most_evaluations": asked.limits.most,
        "budget_s": asked.limits.seconds,
    }


def tuned_json(done: Tuned, language: str) -> dict[str, Any]:
    """Everything."""
    asked, verdict = done.asked, done.verdict
    meter, best = asked.meter, verdict.best
    return {
        "schema": SCHEMA,
        "model": {"name": meter.model.called, "path": meter.model.path,
                  "architecture": meter.model.architecture},
        "engine": meter.engine.as_json(),
        "request": {"prompt_tokens": meter.request.prompt, "predict_tokens": meter.request.answer},
        "space": space_json(asked),
        "evaluations": len(done.units),
        "spent_s": done.spent_s,
        "tried": [
            {"point": dict(point), "seconds": taken.seconds,
             "prompt_tokens_per_s": taken.prompt_per_s, "decode_tokens_per_s": taken.decode_per_s,
             "flags": list(taken.flags), "error": taken.error or None, "spent_s": taken.spent}
            for point, taken in done.tried
        ],
        "confirmed": [_candidate(each) for each in done.confirmed],
        "recommendation": {
            "change": best is not None,
            "point": dict(chosen(done)),
            "gain": best.gain if best else None,
            "gain_low": min(best.gains) if best else None,
            "gain_high": max(best.gains) if best else None,
            "noise": verdict.noise,
            "why": say(verdict.why, language),
        },
        "commands": all_shells(argv(asked, chosen(done))),
    }  # fmt: skip


def _candidate(each: Candidate) -> dict[str, Any]:
    return {
        "point": dict(each.point), "key": key_of(each.point), "seconds": list(each.seconds),
        "median_s": each.median, "spread": each.width, "gain": each.gain,
        "gains": list(each.gains), "prompt_tokens_per_s": each.prompt_per_s,
        "decode_tokens_per_s": each.decode_per_s, "flagged": each.flagged,
    }  # fmt: skip
