"""The last to speak: lines that no wording knows, judged by their plain words alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import HOST_RAM, WEAK, Hit, Rule, When
from kvwise.diagnose.rules.asking import speaks
from kvwise.diagnose.stage import CACHE, COMPUTE, CONTEXT, READY, START, WARMUP, WEIGHTS, Stage
from kvwise.text import template

_SURE = 0.5
"""Above the rules that only say that something was refused or crashed, below all others."""
_SAYS_LITTLE = frozenset({"hint_crash", "hint_refused"})
"""That it went wrong, and nothing of the reason."""
_CAUSE = template("no wording that kvwise knows; the words of the line point at this cause")

_UNSAID = template(
    "this is all that the log says: it failed, and no line gives the reason, so neither memory nor "
    "anything else can be named"
)

_KINDS: dict[str, tuple[str, ...]] = {
    "device-lost-timeout": ("hint_lost",),
    "rpc-unreachable": ("hint_rpc",),
    "split-missing": ("hint_split",),
    "spec-vocab": ("hint_draft",),
    "embed-ubatch": ("hint_batch",),
    "kv-slot-exhaustion": ("hint_cells",),
    "context-overflow": ("hint_context",),
    "fa-required": ("hint_flash",),
    "option-refused": ("hint_option", "hint_adapter", "hint_quantize"),
    "port-taken": ("hint_port",),
    "arch-unknown": ("hint_arch",),
    "missing-tensor": ("hint_tensor",),
    "file-corrupt": ("hint_corrupt",),
    "engine-incomplete": ("hint_library",),
    "request-refused": ("hint_request", "hint_state"),
    "file-missing": ("hint_file", "hint_download"),
    "wrong-kernel-build": ("hint_driver",),
    "hang": ("hint_hang",),
    "engine-crash": ("hint_crash",),
    "single-allocation-limit": ("hint_block",),
    "prompt-truncation": ("hint_cut",),
    "swa-reprocessing": ("hint_reprocess",),
    "vram-spill-slow": ("hint_spill",),
    "kernel-bug-garbage": ("hint_garbage",),
    "fa-auto-disabled": ("hint_flash_off",),
    "device-missing": ("hint_device",),
    "cache-type-refused": ("hint_cache_type",),
    "fit-crash": ("hint_fit",),
    "recurrent-state-oom": ("hint_oom_state",),
    "model-refused": ("hint_refused",),
}
_PARTS: dict[str, tuple[tuple[Stage, ...], str]] = {
    "weights-oom": ((START, WEIGHTS), "hint_oom_weights"),
    "kv-alloc-oom": ((CONTEXT, CACHE), "hint_oom_kv"),
    "compute-oom": ((COMPUTE, WARMUP), "hint_oom_compute"),
    "runtime-vram-growth": ((READY,), ""),
}
"""What does not fit: by how far the load was, or by what the line itself says."""
KIND_OF = {code: kind for kind, codes in _KINDS.items() for code in codes} | {
    "hint_oom": "weights-oom",
    **{named: kind for kind, (_, named) in _PARTS.items() if named},
}
"""Code of a hint -> the kind that it stands for when nothing is known of the load."""
_HOST = re.compile(r"\b(?:host|system|CPU|RAM)\b|bad.?alloc|ENOMEM", re.ASCII)


_OF_A_REQUEST = frozenset({"hint_context", "hint_cells", "hint_batch"})
"""What can only be wrong once the load is over."""


def _hinted(*codes: str) -> When:
    sure = WEAK if _SAYS_LITTLE.intersection(codes) else _SURE
    later = bool(_OF_A_REQUEST.intersection(codes))

    def when(case: Case) -> Hit | None:
        lines = [each for each in case.all(*codes) if speaks(case, each, later=later)]
        return Hit(sure, tuple(lines[:3])) if lines else None

    return when


def _short(stages: tuple[Stage, ...], named: str) -> When:
    """Memory of one part: named by the line, or reached by the load when it ended."""

    def when(case: Case) -> Hit | None:
        told = [*case.all(named), *(e for e in case.all("hint_oom") if e.stage in stages)]
        lines = [each for each in told if speaks(case, each)]
        if not lines:
            return None
        pool = HOST_RAM if _HOST.search(lines[0].text) else None
        return Hit(_SURE, tuple(lines[:3]), pool=pool)

    return when


def rules(others: Iterable[Rule]) -> tuple[Rule, ...]:
    """A rule for each hint; what helps is what helps against the kind itself."""
    first: dict[str, Rule] = {}
    others = tuple(others)
    for rule in others:
        first.setdefault(rule.kind, rule)
    rows = [
        (kind, _hinted(*codes), not _SAYS_LITTLE.intersection(codes))
        for kind, codes in _KINDS.items()
    ]
    rows += [(kind, _short(*part), True) for kind, part in _PARTS.items()]
    silent = {rule.kind: rule for rule in others if not rule.tells_why}
    return tuple(
        replace(first[kind], name=f"hint-{kind}", when=when, cause=_CAUSE)
        if why
        else replace(silent[kind], name=f"hint-{kind}", when=when, cause=_UNSAID)
        for kind, when, why in rows
    )
