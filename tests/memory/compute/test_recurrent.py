"""Recurrent and hybrid models: states, snapshots, and the delta net's three forms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from built import job_for, model_of
from traces import load

from kvwise.gguf.model import Model
from kvwise.memory.compute.graph import Graph
from kvwise.memory.compute.reserve import build
from report import golden, measured, predict

EXACT = (
    "arwkv7", "bailingmoe3", "falcon-h1", "granitehybrid", "jamba", "kimi-k3", "kimi-linear",
    "lfm2", "lfm2moe", "mamba", "mamba2", "minimax-01", "nemotron_h", "nemotron_h_moe", "plamo2",
    "qwen35", "qwen35moe", "qwen3next", "rwkv6", "rwkv6qwen2", "rwkv7",
)  # fmt: skip
DELTA_NETS = ("bailingmoe3", "kimi-k3", "kimi-linear", "qwen35", "qwen35moe", "qwen3next")

SNAPSHOTS = ("lfm2-1.2b", "mamba-codestral-7b", "qwen3.5-0.8b")
UNFUSED = ("kimi-linear-48b-a3b", "qwen3.5-0.8b")


def graph(architecture: str, **config: Any) -> Graph:
    name = load(architecture)["models"][0]["name"]
    return build(job_for(model_of(architecture, name), config))


def ops_of(made: Graph) -> set[str]:
    return {node.op for node in made.nodes}


@cache
def cells() -> dict[str, list[tuple[Model, dict[str, Any], dict[str, Any]]]]:
    """All measured cells of the models that these tests look at, read once."""
    found: dict[str, list[tuple[Model, dict[str, Any], dict[str, Any]]]] = defaultdict(list)
    names = {*SNAPSHOTS, *UNFUSED, *(f"tiny-{architecture}" for architecture in EXACT)}
    for name, model, config, result in golden(sorted(names)):
        if not config["mtp"]:
            found[name].append((model, config, result))
    return found


def exact_cells(name: str, wanted: Callable[[dict[str, Any], Any], bool]) -> int:
    """How many of the wanted cells there are; each is computed, and to the byte."""
    count = 0
    for model, config, result in cells()[name]:
        if wanted(config, result):
            made = predict(model, config)
            truth = measured(result)
            assert made.basis == "computed", (config, made.reason)
            assert {device: made.by_buffer.get(device) for device in truth} == truth, config
            count += 1
    return count


@pytest.mark.parametrize("architecture", EXACT)
def test_tiny_models_to_the_byte(architecture: str) -> None:
    assert exact_cells(f"tiny-{architecture}", lambda config, result: True) > 10


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_snapshots_for_rollback_to_the_byte(name: str) -> None:
    assert exact_cells(name, lambda config, result: config["n_rs_seq"] > 0)


@pytest.mark.parametrize("name", UNFUSED)
def test_delta_nets_in_chunks_to_the_byte(name: str) -> None:
    """Host layers that a GPU takes over for large batches switch the fused form off."""
    assert exact_cells(name, lambda config, result: "fused_op_unavailable" in str(result))


@pytest.mark.parametrize("architecture", DELTA_NETS)
def test_the_form_of_the_delta_net_follows_the_batch(architecture: str) -> None:
    taken = {"device": "cuda", "ngl": 1, "n_ctx": 32768, "n_seq_max": 32}
    assert "GATED_DELTA_NET" in ops_of(graph(architecture))
    chunks = ops_of(graph(architecture, n_ubatch=256, **taken))
    assert "SOLVE_TRI" in chunks
    assert "GATED_DELTA_NET" not in chunks
    steps = ops_of(graph(architecture, n_ubatch=32, **taken))
    assert not steps & {"GATED_DELTA_NET", "SOLVE_TRI"}
    few = ops_of(graph(architecture, n_ubatch=4, **{**taken, "n_seq_max": 4}))
    assert "GATED_DELTA_NET" in few


@pytest.mark.parametrize("architecture", EXACT)
def test_one_token_of_each_sequence_uses_every_weight(architecture: str) -> None:
    """`build` refuses a graph that leaves a weight out."""
    one = graph(architecture, n_ubatch=4, n_seq_max=4)
    many = graph(architecture, n_ubatch=512, n_seq_max=4)
    assert one.weights == many.weights


@pytest.mark.parametrize("architecture", EXACT)
def test_states_of_other_sequences_are_copied_even_when_there_are_none(architecture: str) -> None:
    """Tensors of no bytes stand in llama.cpp's graph too."""
    made = graph(architecture)
    empty = [node for node in made.nodes if node.op == "GET_ROWS" and node.ne[1] == 0]
    states = {t.name for t in made.leafs if t.name.startswith(("cache_r", "cache_s"))}
    assert len(empty) == len(states) > 0
