"""The last to speak: lines that no wording knows, judged by their plain words alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import WEAK, Hit, Rule, When
from kvwise.diagnose.stage import CACHE, COMPUTE, CONTEXT, READY, START, WARMUP, WEIGHTS, Stage
from kvwise.text import template

_SURE = 0.5
"""Above the rules that only say that something was refused or crashed, below all others."""
_CAUSE = template("no wording that kvwise knows; the words of the line point at this cause")

_KINDS = {
    "hint_lost": "device-lost-timeout",
    "hint_split": "split-missing",
    "hint_draft": "spec-vocab",
    "hint_batch": "embed-ubatch",
    "hint_cells": "kv-slot-exhaustion",
    "hint_context": "context-overflow",
    "hint_flash": "fa-required",
    "hint_option": "option-refused",
    "hint_port": "port-taken",
    "hint_arch": "arch-unknown",
    "hint_tensor": "missing-tensor",
    "hint_corrupt": "file-corrupt",
    "hint_library": "engine-incomplete",
    "hint_file": "file-missing",
    "hint_driver": "wrong-kernel-build",
    "hint_hang": "hang",
    "hint_crash": "engine-crash",
}
_PARTS: dict[str, tuple[Stage, ...]] = {
    "weights-oom": (START, WEIGHTS),
    "kv-alloc-oom": (CONTEXT, CACHE),
    "compute-oom": (COMPUTE, WARMUP),
    "runtime-vram-growth": (READY,),
}
"""What does not fit, by how far the load was."""


def _hinted(code: str, stages: tuple[Stage, ...] = ()) -> When:
    sure = WEAK if code == "hint_crash" else _SURE

    def when(case: Case) -> Hit | None:
        went_on = case.complete and not case.has("crashed", "assert")
        lines = [
            each
            for each in case.all(code)
            if (not stages or each.stage in stages)
            and (each.level == "E" or (each.level is None and not went_on))
        ]
        return Hit(sure, tuple(lines[:3])) if lines else None

    return when


def rules(others: Iterable[Rule]) -> tuple[Rule, ...]:
    """A rule for each hint; what helps is what helps against the kind itself."""
    first: dict[str, Rule] = {}
    for rule in others:
        first.setdefault(rule.kind, rule)
    rows = [(kind, _hinted(code)) for code, kind in _KINDS.items()]
    rows += [(kind, _hinted("hint_oom", stages)) for kind, stages in _PARTS.items()]
    return tuple(
        replace(first[kind], name=f"hint-{kind}", when=when, cause=_CAUSE) for kind, when in rows
    )
