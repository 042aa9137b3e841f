"""One row per architecture of llama.cpp: what it reads, in order, and how its caches are laid out.

A string in `reads` names attributes of `Model` whose keys are read, `!` marks those that must be
there; everything else is a quirk of that family (`sliding`, `recurrent`, `latent`, `steps`).
Source: src/models/*.cpp (load_arch_hparams), src/llama-model.cpp (create_memory,
llama_model_rope_type, llama_model_has_encoder), src/llama-arch.cpp, b10605.
"""

from __future__ import annotations

from kvwise import builds
from kvwise.arch import latent, recurrent, sliding, steps
from kvwise.arch.newer import NEWER
from kvwise.arch.row import Row
from kvwise.arch.row import row_with as _row
from kvwise.arch.sliding import window
from kvwise.arch.steps import SIGMOID, SOFTMAX, SQRT_SOFTPLUS, gating, mtp, put

NORM, NEOX, NONE, MROPE, IMROPE = "norm", "neox", "none", "mrope", "imrope"
_RMS, _LN = "f_norm_rms_eps!", "f_norm_eps!"
_SSM = "ssm_d_conv! ssm_d_inner! ssm_d_state! ssm_dt_rank!"
_SSM2 = _SSM + " ssm_n_group!"
_MLA = "n_lora_kv! n_embd_head_k_mla_impl n_embd_head_v_mla_impl"
_MLA_NEED = "n_lora_kv! n_embd_head_k_mla_impl! n_embd_head_v_mla_impl!"
_WEIGHTS = "expert_weights_scale expert_weights_norm"
_INDEXER = "indexer_n_head! indexer_head_size! indexer_top_k!"
_RWKV6 = (
    "f_norm_eps f_norm_rms_eps wkv_head_size! time_mix_extra_dim! time_decay_extra_dim! "
    "rescale_every_n_layers token_shift_count"
)
_RWKV7 = (
    "f_norm_eps f_norm_rms_eps wkv_head_size! n_lora_decay! n_lora_iclr! n_lora_value_res_mix! "
    "n_lora_gate token_shift_count"
)
_GRANITE = "f_logit_scale! f_residual_scale f_embedding_scale f_attention_scale"
_DEEPSEEK2 = (
    _RMS, "n_layer_dense_lead", latent.query_rank, _MLA, "n_ff_exp! n_expert_shared!", _WEIGHTS,
    "expert_gating_func", latent.gating_by_vocabulary, steps.yarn_log_mul, mtp,
    "f_attn_temp_scale n_attn_temp_floor_scale",
)  # fmt: skip
_ERNIE = (steps.sections(required=False), _RMS)
_QWEN3VL = ("n_deepstack_layers", steps.sections(required=True), _RMS)
_QWEN35 = (_RMS, steps.sections(required=True), _SSM2, mtp, recurrent.interval(4))
_NEMOTRON_H = (
    _SSM2, mtp, recurrent.without_kv_heads_and_ffn, _RMS, _LN,
    "n_ff_exp n_ff_shexp n_expert_shared", _WEIGHTS, "moe_latent_size",
)  # fmt: skip
_HUNYUAN = (_RMS, steps.sections(required=False), steps.xdrope_base)
_DSA = (
    "n_ff_exp!", _RMS, steps.sections(required=False), "n_expert_shared! n_layer_dense_lead",
    _WEIGHTS, "n_lora_q!", _MLA, _INDEXER,
)  # fmt: skip

