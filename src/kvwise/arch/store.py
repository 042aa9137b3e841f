"""The kinds of storage a cache is made of, sized in elements.

Source: the constructors of llama_kv_cache, llama_memory_recurrent and llama_dsv4_comp_state
(src/llama-kv-cache.cpp, src/llama-memory-recurrent.cpp, src/llama-kv-cache-dsv4.cpp), b10605.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from kvwise.gguf.model import Model


@dataclass(frozen=True, slots=True)
class KVStore:
    """K and V rows of some layers. Rows are elements per cell, 0 = nothing stored.

    `v_row_widest` is every V row when V is stored transposed (flash attention off). `windowed`
    caches hold a window's worth of cells, compressed ones a cell for every `ratio` tokens;
    `per_sequence` ones are never unified.
    """

    role: str
    layers: tuple[int, ...]
    k_row: tuple[int, ...]
    v_row: tuple[int, ...]
    v_row_widest: int
    n_swa: int = 0
    swa_type: str = "none"
    windowed: bool = False
    ratio: int = 1
    per_sequence: bool = False


@dataclass(frozen=True, slots=True)
class StateStore:
    """A rolling state of `r_row` and a recurrent state of `s_row` F32 elements per sequence."""

    role: str
    layers: tuple[int, ...]
    r_row: int
    s_row: int


@dataclass(frozen=True, slots=True)
class CompressorStore:
    """DeepSeek-V4: `state_size` rows of `n_embd_state` F32 elements, twice, per sequence."""

    role: str
    layers: tuple[int, ...]
    ratio: int
    state_size: int
    n_embd_state: int


Store: TypeAlias = KVStore | StateStore | CompressorStore


def kv(
    model: Model,
    role: str,
    layers: Iterable[int],
    *,
    n_swa: int | None = None,
    swa_type: str | None = None,
    windowed: bool = False,
    heads: int | None = None,
    head_k_full: int | None = None,
    head_k_swa: int | None = None,
    k_only: bool | None = None,
    ratio: int = 1,
    per_sequence: bool = False,
) -> KVStore:
    """A KV cache of `layers`, those that reuse another layer's cache left out.

    Without overrides heads and windows are the model's own, and latent attention (MLA) stores no
    V. `heads`, `head_k_full` and `head_k_swa` override what an indexer's cache overrides.
    """
    own = tuple(il for il in layers if model.has_kv(il))
    only_k = model.is_mla if k_only is None else k_only

    def n_heads(il: int) -> int:
        return model.n_head_kv[il] if heads is None else heads

    def head_k(il: int) -> int:
        override = head_k_swa if model.swa[il] else head_k_full
        return model.n_embd_head_k(il) if override is None else override

    def v_row(il: int) -> int:
        return 0 if only_k else model.n_embd_head_v(il) * n_heads(il)

    return KVStore(
        role=role,
        layers=own,
        k_row=tuple(head_k(il) * n_heads(il) for il in own),
        v_row=tuple(v_row(il) for il in own),
        v_row_widest=max(v_row(il) for il in range(model.n_layer_all)),
        n_swa=model.n_swa if n_swa is None else n_swa,
        swa_type=model.swa_type if swa_type is None else swa_type,
        windowed=windowed,
        ratio=ratio,
        per_sequence=per_sequence,
    )
