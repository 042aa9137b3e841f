"""What came of the settings, in a sentence: the engine's own figures where it prints them."""

from __future__ import annotations

from kvwise.engine import events as ev
from kvwise.engine.loaded import Loaded
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.text import Phrase, phrase


def settings(launch: Launch, loaded: Loaded, ledger: Ledger | None) -> Phrase:
    """Slots, tokens, cache types and layers of a server that is ready; what neither the engine said
    nor the ledger (None = kvwise cannot account for the model) knows is left out."""
    said = _held(launch, loaded, ledger)
    k, v = _types(launch, loaded)
    said = phrase("{held}, K {k}, V {v}, -ub {ubatch}", held=said, k=k, v=v, ubatch=launch.n_ubatch)
    if ledger is None or launch.fit:
        return said
    if not ledger.devices:
        return phrase("{settings}, all on the processor", settings=said)
    return phrase(
        "{settings}, {layers} of {all} layers on GPUs",
        settings=said, layers=ledger.placement.gpu_layers, all=ledger.model.n_layer_all + 1,
    )  # fmt: skip


def _held(launch: Launch, loaded: Loaded, ledger: Ledger | None) -> Phrase:
    slots = loaded.slots
    count = slots.n_slots if slots else launch.n_seq_max
    tokens = slots.n_ctx_slot if slots else None
    if tokens is None and ledger is not None and not launch.fit:
        tokens = ledger.context.n_ctx_seq
    if tokens is None:
        return phrase("1 slot") if count == 1 else phrase("{count} slots", count=count)
    if count == 1:
        return phrase("1 slot of {tokens} tokens", tokens=f"{tokens:,}")
    shared = slots.kv_unified if slots and slots.kv_unified is not None else launch.kv_unified
    if shared:
        return phrase("{count} slots that share {tokens} tokens", count=count, tokens=f"{tokens:,}")
    return phrase("{count} slots of {tokens} tokens", count=count, tokens=f"{tokens:,}")


def _types(launch: Launch, loaded: Loaded) -> tuple[str, str]:
    main = loaded.main
    for cache in main.caches if main else ():
        if isinstance(cache.total, ev.KVCache) and cache.total.type_k and cache.total.type_v:
            return cache.total.type_k, cache.total.type_v
    return launch.type_k, launch.type_v
