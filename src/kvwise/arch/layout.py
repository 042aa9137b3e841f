"""Which caches a model keeps: for each, its layers and the elements per cell; no bytes yet.

`layout` picks the family's rule. Source: src/llama-model.cpp (create_memory), b10605.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from kvwise.arch import attention, compressed, hybrid, indexed, row_of
from kvwise.arch.store import Store
from kvwise.arch.table import Row
from kvwise.gguf.model import Model

_Rule: TypeAlias = Callable[[Model, bool, bool], tuple[Store, ...]]

_RULES: dict[str, _Rule] = {
    "attention": attention.stores,
    "borrowed": attention.borrowed,
    "recurrent": hybrid.recurrent,
    "indexed": indexed.stores,
    "blocks": indexed.blocks,
    "compressed": compressed.stores,
}


@lru_cache(maxsize=64)
def layout(model: Model, mtp: bool = False, build: int = 10605) -> tuple[Store, ...]:
    """The caches of a model in llama.cpp's order; empty for encoders and diffusion models.

    `mtp` asks for the MTP draft context's caches; `build` for the rules of that build.
    """
    row = row_of(model.header)
    apart = _mtp_kv(row, build) == "apart" and model.n_layer_nextn > 0
    if row.family == "none":
        return ()
    if row.family == "hybrid":
        return hybrid.stores(model, mtp, apart, row.hybrid)
    return _RULES[row.family](model, mtp, apart)


def _mtp_kv(row: Row, build: int) -> str:
    reached = [since for since in row.mtp_kv_since if since <= build]
    return row.mtp_kv_since[max(reached)] if reached else row.mtp_kv
