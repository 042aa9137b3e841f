"""Reads `tests/graphs`: llama.cpp's own graphs as our `Graph`, with what was measured of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from kvwise.gguf.types import BY_NAME
from kvwise.memory.compute.backend import Backend
from kvwise.memory.compute.devices import cuda
from kvwise.memory.compute.graph import Graph, Tensor, contiguous_strides

FOLDER = Path(__file__).parents[2] / "graphs"


@dataclass(frozen=True)
class Trace:
    """One graph of one model: `data` as in the file (see tests/graphs/README.md)."""

    architecture: str
    model: dict[str, Any]
    data: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.model['name']}-{self.data['label']}"


def architectures() -> list[str]:
    found = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.gz"))
    return [name for name in found if name not in ("measured-real", "real-compute")]


@cache
def load(architecture: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((FOLDER / f"{architecture}.json.gz").read_bytes()))


def traces(architecture: str) -> Iterator[Trace]:
    """All graphs of an architecture that llama.cpp could build."""
    for model in load(architecture)["models"]:
        for data in model["graphs"]:
            if "error" not in data:
                yield Trace(architecture, model, data)


def _four(values: list[int]) -> tuple[int, int, int, int]:
    a, b, c, d = [*values, 1, 1, 1, 1][:4]
    return a, b, c, d


def graph_of(data: dict[str, Any]) -> Graph:
    """The graph as it stands in the trace."""
    names = {name: number for number, (name, _, _) in enumerate(data["backends"])}
    last = len(data["backends"]) - 1
    made: list[Tensor] = []
    for op, name, kind, ne, nb, _, _, offset, flags, external in data["tensors"]:
        shape = _four(ne)
        type_ = BY_NAME[kind.lower()]
        strides = contiguous_strides(type_, shape) if nb == 0 else tuple(nb)
        tensor = Tensor(op, type_, shape, strides, offset=offset)
        tensor.name, tensor.flags = name, flags
        if external and external != "data":  # "data": a view of a cache, its base says so
            buffer, role = external.split("/")
            tensor.buffer, tensor.weight = names.get(buffer, last), role == "w"
        made.append(tensor)
    for tensor, row in zip(made, data["tensors"], strict=True):
        tensor.src = tuple(made[s] if s >= 0 else None for s in row[5])
        tensor.base = made[row[6]] if row[6] >= 0 else None
    for index, bias in data["alibi"]:
        made[index].params = bias
    graph = Graph(made[: data["n_leafs"]], made[data["n_leafs"] :])
    graph.number()
    graph.pins = {index: names.get(backend, last) for index, backend in pins_of(data)}
    return graph


def pins_of(data: dict[str, Any]) -> list[tuple[int, Any]]:
    """Pins with backend names; files hold a number or a name."""
    names = [name for name, _, _ in data["backends"]]
    return [(t, names[b] if isinstance(b, int) else b) for t, b in data["pins"]]


def backends_of(data: dict[str, Any]) -> list[Backend]:
    """Backends that answer as the trace says they do."""
    unsupported = dict(data["unsupported"])
    wanted = dict(data["offload"])
    is_cuda = data["config"].get("device") == "cuda"
    made = []
    for number, (name, _, alignment) in enumerate(data["backends"]):
        bit = 1 << number

        def supports(t: Tensor, bit: int = bit) -> bool:
            return not unsupported.get(t.index, 0) & bit

        def wants(t: Tensor, bit: int = bit) -> bool:
            return bool(wanted.get(t.index, 0) & bit)

        backend = Backend(name, alignment, supports=supports, wants=wants)
        if is_cuda and number < len(data["backends"]) - 1:
            backend = replace(backend, alloc_size=cuda.alloc_size)
        made.append(backend)
    return made
