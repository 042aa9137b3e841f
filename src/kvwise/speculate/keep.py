"""Speculation as measurements in the database: one per variant, a sample per round."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from kvwise.results import Measurement, Sample, engine_seen, machine_seen, model_seen, settings_seen
from kvwise.speculate.attempt import Measured
from kvwise.speculate.judge import Summary, summarise
from kvwise.speculate.memory import measured_sum
from kvwise.speculate.run import Asked

UNIT = "tokens/s"


def measurements(asked: Asked, units: Sequence[Measured]) -> list[Measurement]:
    """What is known so far; saved again after each round, the fuller one stays."""
    machine, engine, model = (
        machine_seen(asked.devices), engine_seen(asked.engine), model_seen(asked.model)
    )  # fmt: skip
    draft = model_seen(asked.draft) if asked.draft else None
    seen = {unit.key for unit in units}
    if asked.variants[0].key not in seen:
        return []
    found = []
    for summary in summarise(asked.variants, units):
        if not summary.units:
            continue
        launch = asked.launch_of(summary.variant)
        with_draft = draft.fingerprint if draft and launch.model_draft else None
        first = min(unit.at for unit in summary.units)
        found.append(
            Measurement(
                kind="speculation",
                at=first,
                machine=machine,
                engine=engine,
                model=model,
                settings=settings_seen(launch),
                test={
                    "metric": "decode",
                    "variant": summary.variant.key,
                    "draft": with_draft,
                    "n_gen": asked.n_predict,
                    "chat": asked.chat,
                    "text": text_digest(asked),
                    "threads": asked.threads,
                },
                samples=tuple(_sample(unit) for unit in summary.units if unit.error is None),
                figures=_figures(summary),
                findings=tuple(each for unit in summary.units for each in unit.findings)[:3],
                state="failed" if summary.state in ("failed", "off") else "ok",
            )
        )
    return found


def text_digest(asked: Asked) -> str:
    """Of all prompts in their order."""
    digests = " ".join(prompt.digest for prompt in asked.prompts)
    return hashlib.sha256(digests.encode()).hexdigest()[:16]


def _sample(unit: Measured) -> Sample:
    return Sample(unit.decode_per_s, UNIT, unit.at, unit.flags)


def _figures(summary: Summary) -> dict[str, object]:
    first = next((unit for unit in summary.units if unit.memory), None)
    total = measured_sum(first) if first else None
    return {
        "state": summary.state,
        "why": str(summary.why) if summary.why else None,
        "drafted": summary.drafted,
        "accepted": summary.accepted,
        "accepted_length": summary.per_pass,  # tokens per pass of the target (results/names.py)
        "accepted_per_draft": summary.accepted_length,
        "passes_per_1000": summary.passes,
        "whole_tokens_per_s": summary.whole.median if summary.whole else None,
        "same_text": summary.same_text,
        "model_bytes": total.model if total else None,
        "draft_bytes": total.draft if total else None,
        "peak_rss_bytes": max((unit.peak_rss_bytes for unit in summary.units), default=0),
    }
