"""Which part of a load an allocation was for: weights, cache, state, compute or output buffer."""

from __future__ import annotations

from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.rules.asking import at_run, failed
from kvwise.diagnose.stage import CACHE, COMPUTE, CONTEXT, WEIGHTS

EXPLICIT = {
    "kv_alloc": "kv", "rs_alloc": "rs", "weights_alloc": "weights", "compute_alloc": "compute",
    "output_alloc": "output",
}  # fmt: skip


def part(case: Case) -> dict[str, list[Seen]]:
    """Which part failed: its lines. A line that names the part decides; else where it stood."""
    found: dict[str, list[Seen]] = {}
    named = [each for each in case.all(*EXPLICIT) if not each.fitting]
    for each in named:
        found.setdefault(EXPLICIT[each.code], []).append(each)
    for each in failed(case):
        what = _guess(case, each, [one for one in named if one.line >= each.line])
        if what:
            found.setdefault(what, []).append(each)
    return {what: sorted(lines, key=lambda each: each.line) for what, lines in found.items()}


def _guess(case: Case, each: Seen, named: list[Seen]) -> str:
    function = each.fields.get("function", "")
    if "gallocr" in function:
        return "compute"
    if named or at_run(each):
        return EXPLICIT[named[0].code] if named else ""
    if each.stage == CACHE and _cache_done(case):
        return "compute"
    where = {WEIGHTS: "weights", CONTEXT: "kv", CACHE: "kv", COMPUTE: "compute"}.get(each.stage)
    made = case.has("context_made", "context_init") and not case.has("model_load")
    return where or ("compute" if made else "weights")


def _cache_done(case: Case) -> bool:
    main = case.loaded.main
    return bool(main and main.caches and not main.pending)
