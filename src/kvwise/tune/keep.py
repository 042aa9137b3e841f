"""Evaluations as measurements in the database: one per setting, a sample per evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.results import Measurement, Sample, engine_seen, machine_seen, model_seen, settings_seen
from kvwise.tune.knobs import Point
from kvwise.tune.measure import Taken
from kvwise.tune.run import Asked

UNIT = "tokens/s"
"""Of the request as a whole, read and generated: more is better, as in all other results."""


def measurements(asked: Asked, units: Sequence[tuple[Point, Taken]]) -> list[Measurement]:
    """Everything so far; saved again later, the fuller one stays."""
    machine, engine = machine_seen(asked.devices), engine_seen(asked.meter.engine)
    model, request = model_seen(asked.meter.model), asked.meter.request
    by_point: dict[Point, list[Taken]] = {}
    for point, taken in units:
        by_point.setdefault(point, []).append(taken)
    tokens = request.prompt + request.answer
    found = []
    for point, all_taken in by_point.items():
        good = [taken for taken in all_taken if taken.seconds is not None]
        found.append(
            Measurement(
                kind="tune",
                at=min(taken.at for taken in all_taken),
                machine=machine,
                engine=engine,
                model=model,
                settings=settings_seen(asked.launch(point)),
                test={
                    "metric": "request",
                    "n_prompt": request.prompt,
                    "n_gen": request.answer,
                    "depth": request.tests[1].depth,
                    "point": dict(point),
                },
                samples=tuple(
                    Sample(tokens / (taken.seconds or 1.0), UNIT, taken.at, taken.flags)
                    for taken in good
                ),
                figures={
                    "request_s": [taken.seconds for taken in good],
                    "prompt_tokens_per_s": [taken.prompt_per_s for taken in good],
                    "decode_tokens_per_s": [taken.decode_per_s for taken in good],
                    "error": next((taken.error for taken in all_taken if taken.error), None),
                },
                state="ok" if good else "failed",
            )
        )
    return found
