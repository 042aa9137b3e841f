"""Bytes of whole models against tests/zoo/golden (no-alloc mode): a sample, and all when slow."""

from __future__ import annotations

import pytest

from kvwise.memory.compute.families import BUILDERS
from report import golden, measured, predict
from thinning import thinned

SAMPLE = (
    "qwen3-8b", "gemma-3-4b", "mixtral-8x7b", "tiny-stablelm", "tiny-granite_swa", "tiny-llama4",
    "tiny-step35", "tiny-afmoe", "tiny-hy_v3", "tiny-qwen3tts", "tiny-graniteswitch",
)  # fmt: skip


def check(names: list[str]) -> int:
    """Every cell of the models; how many were computed."""
    computed = 0
    for name, model, config, result in golden(names):
        made = predict(model, config)
        if made.basis != "computed":
            assert model.architecture not in BUILDERS or config["mtp"], (name, config, made.reason)
            continue
        computed += 1
        truth = measured(result)
        assert {device: made.by_buffer.get(device) for device in truth} == truth, (name, config)
    return computed


@pytest.mark.parametrize("name", thinned(SAMPLE))
def test_models_to_the_byte(name: str) -> None:
    assert check([name]) > 10


@pytest.mark.slow
def test_all_that_is_computed_is_exact() -> None:
    assert check([]) > 5000
