"""The closed bound against what llama.cpp said, and against our own exact figures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.cache import caches
from kvwise.memory.compute import compute
from kvwise.memory.compute.bound import bound
from kvwise.memory.context import resolve
from kvwise.memory.placement import HOST, place, select
from kvwise.memory.zoo_config import read_config
from report import ZOO, golden, measured
from thinning import thinned

SAMPLE = (
    "tiny-llama", "tiny-qwen3vlmoe", "tiny-gemma3", "tiny-deepseek", "tiny-jamba", "tiny-bitnet",
    "tiny-qwen35", "tiny-minimax-01", "tiny-bert", "tiny-mpt", "tiny-qwen3tts", "tiny-t5",
    "tiny-mistral4", "tiny-gemma4", "tiny-mamba", "tiny-falcon-h1",
)  # fmt: skip
EVERY = sorted(path.name.removesuffix(".json.gz") for path in (ZOO / "golden").glob("*.gz"))
CONTEXTS, UBATCHES = (512, 4096, 40_960), (16, 32, 128, 512, 2048)


def told(model: Model, config: dict[str, Any], **changes: Any) -> tuple[list[int] | None, Any]:
    """The bound of a configuration, and what was resolved on the way."""
    zoo = read_config(config)
    launch = replace(zoo.launch, **changes)
    devices = select(launch, zoo.devices)
    placement = place(model, launch, devices)
    context = resolve(model, launch, placement, devices)
    kept = caches(model, context, placement, devices)
    resolved = model, context, placement, kept, launch, devices
    return bound(*resolved), resolved


def exceeded(names: list[str], every: int) -> Iterator[str]:
    """Measured buffers that are larger than their bound."""
    for number, (name, model, config, result) in enumerate(golden(names)):
        if number % every or config["mtp"]:
            continue
        most, _ = told(model, config)
        if most is None:
            assert model.router_layer >= 0  # the one kind without a form
            continue
        for device, truth in measured(result).items():
            if truth > most[device]:
                yield f"{name} [{device}] {most[device]} < {truth}: {config}"


def test_no_measured_buffer_is_larger_than_its_bound() -> None:
    assert list(exceeded(list(SAMPLE), every=7)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_no_measured_buffer_of_all_is_larger_than_its_bound(name: str) -> None:
    assert list(exceeded([name], every=1)) == []


def reserved_over(name: str, cells: int) -> Iterator[str]:
    """Reserved buffers larger than their bound, over contexts, micro-batches and outputs."""
    chosen = random.Random(name)
    configs = [(model, config) for _, model, config, _ in golden([name]) if not config["mtp"]]
    for model, config in chosen.sample(configs, min(cells, len(configs))):
        n_ubatch = chosen.choice(UBATCHES)
        n_outputs = chosen.choice((1, 16, n_ubatch))
        changes = {"n_ctx": chosen.choice(CONTEXTS), "n_ubatch": n_ubatch}
        try:
            most, resolved = told(model, config, n_outputs_max=n_outputs, **changes)
            exact = compute(*resolved)
        except KvwiseError:
            continue
        if exact.basis != "computed":
            continue
        if most is None:
            assert model.router_layer >= 0
            continue
        for device, size in exact.by_buffer.items():
            if size > most[device]:
                yield f"{name} [{device}] {most[device]} < {size}: {config} {changes} {n_outputs}"


@pytest.mark.parametrize("name", thinned(SAMPLE))
def test_no_reserved_buffer_is_larger_over_contexts_batches_and_outputs(name: str) -> None:
    assert list(reserved_over(name, cells=4)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_no_reserved_buffer_of_any_model_is_larger(name: str) -> None:
    assert list(reserved_over(name, cells=6)) == []


def test_there_is_no_bound_without_a_graph() -> None:
    _, model, config, _ = next(golden(["tiny-llama"]))
    _, resolved = told(model, config)
    assert bound(replace(model, architecture="novel"), *resolved[1:]) is None
    assert HOST == -1  # the host's place in a list of bounds
    assert Launch().n_ubatch == 512
