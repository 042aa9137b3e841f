"""A graph built once for all contexts gives what a graph built for one gives, to the byte."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.arch import describe
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.memory.cache import caches
from kvwise.memory.compute import compute, growing
from kvwise.memory.compute.reserve import build, job, reserved, taped
from kvwise.memory.context import resolve
from kvwise.memory.placement import place, select
from kvwise.memory.zoo_config import read_config
from report import DEFAULTS, ZOO

NAMES = (
    "tiny-deepseek32", "tiny-deepseek4", "tiny-minimax-m3", "tiny-llama4", "tiny-gemma3",
    "tiny-falcon-h1", "tiny-qwen3next", "tiny-step35", "tiny-gpt-oss", "smollm2-135m", "gemma-3-1b",
    "qwen3-0.6b", "deepseek-v2-lite",
)  # fmt: skip
CONFIGS = st.fixed_dictionaries(
    {
        "n_ctx": st.one_of(st.integers(1, 40).map(lambda k: 256 * k), st.integers(1, 2**20)),
        "n_ubatch": st.sampled_from([1, 64, 128, 512, 2048]),
    },
    optional={
        "device": st.sampled_from(["cpu", "generic", "cuda"]),
        "n_gpu": st.integers(1, 3),
        "ngl": st.sampled_from([0, 1, 3, 999]),
        "n_seq_max": st.sampled_from([1, 3, 4]),
        "kv_unified": st.booleans(),
        "flash_attn": st.sampled_from(["auto", "off"]),
        "type_k": st.sampled_from(["f16", "q8_0", "q4_0", "f32"]),
        "offload_kqv": st.booleans(),
        "op_offload": st.booleans(),
        "swa_full": st.booleans(),
    },
)


@cache
def model_of(name: str) -> Model:
    return describe(open_header(str(ZOO / "models" / f"{name}.json.gz")))


def compare(model: Model, config: dict[str, Any]) -> None:
    """What `compute` says against a graph with plain numbers."""
    zoo = read_config({**DEFAULTS, **config})
    devices = select(zoo.launch, zoo.devices)
    placement = place(model, zoo.launch, devices)
    try:
        context = resolve(model, zoo.launch, placement, devices)
    except Refused:
        return
    kept = caches(model, context, placement, devices)
    for mode in ("reserved", "no-alloc"):
        made = compute(model, context, placement, kept, zoo.launch, devices, mode=mode)  # type: ignore[arg-type]
        if made.basis != "computed":
            continue
        work = job(model, context, placement, kept, zoo.launch, devices)
        graph = build(work)
        tapes = reserved(work, graph) if mode == "reserved" else (taped(work, graph, pinned=False),)
        truth = [max(sizes) for sizes in zip(*(tape.play(0).peaks for tape in tapes), strict=True)]
        assert [*made.by_buffer.values()] == truth, (mode, config)
        assert (made.n_nodes, made.n_leafs) == (len(graph.nodes), len(graph.leafs))


@settings(max_examples=60)
@given(st.sampled_from(NAMES), CONFIGS)
def test_any_context_of_any_layout(name: str, config: dict[str, Any]) -> None:
    compare(model_of(name), config)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ZOO / "models").glob("*.gz")), ids=lambda p: p.name[:-8])
def test_every_model_of_the_zoo(path: Any) -> None:
    model = describe(open_header(str(path)))
    for n_ctx in (256, 4096, 5120, 33024, 131072, 40960):
        for config in ({"device": "cuda"}, {"device": "cuda", "ngl": 2, "flash_attn": "off"}):
            compare(model, {**config, "n_ctx": n_ctx})


@pytest.mark.parametrize(
    ("name", "graphs"),
    [
        ("smollm2-135m", 1), ("gemma-3-1b", 1), ("tiny-qwen3next", 1),
        ("tiny-deepseek4", 2),  # its smallest cache has cells for 32,768 tokens, or for twice that
    ],
)  # fmt: skip
def test_a_longer_context_needs_no_new_graph(
    name: str, graphs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    make = growing.build
    monkeypatch.setattr(growing, "build", lambda *args: built.append(1) or make(*args))
    growing._kept.cache_clear()
    for blocks in range(40, 140, 7):
        compare(model_of(name), {"device": "generic", "n_ctx": 256 * blocks})
    assert len(built) == 2 * graphs  # one for each mode
