"""What does not fit while a model is loaded: weights, cache, state, compute buffers, one block."""

from __future__ import annotations

from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.finding import (
    FAIR,
    HOST_RAM,
    LIKELY,
    POSSIBLE,
    SURE,
    UNIFIED,
    VRAM,
    Hit,
    Remedy,
    Rule,
    When,
)
from kvwise.diagnose.rules.asking import (
    asked_bytes,
    at_run,
    decoding,
    failed,
    free_of,
    pool_of,
    remedy,
    seen,
)
from kvwise.diagnose.rules.parts import EXPLICIT, part
from kvwise.diagnose.rules.remedies import (
    FEWER_DRAFTED,
    FEWER_LAYERS,
    FLASH,
    LIMIT_BINDS,
    ONE_SLOT,
    RAISE_LIMIT,
    SHORTER,
    SMALLER_UBATCH,
)
from kvwise.diagnose.stage import CACHE, COMPUTE, CONTEXT, WARMUP, WEIGHTS, Stage
from kvwise.engine import events as ev
from kvwise.text import template
from kvwise.units import MIB


def _when(what: str) -> When:
    def when(case: Case) -> Hit | None:
        parts = part(case)
        lines = parts.get(what)
        if not lines or case.has("buffer_limit") or _recovered(case, lines):
            return None
        named = any(each.code in EXPLICIT for each in lines)
        sure = SURE if named or _by_allocator(lines) else FAIR
        if len(parts) > 1 and not named:
            sure -= 0.2
        if what == "compute" and decoding(case, lines):
            sure = min(sure, FAIR)
        return Hit(sure, tuple(lines[:4]), pool=pool_of(case), remedies=_limit(case))

    return when


def _limit(case: Case) -> tuple[Remedy, ...]:
    """Was a block refused that the memory printed as free would have held? Then a limit binds."""
    free = free_of(case, "CPU")
    sizes = [size for each in failed(case) if (size := asked_bytes(each))]
    binds = sizes and free and pool_of(case) == HOST_RAM and max(sizes) < free // 2
    return (LIMIT_BINDS,) if binds else ()


def _by_allocator(lines: list[Seen]) -> bool:
    return any("gallocr" in each.fields.get("function", "") for each in lines)


def _recovered(case: Case, lines: list[Seen]) -> bool:
    """Did the load come to its end after all (another try, without pipeline parallelism)?"""
    return case.complete and not any(at_run(each) for each in lines) and not case.has("server_exit")


def _killed(confidence: float, *stages: Stage) -> When:
    """The kernel ends a process without a word of its own: where it stood tells what it wanted."""

    def when(case: Case) -> Hit | None:
        lines = [each for each in case.all("killed", "oom_killed") if each.stage in stages]
        return Hit(confidence, tuple(lines[:3]), memory=True, pool=HOST_RAM) if lines else None

    return when


def _state_dominates(case: Case) -> Hit | None:
    """Memory was short and the recurrent state is the largest thing beside the weights."""
    states = [
        cache.total
        for context in case.loaded.contexts
        for cache in context.caches
        if isinstance(cache.total, ev.RecurrentState)
    ]
    lines = failed(case) or case.all("gpu_oom", "vk_oom", "compute_alloc")
    if not states:
        return None
    state = max(states, key=lambda each: each.size.mib)
    caches = sum(each.size.mib for each in case.caches())
    copies = (state.seqs or 1) * (1 + (state.rs_seq or 0))
    asked = max([size for each in lines if (size := asked_bytes(each))], default=0) / MIB
    if copies < 2 or state.size.mib < max(caches, 256):
        return None
    fields = {"size": f"{state.size.mib:,.0f}", "slots": state.seqs or 1,
              "snapshots": state.rs_seq or 0}  # fmt: skip
    if lines and state.size.mib > asked:
        shown = (*case.all("state_line")[:1], *lines[:3])
        return Hit(0.97, shown, fields, memory=True, pool=pool_of(case))
    if case.excerpt and not lines:
        lines = case.all("state_line")
        return Hit(POSSIBLE, tuple(lines[:2]), fields, memory=True, pool=VRAM)
    return None


def _spent_guard(case: Case) -> Hit | None:
    lines = case.all("ram_short", "guard_stopped")
    if not lines:
        return None
    pool = HOST_RAM if lines[0].code == "ram_short" else VRAM
    return Hit(SURE, tuple(lines[:3]), memory=True, pool=pool, cause=_GUARD)


def _metal_status(case: Case) -> Hit | None:
    """A command buffer failed, and no line beside it says of what."""
    lines = [each for each in case.all("metal_failed") if each.fields.get("status") == "5"]
    if not lines or case.has("cuda", "device_lost"):
        return None
    return Hit(FAIR, tuple(lines[:4]))


_GUARD = template("the program found too little memory for the model's weights and did not start")


