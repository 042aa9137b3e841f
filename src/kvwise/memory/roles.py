"""What a weight is used for: the part of the model it belongs to and the operation that reads it.

Both decide where llama.cpp puts it. Source: src/llama-arch.cpp LLM_TENSOR_INFOS and
LLM_TENSOR_NAMES, src/llama-model-loader.cpp create_tensor, and the models in src/models that
give a tensor without a layer number to layer 0, b10605 and b11549.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Part = Literal["input", "layer", "output", "rope"]

SUFFIXES = frozenset({"weight", "bias", "scale", "input_scale", "lora_a", "lora_b"})

_LAYER = re.compile(r"^(?:(?:enc|dec)\.)?(?:blk|convnext|posnet)\.(\d+)\.(.+)$")
_EXPERT = re.compile(r"^(ffn_(?:gate|down|up))\.\d+$")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


INPUT = _names("token_embd position_embd token_types per_layer_token_embd")
OUTPUT = _names(
    "output cls cls.output cls.norm dense_2 dense_3 output_norm dec.output_norm enc.output_norm "
    "output_hc_fn output_hc_base output_hc_scale output_res_score altup_proj altup_unembd_proj "
    "nextn.post_projection fc d2t markov_w1 markov_w2 conf_proj "
    "output_hc_norm output_hc_down output_hc_up selector_predecessor selector_successor "
    "selector_hidden decision.hidden_norm decision.proj_memory decision.proj_question "
    "decision.proj_option_question decision.proj_global decision.proj_option_context "
    "decision.proj_option_lexical decision.option_summary_norm decision.field_norm "
    "decision.option_norm decision.scales decision.scorer decision.scorer_out"
)
ROPE = _names("rope_freqs rope_factors_long rope_factors_short")
NORM_IS_OUTPUT = frozenset({"lfm2", "lfm2moe"})
"""Architectures whose `token_embd_norm` is really the output norm."""

SCAN_IS_MULTIPLY = frozenset({"qwen3next", "qwen35", "qwen35moe"})
"""Architectures that multiply by `ssm_a` instead of scanning with it."""

_OPS: dict[str, frozenset[str]] = {
    "MUL": _names(
        "attn_norm attn_norm_2 attn_output_norm post_attention_norm ffn_norm pre_ffw_norm_2 "
        "post_ffw_norm post_ffw_norm_1 post_ffw_norm_2 ffn_norm_exps attn_q_norm attn_k_norm "
        "layer_output_norm layer_output_scale attn_q_a_norm attn_kv_a_norm attn_sub_norm "
        "ffn_sub_norm cross_attn_norm ssm_dt_norm ssm_b_norm ssm_c_norm ssm_d ssm_norm "
        "ssm_conv1d_q ssm_conv1d_k ssm_conv1d_v attn_res_score ffn_res_score ffn_routed_norm "
        "time_mix_lerp_x time_mix_ln channel_mix_lerp_k channel_mix_lerp_r time_mix_k_k "
        "time_mix_k_a time_mix_r_k hc_attn_scale hc_ffn_scale attn_compressor_norm post_norm "
        "altup_correct_scale altup_router_norm laurel_post_norm norm norm1 norm2 gamma "
        "indexer.k_norm indexer.q_norm indexer_compressor_norm nextn.enorm nextn.hnorm "
        "nextn.shared_head_norm token_embd_norm output_norm dec.output_norm enc.output_norm "
        "output_hc_scale output_res_score cls.norm per_layer_proj_norm cross_attn_norm_kv "
        "attn_conv_base ffn_conv_base hc_attn_norm hc_ffn_norm output_hc_norm nextn.hc_head_norm "
        "ple_norm_key ple_norm_query ple_norm_conv decision.hidden_norm "
        "decision.option_summary_norm decision.field_norm decision.option_norm decision.scales"
    ),
    "ADD": _names(
        "hc_attn_base hc_ffn_base output_hc_base exp_probs_b time_mix_lerp_w time_mix_lerp_k "
        "time_mix_lerp_v time_mix_lerp_r time_mix_lerp_g time_mix_lerp_fused time_mix_decay "
        "time_mix_w0 time_mix_a0 time_mix_v0 exp_probs_b_vl hrm.z_l_init"
    ),
    "GET_ROWS": _names(
        "token_embd position_embd token_types per_layer_token_embd attn_rel_b "
        "attn_compressor_ape indexer_compressor_ape ffn_gate_tid2eid nextn.embed_tokens d2t "
        "markov_w1 selector_predecessor selector_successor"
    ),
    "MUL_MAT_ID": _names(
        "ffn_down_exps ffn_gate_exps ffn_up_exps ffn_gate_up_exps ffn_down_chexps "
        "ffn_gate_chexps ffn_up_chexps attn_v_exps"
    ),
    "DIV": _names("ffn.act"),
    "SSM_CONV": _names("ssm_conv1d shortconv.conv ple_conv1d"),
    "SSM_SCAN": _names("ssm_a"),
    "RWKV_WKV6": _names("time_mix_first"),
    "IM2COL": _names("conv1d conv1 conv2 dw"),
    "SCALE": _names("attn_sinks"),
    "ROPE": ROPE,
    "NONE": _names("cross_attn_rel_b masked_embd_centroids masked_embd_ordering"),
}
_OP_OF = {name: op for op, names in _OPS.items() for name in names}


@dataclass(frozen=True, slots=True)
class Role:
    """Where a weight belongs (`layer` is -1 outside the layers) and the operation that reads it.

    `op` NONE means that the engine does not load it.
    """

    base: str
    suffix: str
    part: Part
    layer: int
    op: str


@lru_cache(maxsize=65_536)
def role_of(name: str, architecture: str) -> Role:
    """The role of a tensor by its name in the file."""
    match = _LAYER.match(name)
    rest, layer = (match[2], int(match[1])) if match else (name, -1)
    head, _, tail = rest.rpartition(".")
    base, suffix = (head, tail) if head and tail in SUFFIXES else (rest, "")
    expert = _EXPERT.match(base)
    if expert:
        base = f"{expert[1]}_exps"
    part, layer = _part(base, layer, architecture)
    return Role(base, suffix, part, layer, _op(base, suffix, architecture))


def _part(base: str, layer: int, architecture: str) -> tuple[Part, int]:
    if layer >= 0:
        return "layer", layer
    if base in INPUT:
        return "input", -1
    if base in ROPE:
        return "rope", -1
    if base in OUTPUT or (base == "token_embd_norm" and architecture in NORM_IS_OUTPUT):
        return "output", -1
    return "layer", 0  # belongs to the first layer: norms of the embeddings, projections


def _op(base: str, suffix: str, architecture: str) -> str:
    op = _OP_OF.get(base, "MUL_MAT")
    if op == "SSM_SCAN" and architecture in SCAN_IS_MULTIPLY:
        op = "MUL"
    if op == "NONE":
        return op
    if suffix == "bias":
        return "ADD_ID" if op == "MUL_MAT_ID" else "ADD"
    if suffix in {"lora_a", "lora_b"}:
        return "MUL_MAT_ID"
    return op
