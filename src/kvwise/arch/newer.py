"""Architectures that came after b10605: rows like those of `table.py`, valid from b11549 on.

Source: src/models/*.cpp (load_arch_hparams), src/llama-model.cpp (create_memory,
llama_model_rope_type), src/llama-arch.cpp, b11549.
"""

from __future__ import annotations

from functools import partial

from kvwise.arch import latent, recurrent, sliding, steps
from kvwise.arch.draft import Draft
from kvwise.arch.row import Row, row_with
from kvwise.arch.steps import SIGMOID, gating, mtp, put
from kvwise.builds import NEWER_ARCHITECTURES
from kvwise.gguf.model import MAX_LAYERS

_row = partial(row_with, since=NEWER_ARCHITECTURES)
_RMS = "f_norm_rms_eps!"
_WEIGHTS = "expert_weights_scale expert_weights_norm"
_SSM2 = "ssm_d_conv! ssm_d_inner! ssm_d_state! ssm_dt_rank! ssm_n_group!"
_MLA = "n_lora_q! n_lora_kv! n_embd_head_k_mla_impl! n_embd_head_v_mla_impl!"
_INDEXER = "indexer_n_head! indexer_head_size! indexer_top_k!"


def _value_experts(draft: Draft) -> None:
    """K2 Horizon: values may come out of experts of their own."""
    draft.read("n_value_expert")
    draft.read("n_value_expert_used")
    count, used = draft["n_value_expert"], draft["n_value_expert_used"]
    sound = used <= count and (used > 0) == (count > 0)
    draft.need(sound, "{used} of {count} value experts used", used=used, count=count)


def _experts_if_any(draft: Draft) -> None:
    if draft["n_norm_groups"] == 0:
        draft["n_norm_groups"] = 1
    if draft["n_expert"] > 0:
        steps.take("n_ff_exp! n_layer_dense_lead moe_every_n_layers n_expert_shared n_ff_shexp "
                   f"{_WEIGHTS} expert_gating_func")(draft)  # fmt: skip
        gating(SIGMOID)(draft)


def _cycles(draft: Draft) -> None:
    """HRM-Text: two stacks that run in turns; every run of a layer has a cache of its own."""
    low, high = draft["hrm_l_cycles"], draft["hrm_h_cycles"]
    slots = draft["hrm_layers_per_stack"] * high * (low + 1)
    sound = low > 0 and high > 0 and slots == draft["n_layer_all"]
    draft.need(sound, "{slots} runs of layers in {layers} blocks", slots=slots,
               layers=draft["n_layer_all"])  # fmt: skip


def _chosen_if_any(draft: Draft) -> None:
    """Hy 4: checkpoints without a sparse layer have no indexer."""
    steps.take("indexer_n_head indexer_head_size indexer_top_k")(draft)
    if draft["indexer_top_k"] == 0:
        return
    heads, size = draft["indexer_n_head"], draft["indexer_head_size"]
    draft.need(heads > 0 and size > draft["n_rot_full"], "the indexer's heads do not fit")
    draft.read_or_array("indexer_full", draft.n_layer)
    draft.need(draft["indexer_full"][0], "the first layer has no indexer")


def _pools(draft: Draft) -> None:
    """GLM 5 Next: indexer keys are pooled; each cell keeps key, gate and pooled key."""
    size = draft["indexer_kpool"]
    sound = size > 1 and draft["indexer_top_k"] % size == 0
    draft.need(sound, "pools of {size} keys", size=size)
    draft["indexer_kpool_row"] = 3
    draft["indexer_full"] = [True] * MAX_LAYERS
    draft.read_or_array("indexer_full", draft.n_layer)
    draft.need(draft["dsv4_hc_mult"] == 4, "{count} streams", count=draft["dsv4_hc_mult"])


def _blocks(draft: Draft) -> None:
    """Qwen 4: one size of block for the pooled indexer keys of all layers."""
    draft.read_or_array("dsv4_compress_ratios", draft["n_layer_all"])
    ratios = {ratio for ratio in draft["dsv4_compress_ratios"] if ratio}
    draft.need(len(ratios) < 2, "several compress ratios")
    ratio = ratios.pop() if ratios else 0
    sound = ratio != 1 and (not ratio or draft["indexer_top_k"] % ratio == 0)
    draft.need(sound, "a compress ratio of {ratio}", ratio=ratio)
    draft["indexer_kpool"], draft["indexer_kpool_row"] = ratio, 2
    draft["n_embd_out_impl"] = draft["dsv4_hc_mult"] * draft["n_embd"]


