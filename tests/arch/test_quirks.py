"""Quirks of single architectures that no zoo model shows."""

from __future__ import annotations

from typing import Any

import pytest

from kvwise.arch import describe
from kvwise.arch.layout import layout
from kvwise.arch.store import KVStore
from kvwise.gguf.header import Header, Tensor
from kvwise.gguf.model import Model
from kvwise.gguf.types import F32


def model(architecture: str, *tensors: str, **keys: Any) -> Model:
    plain: dict[str, Any] = {
        "context_length": 4096,
        "embedding_length": 512,
        "block_count": 8,
        "attention.head_count": 8,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
    }
    plain |= {key.replace("__", "."): value for key, value in keys.items()}
    values = {f"{architecture}.{key}": value for key, value in plain.items()}
    table = tuple(Tensor(name, (32,), F32) for name in tensors)
    return describe(Header(3, {"general.architecture": architecture, **values}, table))


def stores(of: Model, **how: Any) -> dict[str, KVStore]:
    found = layout(of, **how)
    return {store.role: store for store in found if isinstance(store, KVStore)}


@pytest.mark.parametrize(
    "architecture", ["codeshell", "gemma", "chameleon", "qwen3vl", "paddleocr", "talkie"]
)
def test_plain_architectures(architecture: str) -> None:
    made = model(
        architecture, attention__head_count_kv=2, attention__key_length=64,
        attention__value_length=32, logit_scale=1.0, rope__dimension_sections=(1, 1, 1, 0),
        interleave_moe_layer_step=1, expert_feed_forward_length=1,
    )  # fmt: skip
    main = stores(made)["main"]
    assert main.layers == tuple(range(8))
    assert (set(main.k_row), set(main.v_row)) == ({128}, {64})
    assert made.verified


def test_openelm_has_heads_per_layer() -> None:
    heads = (1, 1, 2, 2, 3, 3, 4, 4)
    made = model("openelm", attention__head_count=(2, 2, 4, 4, 6, 6, 8, 8),
                 attention__head_count_kv=heads, attention__key_length=64,
                 attention__value_length=64)  # fmt: skip
    assert stores(made)["main"].k_row == tuple(64 * count for count in heads)
    assert stores(made)["main"].v_row_widest == 256


def test_grovemoe_needs_its_groups() -> None:
    made = model("grovemoe", expert_count=8, expert_used_count=2, expert_feed_forward_length=64,
                 expert_group_scale=0.05, experts_per_group=2)  # fmt: skip
    assert (made.n_group_experts, made.n_ff_exp) == (2, 64)


@pytest.mark.parametrize("loops", [1, 3])
def test_nanbeige_keeps_a_cache_for_every_loop(loops: int) -> None:
    made = model("nanbeige", num_loops=loops)
    assert made.n_layer_all == made.n_layer == 8 * loops
    assert len(stores(made)["main"].layers) == 8 * loops


def test_exaone4_has_windows_in_the_32b_only() -> None:
    small = model("exaone4", attention__sliding_window=1024)
    assert stores(small)["main"].n_swa == 1024
    large = model("exaone4", block_count=64, attention__sliding_window=1024)
    assert len(stores(large)["swa"].layers) == 48
    assert stores(large)["swa"].n_swa == 1024
    assert 3 in stores(large)["base"].layers


def test_llama4_has_chunks_of_8192_unless_turned_off() -> None:
    keys = {"expert_feed_forward_length": 1, "interleave_moe_layer_step": 1}
    assert stores(model("llama4", **keys))["swa"].n_swa == 8192
    assert stores(model("llama4", attention__sliding_window=99, **keys))["swa"].n_swa == 8192
    assert list(stores(model("llama4", attention__sliding_window=0, **keys))) == ["main"]


