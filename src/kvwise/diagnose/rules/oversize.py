"""Caches that are larger than anybody needs."""

from __future__ import annotations

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import FAIR, LIKELY, VRAM, Hit, Rule
from kvwise.diagnose.rules.asking import failed, remedy
from kvwise.diagnose.rules.remedies import (
    ONE_SLOT,
)
from kvwise.text import template


def _swa_slots(case: Case) -> Hit | None:
    """A windowed cache that slots make larger than the cache of the whole context."""
    caches = case.caches()
    several = [each for each in caches if (each.seqs or 1) > 1 and (each.streams or 1) == 1]
    if len(several) < 2 or not (failed(case) or _only_caches(case)):
        return None
    windowed = min(several, key=lambda each: each.cells or 0)
    whole = max(several, key=lambda each: each.cells or 0)
    if windowed.cells == whole.cells or windowed.size.mib < whole.size.mib:
        return None
    slots = windowed.seqs or 1
    saved = windowed.size.mib * (slots - 1) / slots
    fields = {"size": f"{windowed.size.mib:,.0f}", "slots": slots, "saved": f"{saved:,.0f}"}
    lines = tuple(case.all("cache_line")[:2])
    return Hit(LIKELY if not failed(case) else 0.7, lines, fields, cause=_SWA)


def _only_caches(case: Case) -> bool:
    """Lines about caches that somebody picked out of a log: nothing of the load around them."""
    main = case.loaded.main
    weights = any(model.weights for model in case.loaded.models)
    return case.excerpt and not weights and not (main and main.facts)


_SWA = template(
    "the cache of the sliding window takes {size} MiB because every one of the {slots} slots has a "
    "window of its own, unified or not: one slot would save about {saved} MiB"
)


def _swa_full(case: Case) -> Hit | None:
    lines = case.all("swa_full")
    if not lines or (case.complete and not failed(case) and not case.has("gpu_oom")):
        return None
    return Hit(FAIR if not failed(case) else 0.7, tuple(lines[:2]))


RULES: tuple[Rule, ...] = (
    Rule(
        "window-per-slot",
        "kv-oversize",
        _swa_slots,
        _SWA,
        (ONE_SLOT,),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "full-window",
        "kv-oversize",
        _swa_full,
        template("every windowed layer keeps the whole context (--swa-full)"),
        (remedy("leave --swa-full away; checkpoints serve edited prompts", "--ctx-checkpoints 8"),),
        memory=True,
        pool=VRAM,
    ),
)