ROWS: dict[str, Row] = {
    # dense and mixture-of-experts transformers with one KV cache
    "llama": _row(NORM, _RMS),
    "llama-embed": _row(NORM, _RMS),
    "deci": _row(NORM, _RMS),
    "falcon": _row(NEOX, _LN),
    "grok": _row(
        NEOX,
        put(
            yarn_beta_fast=8.0, f_logit_scale=0.5773502691896257,
            f_embedding_scale=78.38367176906169, f_attn_out_scale=0.08838834764831845,
            f_attn_logit_softcapping=30.0, f_router_logit_softcapping=30.0,
            f_final_logit_softcapping=0.0,
        ),
        _RMS,
        "n_ff_exp f_logit_scale f_embedding_scale f_attn_out_scale f_attn_logit_softcapping "
        "f_router_logit_softcapping f_final_logit_softcapping attn_temp_length yarn_ext_factor "
        "yarn_attn_factor yarn_beta_fast yarn_beta_slow",
        split_tensor=False,
    ),
    "gpt2": _row(NONE, _LN),
    "gptneox": _row(NEOX, _LN, "use_par_res!"),
    "mpt": _row(NONE, _LN, "f_clamp_kqv f_max_alibi_bias", split_tensor=False),
    "baichuan": _row(NORM, _RMS, steps.alibi_at(layers=40, bias=8.0)),
    "starcoder": _row(NORM, _LN),
    "refact": _row(NONE, _RMS, put(f_max_alibi_bias=8.0)),
    "bloom": _row(NONE, _LN, put(f_max_alibi_bias=8.0)),
    "stablelm": _row(NEOX, _LN),
    "qwen": _row(NEOX, _RMS),
    "qwen2": _row(NEOX, _RMS),
    "qwen2moe": _row(NEOX, "n_ff_exp n_ff_shexp", _RMS),
    "qwen2vl": _row(MROPE, steps.sections(required=True)),
    "qwen3": _row(NEOX, _RMS),
    "qwen3moe": _row(NEOX, "n_ff_exp", _RMS),
    "qwen3vl": _row(IMROPE, *_QWEN3VL),
    "qwen3vlmoe": _row(IMROPE, *_QWEN3VL, "n_ff_exp"),
    "qwen3tts": _row(IMROPE, *_QWEN3VL, split_tensor=False),
    "phi2": _row(NEOX, _LN),
    "phi3": _row(NEOX, _RMS, "n_swa", sliding.ignored),
    "phimoe": _row(NEOX, _RMS),
    "plamo": _row(NEOX, _RMS),
    "codeshell": _row(NEOX, _LN),
    "orion": _row(NEOX, _LN),
    "internlm2": _row(NORM, _RMS),
    "minicpm": _row(
        NORM, steps.minicpm_scales, _RMS, "f_embedding_scale f_residual_scale f_logit_scale",
        put(rope_finetuned=True),
    ),
    "minicpm3": _row(NEOX, _RMS, "n_lora_q! n_lora_kv!", split_tensor=False),
    "gemma": _row(NEOX, _RMS),
    "starcoder2": _row(NEOX, _LN),
    "xverse": _row(NORM, _RMS),
    "command-r": _row(NORM, "f_logit_scale", _LN),
    "dbrx": _row(NEOX, _LN, "f_clamp_kqv!"),
    "olmo": _row(NORM, _LN, "f_clamp_kqv"),
    "olmoe": _row(NEOX, _RMS, split_tensor=False),
    "openelm": _row(NEOX, _RMS),
    "arctic": _row(NORM, _RMS),
    "deepseek": _row(
        NORM, _RMS, "n_layer_dense_lead n_ff_exp! n_expert_shared! expert_weights_scale"
    ),
    "chatglm": _row(NORM, _RMS),
    "glm4": _row(NORM, _RMS, steps.sections(required=False), mtp, rope_if=("use_mrope", MROPE)),
    "glm4moe": _row(
        NEOX, "n_ff_exp!", _RMS, steps.sections(required=False),
        "n_expert_shared! n_layer_dense_lead", _WEIGHTS, "expert_gating_func", gating(SIGMOID),
        mtp, rope_if=("use_mrope", MROPE),
    ),
    "bitnet": _row(NEOX, _RMS, split_tensor=False),
    "t5": _row(
        NONE, _RMS, "n_rel_attn_bkts!", steps.decoder_layers, encoder=True, split_tensor=False
    ),
    "t5encoder": _row(NONE, _RMS, "n_rel_attn_bkts!", encoder=True, decoder=False),
    "jais": _row(NONE, _LN, "f_max_alibi_bias"),
    "jais2": _row(NEOX, _LN),
    "nemotron": _row(NEOX, _LN),
    "exaone": _row(NEOX, _RMS),
    "granite": _row(
        NORM, _RMS, _GRANITE, steps.deepstack, steps.rope_unless_finetuned, "n_ff_shexp"
    ),
    "granitemoe": _row(NORM, _RMS, _GRANITE, "n_ff_shexp"),
    "graniteswitch": _row(
        NORM, _RMS, _GRANITE, steps.rope_unless_finetuned, "n_ff_shexp", steps.router
    ),
    "chameleon": _row(NORM, _RMS, put(f_norm_eps=1e-5), "swin_norm"),
    "bailingmoe": _row(NORM, _RMS, "n_layer_dense_lead n_ff_exp! n_expert_shared!", _WEIGHTS),
    "bailingmoe2": _row(
        NEOX, _RMS, "n_layer_dense_lead n_ff_exp! n_ff_shexp n_expert_shared!", _WEIGHTS,
        "expert_gating_func!", mtp,
    ),
    "dots1": _row(
        NEOX, _RMS, "n_layer_dense_lead n_ff_exp! n_expert_shared!", _WEIGHTS, "expert_gating_func"
    ),
    "arcee": _row(NORM, _RMS),
    "ernie4_5": _row(NORM, *_ERNIE),
    "ernie4_5-moe": _row(
        NORM, *_ERNIE, "n_ff_exp! n_ff_shexp n_moe_layer_step! n_layer_dense_lead"
    ),
    "paddleocr": _row(MROPE, *_ERNIE),
    "hunyuan-moe": _row(NEOX, _RMS, "n_ff_exp! n_ff_shexp"),
    "hunyuan-dense": _row(NEOX, *_HUNYUAN),
    "hunyuan_vl": _row(NEOX, *_HUNYUAN, rope_if=("use_mrope", MROPE)),
    "hy_v3": _row(
        NEOX, _RMS, "n_ff_exp! n_ff_shexp expert_gating_func", _WEIGHTS, gating(SIGMOID), mtp,
        mtp_kv="apart",
    ),
    "smollm3": _row(NORM, _RMS, put(n_no_rope_layer_step=4)),
    "seed_oss": _row(NEOX, _RMS),
    "grovemoe": _row(NEOX, "n_ff_exp! n_ff_chexp expert_group_scale! n_group_experts!", _RMS),
    "apertus": _row(
        NEOX, _RMS,
        steps.per_layer("xielu_alpha_n", "xielu_alpha_p", "xielu_beta", "xielu_eps", required=True),
    ),
    "minimax-m2": _row(NEOX, _RMS, "n_ff_exp! expert_gating_func", split_tensor=False),
    "cogvlm": _row(NEOX, _RMS),
    "pangu-embedded": _row(NEOX, _RMS),
    "mistral3": _row(
        NORM, _RMS, "f_attn_temp_scale yarn_beta_fast yarn_beta_slow rope_yarn_log_mul",
        steps.temperature_from_context,
    ),
    "maincoder": _row(NORM, _RMS),
    "talkie": _row(NEOX, _RMS, "f_logit_scale!"),
    "nanbeige": _row(NORM, _RMS, steps.loops),
    "pockettts": _row(NORM, _LN),
    "plm": _row(NORM, _RMS, "n_lora_kv!"),
    "eagle3": _row(
        NORM, _RMS, latent.targets(3), "norm_before_residual norm_before_fc", encoder=True
    ),
    # sliding windows
    "llama4": _row(NORM, _RMS, "n_ff_exp! n_moe_layer_step!", sliding.chunked(8192)),
    "gemma2": _row(
        NEOX, put(n_swa=4096, attn_soft_cap=True), window(2), "n_swa", _RMS,
        "f_attn_logit_softcapping f_final_logit_softcapping", steps.head_scale(46),
    ),
    "gemma3": _row(
        NEOX, "n_swa", window(6, optional=True, rope="default"),
        put(f_final_logit_softcapping=0.0), "f_final_logit_softcapping", _RMS, steps.head_scale(62),
    ),
    "gemma3n": _row(
        NEOX, window(5, rope="default"), sliding.first_layers_own_kv(20),
        put(f_attention_scale=1.0), "n_swa!", _RMS, split_tensor=False,
    ),
    "gemma4": _row(
        NEOX, sliding.listed, sliding.shared_kv, put(f_attention_scale=1.0), "n_ff_exp n_swa!",
        _RMS, "n_embd_per_layer! n_embd_head_k_swa! n_embd_head_v_swa! f_final_logit_softcapping",
    ),
    "gemma4-assistant": _row(
        NEOX, steps.input_as_output, sliding.listed, "n_kv_shared_layers",
        put(f_attention_scale=1.0), steps.only_mtp, "n_swa!", _RMS,
        "n_embd_head_k_swa! n_embd_head_v_swa!", family="borrowed",
    ),
    "cohere2": _row(NORM, window(4), "n_swa! f_logit_scale!", _LN),
    "cohere2moe": _row(
        NORM, steps.either_norm, "n_swa! f_logit_scale! n_layer_dense_lead! n_ff_exp! n_ff_shexp "
        "n_expert_shared", _WEIGHTS, "expert_gating_func", mtp, gating(SIGMOID),
        window(4, dense_first=True, or_listed=True),
    ),
    "olmo2": _row(
        NEOX, _RMS, "n_swa", window(4, optional=True, rope="unscaled"), split_tensor=False
    ),
    "muse-glimmer": _row(
        NORM, _RMS, "n_swa! f_final_logit_softcapping f_logit_scale!",
        window(4, or_listed=True, rope="unscaled"),
    ),
    "plamo3": _row(NEOX, _RMS, "n_swa", window(8, optional=True, rope="default")),
    "exaone4": _row(NEOX, mtp, sliding.only_with_layers(64, 4096, 4), "n_swa", _RMS),
    "exaone-moe": _row(
        NEOX, put(n_swa=128), window(4), "n_swa!", _RMS, "n_expert_shared n_ff_exp! n_ff_shexp "
        "expert_gating_func!", _WEIGHTS, "n_layer_dense_lead", mtp,
    ),
    "granite_swa": _row(
        NORM, _RMS, _GRANITE, sliding.listed_array, "n_swa!", steps.deepstack, steps.rope_listed,
        "n_ff_shexp",
    ),
    "afmoe": _row(
        NEOX, _RMS, "n_layer_dense_lead n_ff_exp! n_expert_shared! expert_gating_func", _WEIGHTS,
        "n_swa", window(4, optional=True), gating(SIGMOID),
    ),
    "laguna": _row(
        NEOX, _RMS, "n_layer_dense_lead! n_ff_exp! expert_gating_func", _WEIGHTS,
        put(n_expert_shared=1), "n_expert_shared n_ff_shexp", steps.shared_expert_width, "n_swa",
        window(4, optional=True, dense_first=True, rope="unscaled"), gating(SIGMOID),
    ),
    "gpt-oss": _row(NEOX, _RMS, "n_ff_exp! n_swa!", window(2)),
    "smallthinker": _row(
        NEOX, "n_swa", sliding.fixed_when_present(4096, 4), "n_ff_exp", _RMS, "expert_gating_func"
    ),
    "mellum": _row(NEOX, _RMS, "n_ff_exp! n_swa", window(4, optional=True, or_listed=True)),
    "mimo2": _row(
        NEOX, _RMS, "n_ff_exp! n_swa!", sliding.listed, steps.value_scale, mtp, mtp_kv="apart"
    ),
    "step35": _row(
        NEOX, _RMS, steps.half_rope, "n_ff_exp! n_ff_shexp expert_gating_func", _WEIGHTS,
        gating(SIGMOID), "n_swa!", sliding.listed,
        steps.per_layer("swiglu_clamp_exp", "swiglu_clamp_shexp"), mtp, mtp_kv="apart",
    ),
    "dflash": _row(
        NEOX, _RMS, "f_embedding_scale f_attn_value_scale f_logit_scale", latent.targets(),
        latent.draft_window, steps.sections(required=False),
        encoder=True,
        rope_if=("dsv4_hc_mult", NORM),
        rope_later=(builds.ROPE_BY_SECTIONS, "rope_sections", MROPE),
    ),
    # latent attention
    "deepseek2": _row(NORM, *_DEEPSEEK2, split_tensor=False),
    "mistral4": _row(NORM, *_DEEPSEEK2, split_tensor=False),
    "deepseek2-ocr": _row(
        NORM, _RMS, "n_layer_dense_lead n_ff_exp! n_expert_shared!", _WEIGHTS, "expert_gating_func",
        gating(SOFTMAX),
    ),
    "deepseek32": _row(
        NORM, put(f_norm_eps=1e-6), *_DSA, "expert_gating_func!", steps.yarn_log_mul, mtp,
        latent.every_indexer,
        family="indexed", mtp_kv="apart", split_tensor=False,
    ),
    "glm-dsa": _row(
        NORM, *_DSA, "expert_gating_func", gating(SIGMOID), mtp, latent.full_indexers,
        family="indexed", mtp_kv="apart", split_tensor=False,
    ),
    "dots3note": _row(
        NORM, _RMS, put(f_norm_eps=1e-6), mtp,
        "n_expert_shared! n_ff_exp! n_layer_dense_lead!", _WEIGHTS, "expert_gating_func! n_lora_q!",
        _MLA_NEED, "n_lora_kv_swa! n_embd_head_k_mla_swa! n_embd_head_v_mla_swa! n_swa! "
        "rope_freq_base_train_swa!", sliding.listed_array, _INDEXER, latent.listed_indexers,
        family="indexed", mtp_kv="apart", split_tensor=False,
    ),
    "minimax-m3": _row(
        NEOX, _RMS, "n_layer_dense_lead n_ff_exp! n_expert_shared!", _WEIGHTS,
        "expert_gating_func!", _INDEXER, "indexer_block_size! indexer_local_blocks!",
        steps.need_size("indexer_block_size"), family="blocks", split_tensor=False,
    ),
    "deepseek4": _row(
        NORM, latent.mtp_if_complete, _RMS,
        "n_lora_q! n_swa! n_ff_exp! n_expert_shared! expert_weights_scale! expert_weights_norm!",
        steps.swiglu_clamps, _INDEXER,
        "dsv4_o_group_count! dsv4_o_lora_rank! dsv4_compress_rope_base! dsv4_hc_mult! "
        "dsv4_hc_sinkhorn_iters! dsv4_hc_eps! dsv4_hash_layer_count!",
        latent.compression, "expert_gating_func!", steps.gating_must_be(SQRT_SOFTPLUS),
        sliding.every_layer, family="compressed", mtp_kv="apart", rollback=True,
    ),
    # states instead of KV
    "mamba": _row(
        NONE, _SSM, "ssm_dt_b_c_rms", _RMS, family="recurrent", split_tensor=False
    ),
    "mamba2": _row(NONE, _SSM2, _RMS, family="recurrent", split_tensor=False),
    "rwkv6": _row(NONE, _RWKV6, family="recurrent"),
    "rwkv6qwen2": _row(NONE, _RWKV6, family="recurrent"),
    "rwkv7": _row(NONE, _RWKV7, family="recurrent"),
    "arwkv7": _row(NONE, _RWKV7, family="recurrent"),
    # both
    "jamba": _row(
        NONE, _SSM, _RMS, recurrent.without_kv_heads, family="hybrid", split_tensor=False
    ),
    "falcon-h1": _row(
        NEOX, _RMS, _SSM2, recurrent.every_layer, family="hybrid", hybrid="all", split_tensor=False
    ),
    "plamo2": _row(
        NEOX, _RMS, _SSM2, "n_embd_head_k_full n_embd_head_v_full", recurrent.without_kv_heads,
        family="hybrid", split_tensor=False,
    ),
    "granitehybrid": _row(
        NORM, _RMS, "f_logit_scale f_residual_scale f_embedding_scale f_attention_scale", _SSM2,
        steps.rope_unless_finetuned, recurrent.without_kv_heads, "n_ff_shexp", family="hybrid",
        split_tensor=False,
    ),
    "lfm2": _row(
        NEOX, "n_shortconv_l_cache!", _RMS, recurrent.without_kv_heads, steps.all_dense, "n_swa",
        sliding.attention_layers, family="hybrid", rollback=True,
    ),
    "lfm2moe": _row(
        NEOX, "n_shortconv_l_cache!", _RMS, "n_layer_dense_lead n_ff_exp! expert_gating_func!",
        recurrent.without_kv_heads, family="hybrid", rollback=True,
    ),
    "nemotron_h": _row(
        NONE, *_NEMOTRON_H, family="hybrid", hybrid="bare", rollback=True, split_tensor=False
    ),
    "nemotron_h_moe": _row(
        NONE, *_NEMOTRON_H, family="hybrid", hybrid="bare", mtp_kv="apart", rollback=True,
        split_tensor=False,
    ),
    "qwen3next": _row(
        NEOX, "n_ff_exp n_ff_shexp", _RMS, _SSM2, mtp, recurrent.interval(4), family="hybrid",
        hybrid="trunk", mtp_kv="apart",
    ),
    "qwen35": _row(
        IMROPE, *_QWEN35, family="hybrid", hybrid="trunk", mtp_kv="apart", rollback=True
    ),
    "qwen35moe": _row(
        IMROPE, "n_ff_exp n_ff_shexp", *_QWEN35, family="hybrid", hybrid="trunk", mtp_kv="apart",
        rollback=True,
    ),
    "kimi-linear": _row(
        NONE, _RMS, _MLA_NEED, "ssm_d_conv! n_embd_head_kda!", recurrent.without_kv_heads,
        "n_ff_exp! n_expert_shared! n_layer_dense_lead expert_weights_scale expert_gating_func!",
        family="hybrid", split_tensor=False,
    ),
    "kimi-k3": _row(
        NONE, _RMS, "n_lora_q", _MLA_NEED, "ssm_d_conv! n_embd_head_kda! kda_gate_lower_bound",
        latent.values_are_latent, recurrent.without_kv_heads,
        "n_ff_exp! n_expert_shared! n_layer_dense_lead", _WEIGHTS,
        "expert_gating_func! n_expert_latent attn_res_block_size! situ_beta! situ_linear_beta!",
        family="hybrid", split_tensor=False, rollback_since=builds.K3_SNAPSHOTS,
    ),
    "bailingmoe3": _row(
        NORM, _RMS, "n_lora_q", _MLA_NEED, "ssm_d_conv! n_embd_head_kda!", recurrent.safe_gate,
        "n_ff_exp! n_ff_shexp n_expert_shared! n_layer_dense_lead!", _WEIGHTS,
        "expert_gating_func!", steps.nextn, steps.swiglu_clamps_if_any, steps.shared_expert_width,
        recurrent.without_kv_heads, steps.sections(required=False), family="hybrid",
        mtp_kv="apart", rollback=True, split_tensor=False,
        rope_later=(builds.ROPE_BY_SECTIONS, "use_mrope", MROPE),
    ),
    "minimax-01": _row(
        NEOX, _RMS, "f_residual_scale!", recurrent.linear_attention, recurrent.interval(8),
        family="hybrid", hybrid="trunk", split_tensor=False,
    ),
    # no cache
    "bert": _row(NEOX, _LN, family="none"),
    "modern-bert": _row(
        NEOX, "n_swa", window(3, kind="symmetric", optional=True, dense_first=True, rope="default"),
        _LN, steps.feed_forward_op, family="none",
    ),
    "nomic-bert": _row(NEOX, _LN, "moe_every_n_layers", family="none"),
    "nomic-bert-moe": _row(NEOX, _LN, "moe_every_n_layers", family="none"),
    "neo-bert": _row(NORM, _RMS, family="none"),
    "jina-bert-v2": _row(NONE, _LN, put(f_max_alibi_bias=8.0), family="none"),
    "jina-bert-v3": _row(NEOX, _LN, family="none"),
    "eurobert": _row(NEOX, _RMS, family="none"),
    "gemma-embedding": _row(
        NEOX, window(6, kind="symmetric", rope="default"), put(causal_attn=False), "n_swa!", _RMS,
        "dense_2_feat_in dense_2_feat_out dense_3_feat_in dense_3_feat_out",
        steps.equals_embedding("dense_2_feat_in", "dense_3_feat_out"), steps.head_scale(-1),
        family="none",
    ),
    "wavtokenizer-dec": _row(NONE, _LN, "f_norm_group_eps! n_norm_groups!", family="none"),
    "dream": _row(NEOX, _RMS, put(causal_attn=False), family="none", diffusion=True),
    "llada": _row(NORM, _RMS, put(causal_attn=False), family="none", diffusion=True),
    "llada-moe": _row(
        NEOX, "n_ff_exp", _RMS, put(causal_attn=False), family="none", diffusion=True
    ),
    "rnd1": _row(NEOX, "n_ff_exp", _RMS, put(causal_attn=False), family="none", diffusion=True),
} | NEWER  # fmt: skip
