"""kvwise/speculate/1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kvwise.memory.ledger import Ledger
from kvwise.options import to_argv
from kvwise.plan.commands import all_shells
from kvwise.speculate.judge import Range, Summary
from kvwise.speculate.memory import Sum, measured_sum, rows, sum_of
from kvwise.speculate.run import Asked, Speculation
from kvwise.speculate.vocabulary import CHECKS, Compatibility
from kvwise.text import Phrase, say

SCHEMA = "kvwise/speculate/1"


def check_json(
    asked: Asked, warnings: Sequence[Phrase], memory: Ledger | None, language: str
) -> dict[str, Any]:
    """What is known before anything is loaded."""
    return {
        "schema": SCHEMA,
        "model": _model(asked, draft=False),
        "draft": _model(asked, draft=True),
        "compatibility": compatibility_json(asked.compatibility, language),
        "warnings": [say(each, language) for each in warnings],
        "memory": {"computed": None if memory is None else _sum(sum_of(memory))},
    }


def speculation_json(
    done: Speculation, warnings: Sequence[Phrase], language: str
) -> dict[str, Any]:
    """Everything."""
    asked, best = done.asked, done.verdict.best
    largest = done.computed[asked.largest.key]
    return {
        **check_json(asked, warnings, largest, language),
        "engine": asked.engine.as_json() | {"threads": done.threads},
        "prompts": [{"name": each.name, "digest": each.digest} for each in asked.prompts],
        "n_predict": asked.n_predict,
        "rounds": asked.rounds,
        "chat_template": asked.chat,
        "memory": {
            "variant": asked.largest.key,
            "computed": _sum(sum_of(largest)),
            "simulated": _sum(sum_of(done.simulated)) if done.simulated else None,
            "simulated_why_not": say(done.unsimulated, language) if done.unsimulated else None,
            "measured": _sum(_measured(done, asked.largest.key)),
        },
        "variants": [_summary(done, each, language) for each in done.summaries],
        "recommendation": {
            "speculate": best is not None,
            "variant": best.variant.key if best else None,
            "kind": best.variant.kind if best else None,
            "depth": best.variant.depth if best else None,
            "gain": best.gain.median - 1 if best and best.gain else None,
            "flags": flags(done),
            "why": [say(each, language) for each in done.verdict.why],
        },
        "commands": all_shells(argv(done)),
    }  # fmt: skip


def compatibility_json(found: Compatibility | None, language: str) -> dict[str, Any] | None:
    """Every check with its values; None where no vocabularies have to agree."""
    if found is None:
        return None
    failed = found.failed
    return {
        "compatible": found.holds,
        "failed": failed.subject if failed else None,
        "source": CHECKS,
        "checks": [
            {
                "check": each.subject, "target": each.target, "draft": each.draft,
                "agrees": each.agrees, "rule": say(each.sentence, language),
                "first_difference": None if each.difference is None else {
                    "token": each.difference[0], "target": each.difference[1],
                    "draft": each.difference[2],
                },
            }
            for each in found.checks
        ],
    }  # fmt: skip


def argv(done: Speculation) -> list[str]:
    """The command of what is recommended."""
    best = done.verdict.best or done.plain
    launch = done.asked.launch_of(best.variant)
    return [launch.tool, *to_argv(launch)]


def flags(done: Speculation) -> list[str]:
    """What the recommendation adds to a launch without speculation."""
    best = done.verdict.best
    if best is None:
        return []
    words = ["--spec-type", best.variant.kind]
    launch = done.asked.launch_of(best.variant)
    if launch.model_draft:
        words = ["-md", launch.model_draft, *words]
    if best.variant.depth is not None:
        words += ["--spec-draft-n-max", str(best.variant.depth)]
    return words


def _model(asked: Asked, *, draft: bool) -> dict[str, Any] | None:
    model = asked.draft if draft else asked.model
    if model is None:
        return None
    return {
        "name": model.called, "architecture": model.architecture, "path": model.path,
        "tensor_bytes": model.header.tensor_bytes, "n_params": model.header.n_params,
        "n_vocab": model.n_vocab,
    }  # fmt: skip


def _measured(done: Speculation, key: str) -> Sum | None:
    summary = next(each for each in done.summaries if each.variant.key == key)
    unit = next((each for each in summary.units if each.memory), None)
    return measured_sum(unit) if unit else None


def _sum(found: Sum | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "model_bytes": found.model, "draft_bytes": found.draft,
        "speculation_bytes": found.speculation, "total_bytes": found.total,
    }  # fmt: skip


def _range(found: Range | None) -> dict[str, float] | None:
    return None if found is None else asdict(found)


def _summary(done: Speculation, summary: Summary, language: str) -> dict[str, Any]:
    key = summary.variant.key
    unit = next((each for each in summary.units if each.memory), None)
    ledger = done.computed[key]
    return {
        "variant": key,
        "kind": summary.variant.kind,
        "depth": summary.variant.depth,
        "state": summary.state,
        "why": say(summary.why, language) if summary.why else None,
        "proof": _proof(summary),
        "rounds": summary.rounds,
        "flagged": summary.flagged,
        "decode_tokens_per_s": _range(summary.speed),
        "answer_tokens_per_s": _range(summary.whole),
        "gain": _range(summary.gain),
        "answer_gain": _range(summary.whole_gain),
        "drafted": summary.drafted,
        "accepted": summary.accepted,
        "acceptance_rate": summary.rate,
        "accepted_length": summary.accepted_length,
        "tokens_per_target_pass": summary.per_pass,
        "target_passes_per_1000_tokens": summary.passes,
        "acceptance_by_position": list(summary.by_position),
        "decode_tokens_per_s_by_prompt": dict(summary.by_prompt),
        "same_text": summary.same_text,
        "divergences": [asdict(each) for each in summary.divergences],
        "memory": {
            "computed": _sum(sum_of(ledger)),
            "measured": _sum(measured_sum(unit)) if unit else None,
            "buffers": [asdict(row) for row in rows(ledger, unit)] if unit else [],
            "peak_rss_bytes": max((each.peak_rss_bytes for each in summary.units), default=0),
        },
        "samples": [
            {"round": each.round, "at": each.at, "decode_tokens_per_s": each.decode_per_s,
             "answer_tokens_per_s": each.whole_per_s, "flags": list(each.flags),
             "others_cores": each.load.others if each.load else None, "load_s": each.load_s}
            for each in summary.units if each.error is None
        ],
        "findings": [found for each in summary.units for found in each.findings][:3],
    }  # fmt: skip


def _proof(summary: Summary) -> dict[str, Any] | None:
    unit = next((each for each in summary.units if each.error is None), None)
    if unit is None:
        return None
    drafted = sum(answer.drafted for answer in unit.answers)
    return {
        "log": unit.proof.implementation or None, "slots": unit.proof.slots,
        "drafted": drafted, "reason": unit.proof.reason or None,
    }  # fmt: skip
