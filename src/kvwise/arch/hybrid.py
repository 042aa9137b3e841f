"""States instead of KV in all layers (recurrent) or in some (hybrid).

Source: src/llama-model.cpp (create_memory), src/llama-memory-hybrid*.cpp, b10605.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvwise.arch import attention
from kvwise.arch.store import StateStore, Store, kv
from kvwise.gguf.model import Model


def recurrent(model: Model, mtp: bool, apart: bool) -> tuple[Store, ...]:
    """A state for every layer."""
    del mtp, apart
    return (_states(model, range(model.n_layer)),)


def stores(model: Model, mtp: bool, apart: bool, which: str) -> tuple[Store, ...]:
    """KV for the attention layers, states for the others; `which` is `Row.hybrid`.

    The MTP context of a model whose MTP layers stand apart is plain attention.
    """
    if mtp and apart:
        return attention.stores(model, mtp, apart)
    layers = [il for il in range(model.n_layer_all) if _has_attention(model, il, which)]
    states = [il for il in range(model.n_layer) if _has_state(model, il, which)]
    if model.swa_type != "none":
        pair = attention.windowed_pair(model, layers, "attn.")
        return (*pair, _states(model, states))
    return (kv(model, "attn", layers), _states(model, states))


def pooled(model: Model, mtp: bool, apart: bool, which: str) -> tuple[Store, ...]:
    """KV of the attention layers and what their indexers look at, states for the others.

    Source: src/llama-memory-hybrid-idx.cpp, b11549.
    """
    if mtp and apart:
        return _with_keys(model, range(model.n_layer, model.n_layer_all))
    layers = [il for il in range(model.n_layer_all) if _has_attention(model, il, which)]
    states = [il for il in range(model.n_layer) if _has_state(model, il, which)]
    full, keys = _with_keys(model, layers)
    return (full, _states(model, states), *_ngrams(model, states), keys)


def _with_keys(model: Model, layers: Iterable[int]) -> tuple[Store, Store]:
    """KV of some layers, and a cache of keys for those that choose what they attend to."""
    layers = tuple(layers)
    chosen = [il for il in layers if il >= model.n_layer or _chooses(model, il)]
    width = model.indexer_head_size * (model.indexer_kpool_row if model.indexer_kpool else 1)
    keys = kv(model, "idx", chosen, heads=1, head_k_full=width, head_k_swa=width, k_only=True)
    return kv(model, "attn", layers), keys


def _chooses(model: Model, il: int) -> bool:
    return not any(model.indexer_full) or model.is_indexer_full(il)


def _ngrams(model: Model, states: Iterable[int]) -> tuple[Store, ...]:
    """The state of the convolution over n-grams, in the one layer that has it."""
    if model.ple_layer not in states or not model.n_embd_p:
        return ()
    return (StateStore("ple", (model.ple_layer,), model.n_embd_p, 0),)


def _has_attention(model: Model, il: int, which: str) -> bool:
    if which == "all":
        return True
    if model.is_recr(il):
        return False
    if which == "bare":
        return model.n_ff[il] == 0
    return which != "trunk" or il < model.n_layer


def _has_state(model: Model, il: int, which: str) -> bool:
    if which == "all":
        return True
    return model.is_recr(il) and (which != "bare" or model.n_ff[il] == 0)


def _states(model: Model, layers: Iterable[int]) -> StateStore:
    return StateStore("recurrent", tuple(layers), model.n_embd_r, model.n_embd_s)
