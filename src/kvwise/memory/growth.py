"""What one more token costs: the slope and the base of the cache over the context."""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.cache import caches
from kvwise.memory.context import resolve
from kvwise.memory.placement import place

_STEP = 256 * 128  # a whole number of cells for every compression ratio (DeepSeek-V4: 128)


@dataclass(frozen=True, slots=True)
class Growth:
    """Cache bytes of one sequence: `per_token_bytes` for each token of context, and
    `fixed_bytes` of windows and states that do not grow (once the window is full)."""

    per_token_bytes: int
    fixed_bytes: int


def growth(model: Model, type_k: str = "f16", type_v: str = "f16") -> Growth | None:
    """How the cache grows with the context, without alignment; None if the types are refused."""
    window = max(model.n_swa, 0) + 512
    first = -(-window // _STEP) * _STEP
    try:
        low, high = (_total(model, type_k, type_v, n) for n in (first, first + _STEP))
    except Refused:
        return None
    per_token = (high - low) // _STEP
    return Growth(per_token, low - per_token * first)


def _total(model: Model, type_k: str, type_v: str, n_ctx: int) -> int:
    launch = Launch(n_ctx=n_ctx, type_k=type_k, type_v=type_v)
    placement = place(model, launch, ())
    context = resolve(model, launch, placement, ())
    return sum(cache.nbytes for cache in caches(model, context, placement, ()))
