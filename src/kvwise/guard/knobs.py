"""The knobs of the ladder: what each one moves, and how far, gentlest change first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvwise.guard.case import Case
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.plan.candidate import CELLS
from kvwise.plan.goal import Goal
from kvwise.plan.offload import levels
from kvwise.plan.quality import CLASSES, meets, quality_of

_SMALLEST_UBATCH = 64
_SMALLEST_CONTEXT = 512  # tokens per slot, when nobody said what is needed
_CONTEXTS = (15, 14, 12, 10, 8, 6, 4, 2, 1)  # sixteenths of the context to try
_STEADY_TYPES = (("q8_0", "q8_0"), ("q4_0", "q4_0"))
"""K and V alike: what every build's flash attention can do."""


@dataclass(frozen=True, slots=True)
class Around:
    """What a move may look at: the request, the failed launch's ledger, and the fixed fields."""

    case: Case
    ledger: Ledger | None
    fixed: frozenset[str]


def ubatches(around: Around, start: Launch) -> Iterator[dict[str, Any]]:
    """`-ub`, halved."""
    model = around.case.model
    if start.embeddings or (model and not model.causal_attn):
        return  # an encoder must hold its whole text in one micro-batch
    size = min(start.n_ubatch, start.n_batch) // 2
    while size >= _SMALLEST_UBATCH:
        yield {"n_ubatch": size}
        size //= 2


def types(around: Around, start: Launch) -> Iterator[dict[str, Any]]:
    """Smaller cache types that the goal's quality allows."""
    if start.flash_attn == "off" and "flash_attn" in around.fixed:
        return  # a quantized V cache needs it
    floor = (around.case.goal or Goal()).floor
    now = quality_of(start.type_k, start.type_v)
    for k, v in _STEADY_TYPES:
        quality = quality_of(k, v)
        if CLASSES.index(quality) > CLASSES.index(now) and meets(quality, floor):
            yield {"type_k": k, "type_v": v}


def contexts(around: Around, start: Launch) -> Iterator[dict[str, Any]]:
    """Shorter contexts, in whole blocks per slot, down to what is needed."""
    context = around.ledger.context.n_ctx if around.ledger else start.n_ctx
    if start.n_ctx:
        context = start.n_ctx
    slots = 1 if start.kv_unified else start.n_seq_max
    unit, least = CELLS * slots, _least(around, start) * slots
    tried = {context}
    for sixteenths in _CONTEXTS:
        tokens = max(context * sixteenths // 16 // unit * unit, -(-least // unit) * unit)
        if tokens not in tried and tokens < context:
            tried.add(tokens)
            yield {"n_ctx": tokens}


def _least(around: Around, start: Launch) -> int:
    goal, model = around.case.goal, around.case.model
    if goal is None or model is None:
        return _SMALLEST_CONTEXT
    return goal.least(model.n_ctx_train or start.n_ctx)


def layers(around: Around, start: Launch) -> Iterator[dict[str, Any]]:
    """Fewer experts, then fewer layers on the GPUs."""
    model = around.case.model
    if model is None:
        if start.n_gpu_layers > 0:
            yield {"n_gpu_layers": start.n_gpu_layers * 7 // 8}
        return
    if around.case.goal and around.case.goal.never_offload:
        return
    steps = [  # whole layers of experts: halves of one are what a plan is for
        step
        for step in levels(model, len(around.case.devices), around.fixed)
        if "override_tensor" not in step
    ]
    on_gpu = around.ledger.placement.gpu_layers if around.ledger else start.n_gpu_layers
    below = [
        step
        for step in steps
        if (step.get("n_cpu_moe", 0), -step.get("n_gpu_layers", 0)) > (start.n_cpu_moe, -on_gpu)
    ]
    yield from map(dict, below)


MOVES: Mapping[str, Callable[[Around, Launch], Iterator[dict[str, Any]]]] = {
    "ubatch": ubatches,
    "types": types,
    "context": contexts,
    "layers": layers,
}
"""Knob -> changes of a launch to try, each going further than the one before."""
