"""Why a cache has the size it has: one sentence each, for `--explain`."""

from __future__ import annotations

from kvwise import builds
from kvwise.arch.store import CompressorStore, KVStore
from kvwise.memory.context import Context
from kvwise.text import Phrase, phrase


def _source_build(context: Context) -> str:
    """The build whose source was read for this one."""
    return builds.name(builds.nearest(context.build))


def kv(store: KVStore, context: Context, n_cells: int, streams: int) -> Phrase:
    """How many cells, and what a layer keeps in each."""
    return phrase(
        "{cells}; {width}; {streams} stream(s) of {n_cells} cells in {layers} layer(s)",
        cells=_cells(store, context),
        width=_width(store, context),
        streams=streams,
        n_cells=n_cells,
        layers=len(store.layers),
    )


def _cells(store: KVStore, context: Context) -> Phrase:
    if store.ratio > 1:
        return phrase(
            "one cell for every {ratio} tokens, padded to 256 ({source}, {build})",
            ratio=store.ratio,
            source="src/llama-kv-cache-dsv4.cpp",
            build=_source_build(context),
        )
    if store.windowed and not context.swa_full:
        return phrase(
            "a window of {n_swa} for each sequence that shares the cache and one batch of "
            "{n_ubatch}, padded to 256, at most the context ({source}, {build})",
            n_swa=store.n_swa,
            n_ubatch=context.n_ubatch,
            source="src/llama-kv-cache-iswa.cpp",
            build=_source_build(context),
        )
    return phrase(
        "a cell for every token of the context ({source}, {build})",
        source="src/llama-kv-cache.cpp",
        build=_source_build(context),
    )


def _width(store: KVStore, context: Context) -> Phrase:
    if not store.v_row_widest:
        return phrase(
            "keys only, values are computed from them ({source}, {build})",
            source="src/llama-kv-cache.cpp",
            build=_source_build(context),
        )
    if context.v_trans and set(store.v_row) - {store.v_row_widest}:
        return phrase(
            "without flash attention V is stored transposed and every layer's V is as wide as the "
            "widest, {widest} ({source}, {build})",
            widest=store.v_row_widest,
            source="src/llama-kv-cache.cpp",
            build=_source_build(context),
        )
    return phrase(
        "KV heads times head size, for K and for V ({source}, {build})",
        source="src/llama-hparams.cpp",
        build=_source_build(context),
    )


def state(context: Context) -> Phrase:
    return phrase(
        "one F32 state per layer and sequence whatever the context, and {snapshots} snapshot(s) "
        "of each ({source}, {build})",
        snapshots=context.n_rs_seq,
        source="src/llama-memory-recurrent.cpp",
        build=_source_build(context),
    )


def compressor(store: CompressorStore, context: Context) -> Phrase:
    return phrase(
        "the tokens that do not yet fill a cell of {ratio}: {rows} F32 rows of keys and of scores "
        "per layer and sequence, and {snapshots} snapshot(s) ({source}, {build})",
        ratio=store.ratio,
        rows=store.state_size,
        snapshots=context.n_rs_seq,
        source="src/llama-kv-cache-dsv4.cpp",
        build=_source_build(context),
    )
