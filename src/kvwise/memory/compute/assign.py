"""Passes 1 to 4 of the scheduler: a backend for every tensor.

Source: ggml/src/ggml-backend.cpp (ggml_backend_sched_backend_id_from_cur and the passes of
ggml_backend_sched_split_graph), b10605.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvwise.memory.compute.backend import Backend
from kvwise.memory.compute.graph import FLAG_INPUT, NO_BUFFER, VIEW_OPS, Graph, Tensor

UNASSIGNED = -1

_NOT_BY_WEIGHT = frozenset({"ROPE", "FLASH_ATTN_EXT"})
"""Their only weights (rope factors, sinks) are too small to decide where they run."""


def assign(
    graph: Graph,
    backends: Sequence[Backend],
    *,
    op_offload: bool = True,
    pins: Mapping[int, int] | None = None,
) -> list[int]:
    """Backend number of every tensor of a numbered graph, by index."""
    backend_of = [UNASSIGNED] * (len(graph.leafs) + len(graph.nodes))
    for index, backend in (pins or {}).items():
        backend_of[index] = backend
    _from_buffers(graph, backends, backend_of, op_offload=op_offload)
    walkers = [node for node in graph.nodes if node.op not in VIEW_OPS]
    processor = len(backends) - 1
    for skip in (processor, UNASSIGNED):
        _expand(walkers, backends, backend_of, skip)
        _expand(walkers[::-1], backends, backend_of, skip)
    _by_most_sources(walkers, backends, backend_of)
    _the_rest(graph, backends, backend_of)
    return backend_of


def _from_buffers(
    graph: Graph, backends: Sequence[Backend], backend_of: list[int], *, op_offload: bool
) -> None:
    """Pass 1: where buffers, inputs and weights decide."""
    processor = len(backends) - 1
    for tensor in (*graph.leafs, *graph.nodes):
        index = tensor.index
        if backend_of[index] != UNASSIGNED:
            continue
        home = tensor.root.buffer
        if home != NO_BUFFER:
            if backends[home].supports(tensor):
                backend_of[index] = home
        elif tensor.flags & FLAG_INPUT:
            backend_of[index] = processor
        elif tensor.op not in _NOT_BY_WEIGHT:
            backend_of[index] = _by_weight(tensor, backends, op_offload=op_offload)


def _by_weight(tensor: Tensor, backends: Sequence[Backend], *, op_offload: bool) -> int:
    processor = len(backends) - 1
    for source in tensor.src:
        if source is None or not source.weight or source.buffer == NO_BUFFER:
            continue
        home = source.buffer
        if not backends[home].supports(tensor):
            return UNASSIGNED
        if op_offload and home == processor:
            for number in range(processor):
                backend = backends[number]
                if backend.wants(tensor) and backend.supports(tensor):
                    return number
        return home
    return UNASSIGNED


def _expand(
    nodes: Sequence[Tensor], backends: Sequence[Backend], backend_of: list[int], skip: int
) -> None:
    """Pass 2, one sweep: an unassigned node follows the assigned one before it."""
    current = UNASSIGNED
    for node in nodes:
        index = node.index
        mine = backend_of[index]
        if mine != UNASSIGNED:
            current = UNASSIGNED if mine == skip else mine
        elif current != UNASSIGNED and backends[current].supports(node):
            backend_of[index] = current


def _by_most_sources(
    nodes: Sequence[Tensor], backends: Sequence[Backend], backend_of: list[int]
) -> None:
    """Pass 3: what is left goes where most of its sources can be read."""
    for node in nodes:
        if backend_of[node.index] != UNASSIGNED:
            continue
        best, best_count = UNASSIGNED, -1
        for number, backend in enumerate(backends):
            if backend.supports(node):
                count = sum(
                    1 for s in node.src if s is not None and _memory(s, backend_of) == number
                )
                if count > best_count:
                    best, best_count = number, count
        backend_of[node.index] = best


def _memory(tensor: Tensor, backend_of: Sequence[int]) -> int:
    """Number of the backend that reads this tensor, if it is assigned."""
    mine, root = backend_of[tensor.index], backend_of[tensor.root.index]
    if mine == UNASSIGNED and root == UNASSIGNED:
        return UNASSIGNED
    if tensor.root.buffer != NO_BUFFER:
        return tensor.root.buffer
    return mine if mine != UNASSIGNED else root


def _the_rest(graph: Graph, backends: Sequence[Backend], backend_of: list[int]) -> None:
    """Pass 4: views follow their base, sources their user."""
    for node in graph.nodes:
        index = node.index
        if node.base is not None and backend_of[index] == UNASSIGNED:
            backend_of[index] = backend_of[node.base.index]
        for source in node.src:
            if source is not None and backend_of[source.index] == UNASSIGNED:
                base = source.base
                backend_of[source.index] = backend_of[index if base is None else base.index]
        if backend_of[index] == UNASSIGNED:
            backend_of[index] = next(n for n, b in enumerate(backends) if b.supports(node))
