"""Scheduler and allocator against llama.cpp's own graphs: every backend, split and byte."""

from __future__ import annotations

import pytest
from traces import Trace, architectures, backends_of, graph_of, traces

from kvwise.memory.compute.allocate import peaks
from kvwise.memory.compute.schedule import schedule


def check(trace: Trace) -> None:
    data = trace.data
    backends = backends_of(data)
    kept = {"n_copies": data["n_copies"], "op_offload": data["op_offload"]}
    made = schedule(graph_of(data), backends, **kept)
    runs = [backend for backend, count in data["node_backend"] for _ in range(count)]
    first = data["n_leafs"]
    assert made.backend_of[first:] == runs, trace.id
    splits = [
        [split.backend, split.start, split.end, [t.index for t in split.inputs]]
        for split in made.splits
    ]
    assert splits == data["splits"], trace.id
    assert peaks(made, backends) == data["compute_noalloc"], trace.id
    real = schedule(graph_of(data), backends, pinned=True, **kept)
    assert peaks(real, backends) == data["compute_real_pp"], trace.id


@pytest.mark.parametrize("architecture", architectures())
def test_one_graph_of_each_kind(architecture: str) -> None:
    """Each label once per architecture, from the smallest graph that has it."""
    chosen: dict[str, Trace] = {}
    for trace in traces(architecture):
        best = chosen.get(trace.data["label"])
        if best is None or trace.data["n_nodes"] < best.data["n_nodes"]:
            chosen[trace.data["label"]] = trace
    for trace in chosen.values():
        check(trace)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", architectures())
def test_all_graphs(architecture: str) -> None:
    for trace in traces(architecture):
        check(trace)