@pytest.mark.parametrize(
    ("architecture", "full"),
    [("gemma3", {5}), ("smallthinker", {0, 4}), ("laguna", {0, 4}), ("olmo2", {3, 7})],
)
def test_default_patterns(architecture: str, full: set[int]) -> None:
    made = model(
        architecture, attention__sliding_window=128, leading_dense_block_count=0,
        expert_feed_forward_length=1,
    )  # fmt: skip
    assert set(stores(made)["base"].layers) == full
    without = model(architecture, leading_dense_block_count=0, expert_feed_forward_length=1)
    assert list(stores(without)) == ["main"]


def test_a_listed_pattern_counts_only_where_llama_cpp_reads_it() -> None:
    pattern = (True, False, False, False, False, False, False, False)
    keys = {"attention__sliding_window": 128, "attention__sliding_window_pattern": pattern}
    listed = model("mellum", expert_feed_forward_length=1, **keys)
    assert stores(listed)["swa"].layers == (0,)
    ignored = model("gemma3", **keys)
    assert stores(ignored)["swa"].layers == (0, 1, 2, 3, 4, 6, 7)


def test_windows_cover_mtp_layers_where_the_pattern_is_set_first() -> None:
    keys = {"expert_feed_forward_length": 1, "expert_gating_func": 1,
            "attention__sliding_window": 128, "nextn_predict_layers": 1}  # fmt: skip
    made = model("exaone-moe", attention__sliding_window_pattern=5, **keys)
    assert made.is_swa(7)
    assert stores(made)["swa"].layers == (0, 1, 2, 3, 5, 6, 7)


@pytest.mark.parametrize(("layers", "bias"), [(32, 0.0), (40, 8.0)])
def test_baichuan_13b_has_alibi(layers: int, bias: float) -> None:
    made = model("baichuan", block_count=layers)
    assert made.f_max_alibi_bias == bias
    assert made.use_alibi is (bias > 0)


def test_mtp_context_of_a_model_whose_mtp_layers_stand_apart() -> None:
    keys = {"ssm__conv_kernel": 4, "ssm__inner_size": 64, "ssm__state_size": 16,
            "ssm__time_step_rank": 4, "ssm__group_count": 1, "nextn_predict_layers": 1}  # fmt: skip
    made = model("qwen3next", **keys)
    assert stores(made)["attn"].layers == (3,)
    assert stores(made, mtp=True)["main"].layers == (7,)


def test_deepseek4_counts_mtp_layers_only_when_they_are_there() -> None:
    keys: dict[str, Any] = {
        "attention__q_lora_rank": 64, "attention__sliding_window": 128,
        "expert_feed_forward_length": 64, "expert_shared_count": 1, "expert_weights_scale": 1.0,
        "expert_weights_norm": True, "expert_gating_func": 4, "swiglu_clamp_exp": 7.0,
        "attention__indexer__head_count": 4, "attention__indexer__key_length": 64,
        "attention__indexer__top_k": 16, "attention__output_group_count": 2,
        "attention__output_lora_rank": 32, "attention__compress_rope_freq_base": 1e4,
        "hyper_connection__count": 4, "hyper_connection__sinkhorn_iterations": 3,
        "hyper_connection__epsilon": 1e-6, "hash_layer_count": 1, "nextn_predict_layers": 1,
        "attention__compress_ratios": (0, 0, 4, 128, 4, 128, 4, 0), "attention__head_count_kv": 1,
    }  # fmt: skip
    without = model("deepseek4", **keys)
    assert (without.n_layer, without.n_layer_all) == (8, 8)
    complete = model("deepseek4", "blk.7.nextn.eh_proj.weight", **keys)
    assert (complete.n_layer, complete.n_layer_all) == (7, 8)
    assert complete.n_embd_out == 4 * 512
    assert stores(complete)["raw.swa"].layers == tuple(range(8))
    assert stores(complete)["csa"].layers == (2, 4, 6)
    assert stores(complete, mtp=True)["swa"].layers == (7,)
    assert set(stores(complete, mtp=True)["swa"].v_row) == {64}


