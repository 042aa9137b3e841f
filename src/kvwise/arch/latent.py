"""Latent attention (MLA), its sparse indexers, DeepSeek-V4 and draft heads.

Source: src/models/*.cpp (load_arch_hparams), b10605.
"""

from __future__ import annotations

from kvwise.arch import sliding, steps
from kvwise.arch.draft import Draft, Step
from kvwise.gguf.model import MAX_LAYERS

_LONG_CONTEXT = 1048576  # GLM-5.2 and later
_FIRST_FULL, _FULL_EVERY, _LISTED = 2, 4, 78  # its indexers when the file lists none


def query_rank(draft: Draft) -> None:
    """DeepSeek-V2: the lite models, told by layers and vocabulary, do not compress queries."""
    layers, vocabulary = draft.n_layer, _vocabulary(draft)
    lite = layers in {26, 27} or (layers == 48 and vocabulary == 128256)
    if not lite:
        draft.read("n_lora_q", required=True)


def gating_by_vocabulary(draft: Draft) -> None:
    """GLM-4.7-Flash-like files do not name their gating function."""
    if draft["expert_gating_func"] == 0:
        glm = draft.n_layer in {47, 48} and _vocabulary(draft) == 154880
        draft["expert_gating_func"] = steps.SIGMOID if glm else steps.SOFTMAX


def _vocabulary(draft: Draft) -> int:
    stated = draft.scalar(".vocab_size", "int")
    return int(draft["n_vocab"] if stated is None else stated)


def values_are_latent(draft: Draft) -> None:
    """Kimi K3: values are as wide as the latent."""
    draft["n_embd_head_v_full"] = draft["n_lora_kv"]


def full_indexers(draft: Draft) -> None:
    """GLM DSA: which layers choose their own tokens; the others reuse the choice."""
    if draft["n_ctx_train"] < _LONG_CONTEXT:
        draft["indexer_full"] = [True] * MAX_LAYERS
    else:
        draft["indexer_full"] = [_full_by_default(il) for il in range(MAX_LAYERS)]
    draft.read_or_array("indexer_full", draft.n_layer)


def _full_by_default(il: int) -> bool:
    return il < _FIRST_FULL or (il < _LISTED and (il - _FIRST_FULL) % _FULL_EVERY == 0)


def every_indexer(draft: Draft) -> None:
    """DeepSeek-V3.2: every layer chooses its own tokens."""
    draft["indexer_full"] = [True] * MAX_LAYERS


def listed_indexers(draft: Draft) -> None:
    draft.read_array("indexer_full", required=True)


def mtp_if_complete(draft: Draft) -> None:
    """DeepSeek-V4: MTP layers count only if the file really holds them."""
    draft.read("n_layer_nextn")
    nextn, layers = draft["n_layer_nextn"], draft["n_layer_all"]
    if 0 < nextn < layers:
        probe = f"blk.{layers - nextn}.nextn.eh_proj.weight"
        if probe not in draft.header.by_name:
            draft["n_layer_nextn"] = 0
    draft.need(draft["n_layer_nextn"] < layers, "{nextn} MTP layers", nextn=nextn)


def compression(draft: Draft) -> None:
    """DeepSeek-V4: tokens per compressed cell, for each layer; outputs are mixed streams."""
    draft["n_embd_out_impl"] = draft["dsv4_hc_mult"] * draft["n_embd"]
    ratios = draft.array(".attention.compress_ratios", required=True) or ()
    draft.need(len(ratios) >= draft["n_layer_all"], "fewer compress ratios than layers")
    draft.read_array("dsv4_compress_ratios", required=True)


def targets(count: int | None = None) -> Step:
    """A draft head lists the target layers whose features it takes."""

    def step(draft: Draft) -> None:
        ids = draft.array(".target_layers", required=True) or ()
        draft.need(count in {None, len(ids)}, "{got} target layers", got=len(ids))
        draft["target_layers"] = ids
        if count is not None:
            draft.read("target_hidden_size", required=True)
        width = draft["target_hidden_size"] or draft["n_embd"]
        draft["n_embd_inp_enc_impl"] = len(ids) * width

    return step


_DSPARK = (
    "n_lora_q! n_swa! n_ff_exp! n_expert_shared! expert_weights_scale! expert_weights_norm! "
    "expert_gating_func!"
)
_DSPARK_OUTPUT = "dsv4_o_group_count! dsv4_o_lora_rank! dsv4_hc_sinkhorn_iters! dsv4_hc_eps!"


def draft_window(draft: Draft) -> None:
    """DFlash: a DeepSeek-V4 drafter has the window everywhere, an older one lists its layers."""
    draft.read("dsv4_hc_mult")
    if draft["dsv4_hc_mult"] == 0:
        if draft.read("n_swa") and draft["n_swa"] > 0:
            sliding.listed_array(draft)
            draft["rope_freq_base_train_swa"] = draft["rope_freq_base_train"]
            draft["rope_freq_scale_train_swa"] = draft["rope_freq_scale_train"]
        return
    steps.take(_DSPARK)(draft)
    steps.swiglu_clamps(draft)
    steps.take(_DSPARK_OUTPUT)(draft)
    draft.read_array("dsv4_compress_ratios")
    steps.need_size("dsv4_o_group_count", "n_swa")(draft)
    steps.gating_must_be(steps.SQRT_SOFTPLUS)(draft)
    plain = not any(draft["dsv4_compress_ratios"][: draft["n_layer_all"]])
    draft.need(plain, "a draft stage compresses its cache")
    sliding.every_layer(draft)
    draft["rope_freq_base_train_swa"] = draft["rope_freq_base_train"]
    draft["rope_freq_scale_train_swa"] = draft["rope_freq_scale_train"]
