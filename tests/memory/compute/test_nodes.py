"""Every architecture with a graph, node by node against llama.cpp's own graphs."""

from __future__ import annotations

import pytest
from built import differences
from traces import Trace, architectures, traces

from kvwise.memory.compute.families import BUILDERS

BUILT = [name for name in architectures() if name in BUILDERS]


def test_all_recorded_architectures_are_built() -> None:
    assert architectures() == BUILT


@pytest.mark.parametrize("architecture", BUILT)
def test_one_graph_of_each_kind(architecture: str) -> None:
    """Each label once per architecture, from the smallest graph that has it."""
    chosen: dict[str, Trace] = {}
    for trace in traces(architecture):
        best = chosen.get(trace.data["label"])
        if best is None or trace.data["n_nodes"] < best.data["n_nodes"]:
            chosen[trace.data["label"]] = trace
    for trace in chosen.values():
        assert not differences(trace), trace.id


@pytest.mark.slow
@pytest.mark.parametrize("architecture", BUILT)
def test_all_graphs(architecture: str) -> None:
    for trace in traces(architecture):
        assert not differences(trace), trace.id