def test_glm_dsa_shares_indexers_in_long_context_models() -> None:
    keys: dict[str, Any] = {
        "block_count": 12, "expert_feed_forward_length": 64, "expert_shared_count": 1,
        "attention__q_lora_rank": 64, "attention__kv_lora_rank": 512,
        "attention__indexer__head_count": 4, "attention__indexer__key_length": 128,
        "attention__indexer__top_k": 16, "attention__head_count_kv": 1,
        "attention__key_length": 576, "attention__value_length": 512,
        "attention__key_length_mla": 192, "attention__value_length_mla": 128,
    }  # fmt: skip
    short = model("glm-dsa", **keys)
    assert stores(short)["indexer"].layers == tuple(range(12))
    long = model("glm-dsa", **{**keys, "context_length": 1048576})
    assert stores(long)["indexer"].layers == (0, 1, 2, 6, 10)
    assert set(stores(long)["mla"].v_row) == {0}
    listed = model("glm-dsa", **keys, attention__indexer__types=(1, 0) * 6)
    assert stores(listed)["indexer"].layers == (0, 2, 4, 6, 8, 10)


def test_dflash_with_streams_has_windows_everywhere() -> None:
    keys: dict[str, Any] = {
        "target_layers": (1, 2), "hyper_connection__count": 4, "attention__q_lora_rank": 64,
        "attention__sliding_window": 128, "expert_feed_forward_length": 64,
        "expert_shared_count": 1, "expert_weights_scale": 1.0, "expert_weights_norm": True,
        "expert_gating_func": 4, "swiglu_clamp_exp": 7.0, "attention__output_group_count": 2,
        "attention__output_lora_rank": 32, "hyper_connection__sinkhorn_iterations": 3,
        "hyper_connection__epsilon": 1e-6,
    }  # fmt: skip
    made = model("dflash", **keys)
    assert made.rope_type == "norm"
    assert stores(made)["swa"].layers == tuple(range(8))
    plain = model("dflash", target_layers=(1, 2))
    assert plain.rope_type == "neox"
    assert list(stores(plain)) == ["main"]
    assert plain.n_embd_inp_enc == 2 * 512


def test_gemma4_assistant_borrows_its_caches() -> None:
    made = model("gemma4-assistant", nextn_predict_layers=8, attention__sliding_window=128,
                 attention__sliding_window_pattern=(True, False) * 4, embedding_length_out=640,
                 attention__key_length_swa=64, attention__value_length_swa=64)  # fmt: skip
    assert made.n_layer == 0
    assert made.n_embd_inp == 640
    assert all(not store.layers for store in layout(made))


@pytest.mark.parametrize(
    ("architecture", "sections", "rope"),
    [("glm4", None, "norm"), ("glm4", (8, 12, 12, 0), "mrope"), ("hunyuan_vl", None, "neox"),
     ("hunyuan_vl", (8, 12, 12, 0), "mrope"), ("qwen2vl", (8, 12, 12, 0), "mrope")],
)  # fmt: skip
def test_rope_depends_on_sections(architecture: str, sections: Any, rope: str) -> None:
    keys = {} if sections is None else {"rope__dimension_sections": sections}
    made = model(architecture, **keys)
    assert made.rope_type == rope
    assert made.n_pos_per_embd == (4 if rope == "mrope" else 1)


def test_vocabulary_is_counted_when_it_is_listed() -> None:
    values = {"general.architecture": "llama", "tokenizer.ggml.tokens": ("a", "b", "c")}
    values |= {
        "llama.context_length": 8, "llama.embedding_length": 8, "llama.block_count": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": 99,
    }  # fmt: skip
    assert describe(Header(3, values, ())).n_vocab == 3
    unlisted = {**values, "tokenizer.ggml.model": "no_vocab"}
    assert describe(Header(3, unlisted, ())).n_vocab == 99
