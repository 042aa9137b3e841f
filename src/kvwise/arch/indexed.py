"""Sparse attention: besides its KV a model keeps one key per token for its indexer.

Source: src/llama-model.cpp (create_memory), src/llama-kv-cache-{dsa,dsa-iswa,msa}.cpp, b10605.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvwise.arch import attention
from kvwise.arch.store import KVStore, Store, kv
from kvwise.gguf.model import Model


def stores(model: Model, mtp: bool, apart: bool) -> tuple[Store, ...]:
    """Latent KV, the keys of layers that choose tokens themselves, and windowed layers apart.

    The MTP context attends to everything: it keeps plain KV of the MTP layers only.
    """
    layers = attention.context_layers(model, mtp, apart)
    if mtp and apart:
        return (kv(model, "main", layers),)
    if not model.indexer_top_k:
        return (kv(model, "main", layers),)
    choosing = [il for il in range(model.n_layer) if model.is_indexer_full(il)]
    if model.swa_type == "none":
        return (kv(model, "mla", layers), _keys(model, "indexer", choosing))
    full, windowed = attention.windowed_pair(model, layers)
    keys = _keys(model, "dsa.indexer", choosing, n_swa=0, swa_type="none")
    return (_renamed(full, "dsa.mla"), keys, windowed)


def blocks(model: Model, mtp: bool, apart: bool) -> tuple[Store, ...]:
    """KV of all layers; keys (and as many values) one head wide of all but the leading ones."""
    del mtp, apart
    layers = range(model.n_layer_all)
    sparse = range(model.n_layer_dense_lead, model.n_layer_all)
    return (kv(model, "base", layers), _keys(model, "indexer", sparse))


def _keys(
    model: Model,
    role: str,
    layers: Iterable[int],
    n_swa: int | None = None,
    swa_type: str | None = None,
) -> KVStore:
    size = model.indexer_head_size
    return kv(model, role, layers, heads=1, head_k_full=size, n_swa=n_swa, swa_type=swa_type)


def _renamed(store: KVStore, role: str) -> KVStore:
    return KVStore(role, store.layers, store.k_row, store.v_row, store.v_row_widest)
