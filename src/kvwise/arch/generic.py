"""The keys every architecture has, read in llama.cpp's order.

Source: src/llama-model.cpp (llama_model_base::load_hparams), b10605.
"""

from __future__ import annotations

from kvwise.arch.draft import Draft
from kvwise.errors import ModelError
from kvwise.gguf.header import ArrayInfo
from kvwise.gguf.model import MAX_EXPERTS, MAX_LAYERS

_POOLING = ("none", "mean", "cls", "last", "rank")
_ONE_EXPERT_IS_DENSE = {"hunyuan_vl", "hunyuan-dense"}
_ROPE_IS_WHOLE_HEAD = {"llama", "deci", "falcon", "llama-embed"}
_SCALING = {"none", "linear", "yarn", "longrope"}


def read_generic(draft: Draft) -> None:
    """Sizes, experts, heads, rope; raises ModelError when a needed key is absent or absurd."""
    draft["name"] = draft.scalar("general.name", "str") or ""
    draft["path"] = draft.header.path
    draft["n_vocab"] = _n_vocab(draft)
    draft.read("n_ctx_train", required=True)
    draft.read("n_embd", required=True)
    draft.read("n_embd_out_impl")
    draft.read("causal_attn")
    _read_pooling(draft)
    draft.read("n_layer_all", required=True)
    layers = draft["n_layer_all"]
    draft.need(0 < layers <= MAX_LAYERS, "{layers} layers is not between 1 and 512", layers=layers)
    _read_experts(draft)
    if draft.header.architecture == "wavtokenizer-dec":
        _read_wavtokenizer(draft)
    draft.read_or_array("n_ff", layers)
    draft.read_or_array("n_head", layers)
    draft["n_head_kv"] = list(draft["n_head"])
    draft.read_or_array("n_head_kv", layers)
    _read_rope(draft)
    _read_heads(draft)
    labels = draft.raw(".classifier.output_labels")
    if isinstance(labels, (tuple, ArrayInfo)) and len(labels):
        draft["n_cls_out"] = len(labels)


def _n_vocab(draft: Draft) -> int:
    """Tokens of the vocabulary: the list's length, or the stated size when there is no list."""
    tokens = draft.raw("tokenizer.ggml.tokens")
    listed = draft.raw("tokenizer.ggml.model") not in {"no_vocab", "none"}
    if listed and isinstance(tokens, (tuple, ArrayInfo)):
        return len(tokens)
    return int(draft.scalar(".vocab_size", "int") or 0)


def _read_pooling(draft: Draft) -> None:
    pooling = draft.scalar(".pooling_type", "int")
    if pooling is not None:
        draft.need(pooling < len(_POOLING), "unknown pooling type {pooling}", pooling=pooling)
        draft["pooling_type"] = _POOLING[pooling]


def _read_experts(draft: Draft) -> None:
    for name in ("n_expert", "n_expert_used", "n_expert_groups", "n_group_used"):
        draft.read(name)
    if draft.header.architecture in _ONE_EXPERT_IS_DENSE and draft["n_expert"] <= 1:
        draft["n_expert"] = draft["n_expert_used"] = 0
    experts, used, groups = draft["n_expert"], draft["n_expert_used"], draft["n_expert_groups"]
    draft.need(experts <= MAX_EXPERTS, "{experts} experts are too many", experts=experts)
    what = "{used} of {experts} experts used is not possible"
    draft.need(used <= experts and (used > 0) == (experts > 0), what, used=used, experts=experts)
    grouped = groups == 0 or groups < experts
    if groups > 1:
        grouped = grouped and experts % groups == 0 and 0 < draft["n_group_used"] < groups
    what = "{experts} experts in {groups} groups is not possible"
    draft.need(grouped, what, experts=experts, groups=groups)


def _read_wavtokenizer(draft: Draft) -> None:
    draft["n_embd"] = draft.scalar(".features_length", "int", required=True)
    draft.read("n_embd_out_impl")
    draft["n_embd_out_impl"] = draft.scalar(".embedding_length", "int", required=True)
    for name in ("posnet_n_embd", "posnet_n_layer", "convnext_n_embd", "convnext_n_layer"):
        draft.read(name, required=True)
    for name in ("posnet_n_layer", "convnext_n_layer"):
        draft.need(draft[name] <= draft["n_layer_all"], "{name} exceeds the layers", name=name)


def _read_rope(draft: Draft) -> None:
    draft.read("rope_finetuned")
    draft["n_ctx_orig_yarn"] = draft["n_ctx_train"]
    draft.read("n_ctx_orig_yarn")
    draft.read("rope_freq_base_train")
    draft.read("rope_scaling_type")
    scaling = draft["rope_scaling_type"]
    draft.need(scaling in _SCALING, "unknown rope scaling {scaling}", scaling=scaling)
    factor = draft.scalar(".rope.scaling.factor", "float")
    if factor is None:
        factor = draft.scalar(".rope.scale_linear", "float")
    draft["rope_freq_scale_train"] = 1.0 / factor if factor else 1.0
    draft.read("rope_attn_factor")
    draft.read("rope_scaling_alpha")


def _read_heads(draft: Draft) -> None:
    """Head sizes; models without attention heads have none."""
    heads = draft["n_head"][0]
    if heads > 0:
        draft["n_embd_head_k_full"] = draft["n_embd_head_v_full"] = draft["n_embd"] // heads
        draft.read("n_embd_head_k_full")
        draft.read("n_embd_head_v_full")
        draft["n_rot_full"] = draft["n_embd_head_k_full"]
        draft.read("n_rot_full")
        _check_rope(draft)
    draft["n_embd_head_k_swa"] = draft["n_embd_head_k_full"]
    draft["n_embd_head_v_swa"] = draft["n_embd_head_v_full"]
    draft.read("n_embd_head_k_swa")
    draft.read("n_embd_head_v_swa")
    draft["n_rot_swa"] = draft["n_rot_full"]
    draft.read("n_rot_swa")


def _check_rope(draft: Draft) -> None:
    rot, head = draft["n_rot_full"], draft["n_embd_head_k_full"]
    if draft.header.architecture in _ROPE_IS_WHOLE_HEAD and rot != head:
        raise ModelError(
            "rope covers {rot} of {head} dimensions, which llama.cpp refuses for {architecture}",
            rot=rot,
            head=head,
            architecture=draft.header.architecture,
        )
