"""Another quantization of the same model takes what llama-quantize would write."""

from __future__ import annotations

import pytest

from kvwise.plan.quants import QUANTS, requantized

from .setup import model

FILES = ("llama-2-7b", "llama-3.1-8b", "qwen3-8b", "qwen3-30b-a3b", "mistral-7b-v0.3", "qwen3-32b",
         "gemma-2-9b", "olmoe-1b-7b", "glm-4-9b-0414")  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_the_quantization_a_file_has_is_found_again(name: str) -> None:
    made = requantized(model(name), "Q4_K_M")
    types = {tensor.name: tensor.type for tensor in model(name).header.tensors}
    again = {tensor.name: tensor.type for tensor in made.header.tensors}
    tied = {"token_embd.weight"} if model(name).tied_embeddings else set()
    assert {key for key in types if types[key] != again[key]} <= tied


def test_fewer_bits_take_less() -> None:
    sizes = [
        requantized(model("llama-3.1-8b"), name).header.tensor_bytes
        for name in ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_K_S", "IQ4_XS", "Q3_K_M")
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


def test_published_sizes_of_llama_3_1_8b() -> None:
    """GiB as llama-bench prints them for public files of this model."""
    published = {"Q8_0": 7.95, "Q6_K": 6.14, "Q5_K_M": 5.33, "Q4_K_M": 4.58, "F16": 14.96}
    for name, gib in published.items():
        size = requantized(model("llama-3.1-8b"), name).header.tensor_bytes
        assert size / 2**30 == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize("quant", QUANTS)
def test_every_quantization_keeps_shapes_and_norms(quant: str) -> None:
    made = requantized(model("qwen3-8b"), quant)
    for before, after in zip(model("qwen3-8b").header.tensors, made.header.tensors, strict=True):
        assert (before.name, before.shape) == (after.name, after.shape)
        if len(before.shape) == 1:
            assert after.type == before.type


def test_rows_that_do_not_fill_blocks_fall_back() -> None:
    """SmolLM2's rows of 576 are no multiple of 256 (measured: Q4_K_M files hold q5_0 and q8_0)."""
    kinds = {t.type.name for t in requantized(model("smollm2-135m"), "Q4_K_M").header.tensors}
    assert {"q5_0", "q8_0"} <= kinds