def _ngrams(draft: Draft) -> None:
    """Qwen 4: one layer adds embeddings of n-grams, behind a convolution with a state."""
    layers = draft.array(".ple.layers") or ()
    if not layers:
        return
    draft.need(len(layers) == 1, "{count} layers with n-grams", count=len(layers))
    draft.need(0 <= layers[0] < draft["n_layer_all"], "n-grams in layer {il}", il=layers[0])
    draft["ple_layer"] = layers[0]
    steps.take("ple_ngram_size! ple_heads_per_ngram! ple_conv_kernel! n_embd_per_layer!")(draft)
    grams, kernel = draft["ple_ngram_size"], draft["ple_conv_kernel"]
    draft.need(2 <= grams <= 8 and kernel > 0, "{grams}-grams", grams=grams)


def _decision(draft: Draft) -> None:
    """Clef: a head that scores options; its output is one number per row."""
    for key in (".decision.routing_block_count", ".decision.block_count", ".decision.head_count"):
        draft.scalar(key, "int", required=True)
    draft.read("f_norm_eps", required=True)
    draft["n_embd_out_impl"] = 1


NEWER: dict[str, Row] = {
    "maple": _row(
        "neox", _RMS, "n_swa! n_ff_exp!", sliding.listed_array, sliding.swa_rope,
        steps.per_layer("swiglu_clamp_exp", required=True),
    ),
    "spark2_5": _row("neox", _RMS, "n_swa!", sliding.listed_array, sliding.swa_rope),
    "hrm_text": _row(
        "neox", _RMS, "f_embedding_scale hrm_layers_per_stack! hrm_h_cycles! hrm_l_cycles!",
        _cycles,
    ),
    "k2-horizon": _row(
        "neox", "yarn_beta_fast yarn_beta_slow", _RMS, "n_norm_groups", _experts_if_any,
        _value_experts,
    ),
    "hy_v4": _row(
        "norm", _RMS, "n_layer_dense_lead", _MLA, "n_ff_exp! n_expert_shared!", _WEIGHTS,
        "expert_gating_func", steps.per_layer("swiglu_clamp_exp"),
        "dsv4_hc_mult! dsv4_hc_eps! hc_magnitude!", latent.every_indexer, _chosen_if_any,
        family="indexed", split_tensor=False,
    ),
    "glm5-next": _row(
        "none", _RMS, "f_norm_eps", _MLA, "ssm_d_conv! n_embd_head_kda! kda_gate_lower_bound",
        latent.values_are_latent, recurrent.without_kv_heads,
        "n_ff_exp! n_expert_shared! n_layer_dense_lead", _WEIGHTS, "expert_gating_func",
        gating(SIGMOID), mtp, steps.swiglu_clamps_if_any, _INDEXER,
        "indexer_kpool! dsv4_hc_mult! dsv4_hc_sinkhorn_iters! dsv4_hc_eps!", _pools,
        family="pooled", hybrid="trunk", mtp_kv="apart", rollback=True, split_tensor=False,
    ),
    "qwen4exp": _row(
        "imrope", "n_ff_exp n_ff_shexp", _RMS, steps.sections(required=True), _SSM2,
        steps.need_size("ssm_d_conv", "ssm_d_inner", "ssm_d_state", "ssm_dt_rank", "ssm_n_group"),
        mtp, "dsv4_hc_mult! hc_low_rank!", _INDEXER, _blocks, _ngrams, recurrent.interval(4),
        family="pooled", hybrid="trunk", mtp_kv="apart", rollback=True,
    ),
    "clef": _row(
        "imrope", _RMS, steps.sections(required=True), _SSM2, mtp, recurrent.interval(4),
        _decision, family="none",
    ),
    "gemma-embedding2": _row(
        "neox", sliding.pattern(6, kind="symmetric"), put(causal_attn=False, f_attention_scale=1.0),
        "n_swa!", _RMS, "n_embd_per_layer!", family="none",
    ),
}  # fmt: skip
