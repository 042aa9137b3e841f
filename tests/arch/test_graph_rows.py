"""Rows and states in the engine's own graphs, also of models with uncommon sizes."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvwise.arch import describe
from kvwise.arch.layout import layout
from kvwise.arch.store import CompressorStore, KVStore, StateStore, Store
from kvwise.gguf.header import Header, Tensor
from kvwise.gguf.types import F32

GRAPHS = Path(__file__).parents[1] / "graphs"
NOT_TRACES = {"measured-real", "real-compute"}
FILES = sorted(
    path
    for path in GRAPHS.glob("*.json.gz")
    if path.name.removesuffix(".json.gz") not in NOT_TRACES
)
_TENSOR = re.compile(r"cache_([kvrs])_l(\d+)$")
_STATE = re.compile(r"dsv4_(csa|hca|lid)_state_(?:kv|score)_l(\d+)$")


def header(model: dict[str, Any]) -> Header:
    """Keys, and the names of the tensors."""
    metadata = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in model["metadata"].items()
    }
    names = [pattern.replace("{i}", layer) for pattern, layer in _expanded(model["weights"])]
    return Header(3, metadata, tuple(Tensor(name, (32,), F32) for name in names))


def _expanded(rows: list[Any]) -> list[tuple[str, str]]:
    found = []
    for pattern, _, _, layers in rows:
        for part in layers.split(",") if layers else [""]:
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1) if first else [""]
            found += [(pattern, str(number)) for number in numbers]
    return found


def rows(stores: tuple[Store, ...], side: str, layer: int, flash_attn: bool) -> list[int]:
    """What our caches hold for one layer and side."""
    found = []
    for store in stores:
        if layer not in store.layers:
            continue
        at = store.layers.index(layer)
        if isinstance(store, KVStore) and side in "kv":
            v_row = store.v_row[at] if flash_attn else store.v_row_widest
            found.append(store.k_row[at] if side == "k" else v_row)
        elif isinstance(store, StateStore) and side in "rs":
            found.append(store.r_row if side == "r" else store.s_row)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_graphs_use_the_rows_we_lay_out(path: Path) -> None:
    for traced in json.loads(gzip.decompress(path.read_bytes()))["models"]:
        stores = layout(describe(header(traced)))
        states = {store.role: store for store in stores if isinstance(store, CompressorStore)}
        for graph in traced["graphs"]:
            for tensor in graph.get("tensors", ()):
                name, shape = tensor[1], tensor[3]
                if match := _TENSOR.match(name):
                    ours = rows(stores, match[1], int(match[2]), graph["flash_attn"])
                    assert shape[0] in ours, (traced["name"], graph["label"], name)
                elif match := _STATE.match(name):
                    state = states[{"lid": "indexer"}.get(match[1], match[1]) + "_state"]
                    assert shape[:2] == [state.n_embd_state, state.state_size]