_SMALLER_QUANT = remedy("take a smaller quantization of the model")
_QUANT_CACHE = remedy(
    "keep the cache in q8_0: half the size, hardly a loss", "-ctk q8_0", "-ctv q8_0", "-fa on"
)
_EXPERTS = remedy("keep the experts of a mixture of experts on the host", "-ncmoe N")

RULES: tuple[Rule, ...] = (
    Rule(
        "state",
        "recurrent-state-oom",
        _when("rs"),
        template(
            "the recurrent state does not fit: it grows with slots and with the snapshots that "
            "speculative decoding keeps, not with the context"
        ),
        (
            ONE_SLOT,
            FEWER_DRAFTED,
            FEWER_LAYERS,
        ),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "state-dominates",
        "recurrent-state-oom",
        _state_dominates,
        template(
            "the recurrent state takes {size} MiB ({slots} slots, {snapshots} snapshots each), "
            "more than the cache: it is what does not fit"
        ),
        (
            ONE_SLOT,
            FEWER_DRAFTED,
            FEWER_LAYERS,
        ),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "weights",
        "weights-oom",
        _when("weights"),
        template("the model's weights do not fit the device"),
        (FEWER_LAYERS, _EXPERTS, _SMALLER_QUANT),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "weights-guard",
        "weights-oom",
        _spent_guard,
        _GUARD,
        (_SMALLER_QUANT, SHORTER, remedy("close what else uses the memory")),
        memory=True,
        pool=HOST_RAM,
    ),
    Rule(
        "weights-killed",
        "weights-oom",
        _killed(LIKELY, WEIGHTS),
        template(
            "the system ended the process while it read weights: host memory, or the limit of "
            "its container, is too small for the model"
        ),
        (
            _SMALLER_QUANT,
            remedy("let the file be mapped instead of read", "--mmap"),
            RAISE_LIMIT,
        ),
        memory=True,
        pool=HOST_RAM,
    ),
    Rule(
        "cache",
        "kv-alloc-oom",
        _when("kv"),
        template(
            "the KV cache does not fit: it grows with context and slots, whatever is used of it"
        ),
        (SHORTER, _QUANT_CACHE, ONE_SLOT, remedy("keep the cache on the host", "-nkvo")),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "cache-killed",
        "kv-alloc-oom",
        _killed(LIKELY, CONTEXT, CACHE),
        template(
            "the system ended the process while the cache was filled: it was promised more "
            "host memory than there is"
        ),
        (SHORTER, _QUANT_CACHE, ONE_SLOT),
        memory=True,
        pool=HOST_RAM,
    ),
    Rule(
        "compute",
        "compute-oom",
        _when("compute"),
        template(
            "weights and cache fit, the compute buffer does not: it grows with the physical "
            "batch, with the vocabulary, and without flash attention with the context"
        ),
        (
            FLASH,
            SMALLER_UBATCH,
            remedy(
                "leave one layer fewer on the GPU, so that the output layer stays on the host",
                "-ngl N",
            ),
            SHORTER,
            remedy(
                "on several GPUs, switch pipeline parallelism off at build time",
                "-DGGML_SCHED_MAX_COPIES=1",
            ),
        ),
        memory=True,
        pool=VRAM,
    ),
    Rule(
        "compute-killed",
        "compute-oom",
        _killed(FAIR, COMPUTE),
        template(
            "the system ended the process while compute buffers were made: host memory is short"
        ),
        (SMALLER_UBATCH, SHORTER),
        memory=True,
        pool=HOST_RAM,
    ),
    Rule(
        "warmup-killed",
        "compute-oom",
        _killed(FAIR, WARMUP),
        template(
            "the system ended the process in the first pass, when cache and buffers are touched "
            "for the first time: host memory is short"
        ),
        (SHORTER, SMALLER_UBATCH, _QUANT_CACHE),
        memory=True,
        pool=HOST_RAM,
    ),
    Rule(
        "output",
        "compute-oom",
        _when("output"),
        template("the output buffer does not fit: it holds a row of the vocabulary for every slot"),
        (ONE_SLOT, SMALLER_UBATCH),
        memory=True,
        pool=HOST_RAM,
    ),
    Rule(
        "working-set",
        "metal-working-set",
        seen("metal_oom", "working_set", confidence=SURE),
        template(
            "more was allocated than the working set that macOS grants the GPU: allocation only "
            "warns, the graph fails later"
        ),
        (
            _SMALLER_QUANT,
            FEWER_LAYERS,
            SHORTER,
            remedy("raise the limit, if the system can spare it", "sysctl iogpu.wired_limit_mb=N"),
        ),
        memory=True,
        pool=UNIFIED,
    ),
    Rule(
        "metal-status",
        "metal-working-set",
        _metal_status,
        template(
            "a command buffer failed on the Apple GPU, most often because the working set is "
            "exceeded"
        ),
        (SHORTER, _SMALLER_QUANT),
        memory=True,
        pool=UNIFIED,
    ),
)
