"""DeepSeek-V4: a window of raw keys, compressed keys of whole contexts, and compressor states.

Source: src/llama-kv-cache-dsv4.cpp, b10605.
"""

from __future__ import annotations

from kvwise.arch import attention
from kvwise.arch.store import CompressorStore, KVStore, Store, kv
from kvwise.gguf.model import Model

CSA_RATIO, HCA_RATIO = 4, 128  # tokens per compressed cell


def stores(model: Model, mtp: bool, apart: bool) -> tuple[Store, ...]:
    """Keys only, one stream per sequence even when unified; the MTP context keeps plain KV."""
    del apart
    if mtp:
        return attention.windowed_pair(model, range(model.n_layer, model.n_layer_all))
    csa = _compressing(model, CSA_RATIO)
    hca = _compressing(model, HCA_RATIO)
    size = model.indexer_head_size
    indexer = kv(
        model,
        "indexer",
        csa,
        n_swa=0,
        swa_type="none",
        heads=1,
        head_k_full=size,
        head_k_swa=size,
        k_only=True,
        ratio=CSA_RATIO,
        per_sequence=True,
    )
    head = model.n_embd_head_k(0)
    return (
        *attention.windowed_pair(
            model, range(model.n_layer_all), "raw.", k_only=True, per_sequence=True
        ),
        _keys(model, "csa", csa, CSA_RATIO),
        _keys(model, "hca", hca, HCA_RATIO),
        indexer,
        _state(model, "csa_state", csa, CSA_RATIO, overlap=2, width=head),
        _state(model, "hca_state", hca, HCA_RATIO, overlap=1, width=head),
        _state(model, "indexer_state", csa, CSA_RATIO, overlap=2, width=size),
    )


def _compressing(model: Model, ratio: int) -> tuple[int, ...]:
    return tuple(il for il, own in enumerate(model.dsv4_compress_ratios) if own == ratio)


def _keys(model: Model, role: str, layers: tuple[int, ...], ratio: int) -> KVStore:
    return kv(
        model,
        role,
        layers,
        n_swa=0,
        swa_type="none",
        k_only=True,
        ratio=ratio,
        per_sequence=True,
    )


def _state(
    model: Model, role: str, layers: tuple[int, ...], ratio: int, *, overlap: int, width: int
) -> CompressorStore:
    """Overlapping windows need two windows' rows, each twice as wide; MTP layers have none."""
    own = tuple(il for il in layers if il < model.n_layer)
    return CompressorStore(role, own, ratio, overlap * ratio, overlap * width)
