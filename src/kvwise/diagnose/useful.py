"""Which remedies of a rule are of use to this load: not those in effect, nor those for a GPU that
is not there. What the log does not show stays: better one remedy too many than one too few."""

from __future__ import annotations

from kvwise.diagnose.case import Case
from kvwise.diagnose.finding import HOST_RAM, Remedy

_TO_THE_HOST = frozenset({"-nkvo", "-ngl N", "-ncmoe N"})
"""They take from the GPU and give to the host: no help where the host is what is short."""
_FOR_GPUS = _TO_THE_HOST | {"-DGGML_SCHED_MAX_COPIES=1"}
_NOT_GPUS = ("CPU", "BLAS")
_UNQUANTIZED = frozenset({"f16", "bf16", "f32"})


def useful(remedies: tuple[Remedy, ...], case: Case, pool: str | None) -> tuple[Remedy, ...]:
    """Those that can change something, in their order; `pool` is the memory that is short."""
    dropped = _in_effect(case)
    if pool == HOST_RAM:
        dropped |= _TO_THE_HOST
    if without_gpu(case):
        dropped |= _FOR_GPUS
    return tuple(each for each in remedies if " ".join(each.flags) not in dropped)


def without_gpu(case: Case) -> bool:
    """Does the engine's own list of devices show that it has no GPU?"""
    listed = case.loaded.device_list
    only_cpus = all(each.name.startswith(_NOT_GPUS) for each in listed)
    return bool(listed) and only_cpus and not case.loaded.devices


def cache_types(case: Case) -> tuple[str, ...]:
    """Types of the cache as the load printed them, else as `kvwise run` began it; () if unsaid."""
    for cache in case.caches():
        if cache.type_k and cache.type_v:
            return cache.type_k, cache.type_v
    types = tuple(case.settings.get(name) for name in ("type_k", "type_v"))
    return tuple(str(each) for each in types) if all(types) else ()


def _in_effect(case: Case) -> frozenset[str]:
    found = set()
    types = cache_types(case)
    if types and not _UNQUANTIZED.intersection(types):
        found.add("-ctk q8_0 -ctv q8_0 -fa on")
    if case.fact("n_seq_max") == 1:
        found.add("-np 1")
    main = case.loaded.main
    if main and main.facts.get("flash_attn") in ("enabled", "1"):
        found.add("-fa on")
    if 0 < (case.fact("n_ubatch") or 0) <= 256:
        found.add("-ub 256")
    return frozenset(found)
