"""Which caches a model keeps: for each, its layers and the elements per cell; no bytes yet.

`layout` picks the family's rule. Source: src/llama-model.cpp (create_memory), b10605.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from kvwise import builds
from kvwise.arch import attention, compressed, hybrid, indexed, row_of
from kvwise.arch.row import Row
from kvwise.arch.store import Store
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
def layout(model: Model, mtp: bool = False, build: int = builds.OLDEST) -> tuple[Store, ...]:
    """The caches of a model in llama.cpp's order; empty for encoders and diffusion models.

    `mtp` asks for the MTP draft context's caches; `build` for the rules of that build.
    """
    row = row_of(model.header)
    apart = model.n_layer_nextn > 0 and _apart(model, row, build)
    if row.family == "none":
        return ()
    if row.family == "hybrid":
        return hybrid.stores(model, mtp, apart, row.hybrid)
    if row.family == "pooled":
        return hybrid.pooled(model, mtp, apart, row.hybrid)
    return _RULES[row.family](model, mtp, apart)


def _apart(model: Model, row: Row, build: int) -> bool:
    """Whether the MTP layers have a cache of their own, which the MTP context alone keeps."""
    trunk = model.n_layer > 0 and model.router_layer < 0
    generic = row.family == "attention" and trunk and builds.has(build, builds.MTP_KV_APART)
    return generic or row.mtp_kv == "apart"
