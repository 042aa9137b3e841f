"""Why an engine's run failed, for whoever started it: bench, digest, verify, run, a command.

findings = why_failed(log, outcome, model=model, launch=launch)
raise failure_error(findings, outcome.sentence, log=log)      # for a person
row["findings"] = findings_json(findings, language)           # kvwise/diagnosis/1 shapes
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvwise.diagnose.document import finding_json
from kvwise.diagnose.finding import Diagnosis, Finding, Remedy
from kvwise.diagnose.read import diagnose
from kvwise.diagnose.rules import speed
from kvwise.engine.outcome import Outcome
from kvwise.errors import EngineError
from kvwise.options import to_argv
from kvwise.text import Phrase, phrase

if TYPE_CHECKING:
    from kvwise.device import Device, Host
    from kvwise.gguf.model import Model
    from kvwise.launch import Launch

LEAST = 0.5
"""Confidence below which a finding is not told to somebody who did not ask for a diagnosis."""

_SHOWN_REMEDIES = 2
_ONLY_SLOWER = frozenset(rule.name for rule in speed.RULES)
"""Such a line is no reason for a failure of whoever asked an engine that goes on well."""


def why_failed(
    log: str | Path | Sequence[str] | None,
    outcome: Outcome | None = None,
    *,
    exit_code: int | None = None,
    model: Model | None = None,
    launch: Launch | None = None,
    devices: Sequence[Device] = (),
    host: Host | None = None,
    least: float = LEAST,
) -> tuple[Finding, ...]:
    """The causes that a failed run's log shows, surest first; empty if it shows none.

    `log` is the path of a kept log, or its lines; where there is none (None, or no such file) the
    last lines of `outcome` stand for it. `exit_code` is for runs without an `Outcome`. With the
    model and its launch, a cause that is a lack of memory gets settings that fit as its first
    remedy. Never raises for a log that cannot be read: what failed is the run.
    """
    code = exit_code if exit_code is not None or outcome is None else outcome.code
    lines = _lines(log, outcome)
    if not lines and code is None:
        return ()
    try:
        found = diagnose(lines, exit_code=code, model=model, launch=launch, devices=devices,
                         host=host, numbers=model is not None)  # fmt: skip
    except OSError:
        found = diagnose(outcome.tail if outcome else (), exit_code=code, numbers=False)
    ended_well = code is None or code == 0
    sure = tuple(
        each for each in found.blamed
        if each.confidence >= least and each.reason_known
        and not (ended_well and each.rule in _ONLY_SLOWER)
    )  # fmt: skip
    return (_with_plan(sure[0], found), *sure[1:]) if sure else ()


def sentences(finding: Finding) -> list[Phrase]:
    """The cause, and what to do about it."""
    told = [remedy_phrase(each) for each in finding.remedies[:_SHOWN_REMEDIES]]
    return [finding.cause, *(phrase("what to do: {what}", what=each) for each in told)]


def remedy_phrase(remedy: Remedy) -> Phrase:
    """A remedy with its flags."""
    if not remedy.flags:
        return remedy.text
    return phrase("{text}: {flags}", text=remedy.text, flags=" ".join(remedy.flags))


def findings_json(findings: Sequence[Finding], language: str = "en") -> list[dict[str, Any]]:
    """The findings as kvwise/diagnosis/1 has them."""
    return [finding_json(each, language) for each in findings]


def failure_error(
    findings: Sequence[Finding], otherwise: Phrase, *, log: str | Path | None = None
) -> EngineError:
    """The error to raise: the surest cause and its remedy; `otherwise` where nothing is known."""
    first = findings[0] if findings else None
    fields: dict[str, object] = {"why": first.cause if first else otherwise}
    hint: str | None = None
    if first and first.remedies:
        hint, fields["what"] = "{what}", remedy_phrase(first.remedies[0])
    elif log:
        hint, fields["log"] = "its log is in {log}", str(log)
    return EngineError("{why}", hint=hint, **fields)


def _lines(
    log: str | Path | Sequence[str] | None, outcome: Outcome | None
) -> Path | tuple[str, ...]:
    if isinstance(log, str | Path):
        path = Path(log)
        if str(log) and path.is_file():
            return path
    elif log:
        return tuple(log)
    return outcome.tail if outcome else ()


def _with_plan(finding: Finding, found: Diagnosis) -> Finding:
    """Settings that fit, before all other remedies."""
    plan = found.numbers.plan if found.numbers else None
    if plan is None or not finding.memory_is_the_cause:
        return finding
    words = to_argv(replace(plan.choice.launch, model=""))
    fits = Remedy(phrase("settings that fit"), (shlex.join(words),))
    return replace(finding, remedies=(fits, *finding.remedies))
