"""Figures that people published about KV caches, and that the real engine confirmed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.gguf.model import Model
from kvwise.memory.cache import bytes_for_tokens, caches
from kvwise.memory.ledger import Cache
from kvwise.units import MIB


def only(model: Model, n_ctx: int, type_k: str = "f16", type_v: str = "f16") -> Cache:
    context = setup.context(n_ctx=n_ctx, type_k=type_k, type_v=type_v)
    (cache,) = caches(model, context, setup.on_one_gpu(model), [setup.gpu()])
    return cache


@pytest.mark.parametrize(
    ("n_ctx", "type_k", "type_v", "mib"),
    [
        (4096, "f16", "f16", 576),
        (8192, "f16", "f16", 1152),
        (16384, "f16", "f16", 2304),
        (32768, "f16", "f16", 4608),
        (4096, "q8_0", "f16", 441),
        (4096, "f16", "q4_0", 369),
        (4096, "q8_0", "q8_0", 306),
    ],
)
def test_qwen3_8b(n_ctx: int, type_k: str, type_v: str, mib: int) -> None:
    assert only(setup.zoo_model("qwen3-8b"), n_ctx, type_k, type_v).nbytes == mib * MIB


def test_deepseek_r1_distill_qwen_7b() -> None:
    model = setup.zoo_model("deepseek-r1-distill-qwen-7b")
    assert only(model, 8192).nbytes == 448 * MIB
    assert only(model, 8192).nbytes // 8192 == 57_344


def test_qwen3_embedding() -> None:
    assert only(setup.zoo_model("qwen3-embedding-0.6b"), 256).nbytes // 256 == 114_688


@pytest.mark.parametrize(("tokens", "size"), [(4096, 603_979_776), (3584, 528_482_304)])
def test_a_custom_shape_in_f32(tokens: int, size: int) -> None:
    """24 layers of 16 heads of 48, nothing shared."""
    model = setup.shape(block_count=24, embedding_length=768, attention__head_count=16)
    assert only(model, tokens, "f32", "f32").nbytes == size == tokens * 147_456


def test_mla_keeps_one_latent_row() -> None:
    cache = only(setup.zoo_model("deepseek-v3"), 4096)
    assert set(cache.k_row) == {512 + 64}
    assert cache.v_bytes == 0


@pytest.mark.parametrize(("build", "layers"), [("b10605", 47), ("b10820", 47), ("b11549", 46)])
def test_unused_mtp_layer_lost_its_cache_with_a_later_build(build: str, layers: int) -> None:
    model = setup.zoo_model("glm-4.5-air")
    context = setup.context()
    (cache,) = caches(model, context, setup.on_one_gpu(model), [setup.gpu()], build)
    assert len(cache.layers) == layers


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "kimi-linear-48b-a3b", "rwkv6-world-1.6b"])
def test_states_do_not_grow_with_the_context(name: str) -> None:
    model = setup.zoo_model(name)
    sizes = {
        cache.r_bytes + cache.s_bytes
        for n_ctx in (256, 65536)
        for cache in caches(
            model, setup.context(n_ctx=n_ctx), setup.on_one_gpu(model), [setup.gpu()]
        )
        if cache.kind == "recurrent"
    }
    assert len(sizes) == 1
    assert sizes != {0}


def test_kv_on_the_host() -> None:
    model = setup.zoo_model("qwen3-8b")
    context = setup.context(offload_kqv=False)
    (cache,) = caches(model, context, setup.on_one_gpu(model), [setup.gpu()])
    assert cache.by_device == {-1: 576 * MIB}


def test_a_window_that_no_layer_has_is_refused() -> None:
    from kvwise.errors import Refused

    model = setup.shape("cohere2", logit_scale=1.0, attention__sliding_window=128,
                        attention__sliding_window_pattern=1)  # fmt: skip
    with pytest.raises(Refused) as refusal:
        caches(model, setup.context(), setup.on_one_gpu(model), [setup.gpu()])
    assert refusal.value.code == "internal_abort"


def test_every_reason_can_be_said() -> None:
    for name in ("qwen3-8b", "gemma-3-1b", "deepseek-v4-flash", "lfm2-1.2b"):
        model = setup.zoo_model(name)
        context = setup.context(flash_attn=False, v_trans=True)
        for cache in caches(model, context, setup.on_one_gpu(model), [setup.gpu()]):
            said = str(cache.reason)
            assert "b10605" in said
            assert "src/llama-" in said
            assert "{" not in said


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("qwen3-8b", 147_456),
        ("deepseek-r1-distill-qwen-7b", 57_344),
        ("qwen3-embedding-0.6b", 114_688),
        ("deepseek-v3", 61 * 576 * 2),
        ("gemma-3-1b", 4 * 2 * 256 * 2),
        ("mamba-130m", 0),
        ("bge-small-en-v1.5", 0),
    ],
)
def test_size_per_token(name: str, size: int) -> None:
    assert bytes_for_tokens(setup.zoo_model(name), 1, "f16", "f16") == size
