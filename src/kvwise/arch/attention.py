"""KV for every layer; windowed layers get a cache of their own.

Source: src/llama-model.cpp (create_memory), src/llama-kv-cache-iswa.cpp, b10605.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvwise.arch.store import KVStore, Store, kv
from kvwise.errors import Refused
from kvwise.gguf.model import Model


def stores(model: Model, mtp: bool, apart: bool) -> tuple[Store, ...]:
    """One cache, or two when some layers have a window.

    Raises Refused (internal_abort) for a window that no layer has.
    """
    layers = context_layers(model, mtp, apart)
    if model.is_swa_any != (model.swa_type != "none"):
        raise Refused(
            "internal_abort",
            "{architecture} model: the file gives a window to no layer, llama.cpp stops on that",
            hint="the sliding_window_pattern of the file is wrong: convert the model again",
            architecture=model.architecture,
        )
    if model.swa_type == "none":
        return (kv(model, "main", layers),)
    return windowed_pair(model, layers)


def borrowed(model: Model, mtp: bool, apart: bool) -> tuple[Store, ...]:
    """A draft head that reads its target's caches: nothing of its own."""
    del mtp, apart
    return windowed_pair(model, ())


def context_layers(model: Model, mtp: bool, apart: bool) -> range:
    """The layers of a context: with `apart`, MTP layers belong to the MTP context alone."""
    if not apart:
        return range(model.n_layer_all)
    return range(model.n_layer, model.n_layer_all) if mtp else range(model.n_layer)


def windowed_pair(
    model: Model,
    layers: Iterable[int],
    prefix: str = "",
    *,
    k_only: bool | None = None,
    per_sequence: bool = False,
) -> tuple[KVStore, KVStore]:
    """Full layers in `base` with all cells, windowed layers in `swa` with a window's worth."""
    layers = tuple(layers)
    full = [il for il in layers if not model.is_swa(il)]
    windowed = [il for il in layers if model.is_swa(il)]
    return (
        kv(
            model,
            prefix + "base",
            full,
            n_swa=0,
            swa_type="none",
            k_only=k_only,
            per_sequence=per_sequence,
        ),
        kv(
            model,
            prefix + "swa",
            windowed,
            windowed=True,
            k_only=k_only,
            per_sequence=per_sequence,
        ),
    )
