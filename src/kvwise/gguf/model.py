"""A model as llama.cpp understands it: layers, heads, experts, windows; knows no engine.

Attributes carry the names of llama.cpp's `llama_hparams` (src/llama-hparams.h, b10605), without
its `_impl` and `_arr` endings, and the same defaults. Per-layer attributes are tuples of length
`n_layer_all`. Which keys an architecture really reads, and its quirks, is the business of
`kvwise.arch`; `arch.describe(header)` builds a `Model`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import PurePath
from typing import Any, TypeVar

from kvwise.gguf.header import Header

MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
MAX_EXPERTS = 1024  # LLAMA_MAX_EXPERTS

T = TypeVar("T")


def _key(key: str, default: T) -> T:
    """A field read from `key`; a leading dot stands for the architecture's name."""
    value: Any = field(default=default, metadata={"key": key})
    return value  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Model:
    """What a header says about the model, resolved by the rules of its architecture.

    Compared by identity, so that facts derived from a model can be kept beside it.
    """

    header: Header
    architecture: str
    name: str = ""
    path: str = ""

    # what the architecture is (llama-arch.cpp, llama-model.cpp)
    family: str = "attention"  # the rule that lays out its caches: a row of arch/table.py
    verified: bool = False  # our rules cover this architecture of this build
    is_recurrent: bool = False
    is_hybrid: bool = False
    is_diffusion: bool = False
    has_encoder: bool = False
    has_decoder: bool = True
    supports_rs_rollback: bool = False
    supports_sm_tensor: bool = True
    rope_type: str = "none"  # none, norm, neox, mrope, imrope

    # sizes
    n_vocab: int = 0
    n_ctx_train: int = _key(".context_length", 0)
    n_embd: int = _key(".embedding_length", 0)
    n_embd_out_impl: int = _key(".embedding_length_out", 0)
    n_embd_inp_impl: int = 0
    n_embd_inp_enc_impl: int = 0
    n_embd_per_layer: int = _key(".embedding_length_per_layer_input", 0)
    n_layer_all: int = _key(".block_count", 0)
    n_layer_nextn: int = _key(".nextn_predict_layers", 0)
    dec_n_layer: int = _key(".decoder_block_count", 0)
    n_cls_out: int = 1
    n_deepstack_layers: int = _key(".n_deepstack_layers", 0)
    deepstack_mapping: tuple[int, ...] = _key(".deepstack_mapping", ())
    hrm_layers_per_stack: int = _key(".hrm.layers_per_stack", 0)
    hrm_h_cycles: int = _key(".hrm.h_cycles", 0)
    hrm_l_cycles: int = _key(".hrm.l_cycles", 0)
    n_loops: int = _key(".num_loops", 1)
    router_layer: int = -1
    n_adapters: int = _key(".adapters.count", 0)
    adapter_lora_rank: int = _key(".adapters.lora_rank", 0)
    target_layers: tuple[int, ...] = _key(".target_layers", ())
    target_hidden_size: int = _key(".target_hidden_size", 0)
    dense_2_feat_in: int = _key(".dense_2_feat_in", 0)
    dense_2_feat_out: int = _key(".dense_2_feat_out", 0)
    dense_3_feat_in: int = _key(".dense_3_feat_in", 0)
    dense_3_feat_out: int = _key(".dense_3_feat_out", 0)
    posnet_n_embd: int = _key(".posnet.embedding_length", 0)
    posnet_n_layer: int = _key(".posnet.block_count", 0)
    convnext_n_embd: int = _key(".convnext.embedding_length", 0)
    convnext_n_layer: int = _key(".convnext.block_count", 0)

    # attention, one entry per layer where it says tuple
    n_head: tuple[int, ...] = _key(".attention.head_count", ())
    n_head_kv: tuple[int, ...] = _key(".attention.head_count_kv", ())
    n_embd_head_k_full: int = _key(".attention.key_length", 0)
    n_embd_head_v_full: int = _key(".attention.value_length", 0)
    n_embd_head_k_swa: int = _key(".attention.key_length_swa", 0)
    n_embd_head_v_swa: int = _key(".attention.value_length_swa", 0)
    n_rot_full: int = _key(".rope.dimension_count", 0)
    n_rot_swa: int = _key(".rope.dimension_count_swa", 0)
    causal_attn: bool = _key(".attention.causal", True)
    pooling_type: str = "unspecified"
    n_rel_attn_bkts: int = _key(".attention.relative_buckets_count", 0)
    use_alibi: bool = False
    f_max_alibi_bias: float = _key(".attention.max_alibi_bias", 0.0)
    f_clamp_kqv: float = _key(".attention.clamp_kqv", 0.0)
    attn_soft_cap: bool = False
    use_kq_norm: bool = False
    n_layer_kv_from_start: int = -1  # layers from here on reuse an earlier cache; -1 = none do
    n_kv_shared_layers: int = _key(".attention.shared_kv_layers", 0)
    skip_loop_final_norm: bool = _key(".skip_loop_final_norm", False)

    # sliding window
    swa_type: str = "none"  # none, standard, chunked, symmetric
    n_swa: int = _key(".attention.sliding_window", 0)
    swa: tuple[bool, ...] = _key(".attention.sliding_window_pattern", ())

    # latent attention (MLA)
    n_lora_q: int = _key(".attention.q_lora_rank", 0)
    n_lora_kv: int = _key(".attention.kv_lora_rank", 0)
    n_embd_head_k_mla_impl: int = _key(".attention.key_length_mla", 0)
    n_embd_head_v_mla_impl: int = _key(".attention.value_length_mla", 0)
    n_lora_kv_swa: int = _key(".attention.kv_lora_rank_swa", 0)
    n_embd_head_k_mla_swa: int = _key(".attention.key_length_mla_swa", 0)
    n_embd_head_v_mla_swa: int = _key(".attention.value_length_mla_swa", 0)

    # sparse attention with an indexer (DSA, MSA)
    indexer_n_head: int = _key(".attention.indexer.head_count", 0)
    indexer_head_size: int = _key(".attention.indexer.key_length", 0)
    indexer_top_k: int = _key(".attention.indexer.top_k", 0)
    indexer_block_size: int = _key(".attention.indexer.block_size", 0)
    indexer_local_blocks: int = _key(".attention.indexer.local_blocks", 0)
    indexer_kpool: int = _key(".attention.indexer.kpool", 0)
    indexer_kpool_row: int = 1  # keys side by side in a cell of the indexer's cache
    indexer_full: tuple[bool, ...] = _key(".attention.indexer.types", ())

    # DeepSeek-V4
    dsv4_o_group_count: int = _key(".attention.output_group_count", 0)
    dsv4_o_lora_rank: int = _key(".attention.output_lora_rank", 0)
    hc_low_rank: int = _key(".hyper_connection.low_rank", 0)
    hc_magnitude: float = _key(".hyper_connection.magnitude", 0.0)
    dsv4_hc_mult: int = _key(".hyper_connection.count", 0)
    dsv4_hc_sinkhorn_iters: int = _key(".hyper_connection.sinkhorn_iterations", 0)
    dsv4_hc_eps: float = _key(".hyper_connection.epsilon", 0.0)
    dsv4_hash_layer_count: int = _key(".hash_layer_count", 0)
    dsv4_compress_rope_base: float = _key(".attention.compress_rope_freq_base", 0.0)
    dsv4_compress_ratios: tuple[int, ...] = _key(".attention.compress_ratios", ())

    # embeddings of n-grams in one layer, -1 = in none
    ple_layer: int = -1
    ple_ngram_size: int = _key(".ple.ngram_size", 0)
    ple_heads_per_ngram: int = _key(".ple.heads_per_ngram", 0)
    ple_conv_kernel: int = _key(".ple.conv_kernel", 0)

    # recurrent state
    recr: tuple[bool, ...] = _key(".attention.recurrent_layers", ())
    ssm_d_conv: int = _key(".ssm.conv_kernel", 0)
    ssm_d_inner: int = _key(".ssm.inner_size", 0)
    ssm_d_state: int = _key(".ssm.state_size", 0)
    ssm_dt_rank: int = _key(".ssm.time_step_rank", 0)
    ssm_n_group: int = _key(".ssm.group_count", 0)
    ssm_dt_b_c_rms: bool = _key(".ssm.dt_b_c_rms", False)
    n_embd_head_la: int = 0  # MiniMax-01 linear attention
    n_embd_head_kda: int = _key(".kda.head_dim", 0)
    kda_safe_gate: bool = _key(".kda.safe_gate", False)
    kda_gate_lower_bound: float = _key(".kda.gate_lower_bound", float("-inf"))
    n_shortconv_l_cache: int = _key(".shortconv.l_cache", 0)
    wkv_head_size: int = _key(".wkv.head_size", 0)
    token_shift_count: int = _key(".token_shift_count", 2)
    rescale_every_n_layers: int = _key(".rescale_every_n_layers", 0)
    time_mix_extra_dim: int = _key(".time_mix_extra_dim", 0)
    time_decay_extra_dim: int = _key(".time_decay_extra_dim", 0)
    n_lora_decay: int = _key(".attention.decay_lora_rank", 0)
    n_lora_iclr: int = _key(".attention.iclr_lora_rank", 0)
    n_lora_value_res_mix: int = _key(".attention.value_residual_mix_lora_rank", 0)
    n_lora_gate: int = _key(".attention.gate_lora_rank", 0)

    # feed forward and experts
    n_ff: tuple[int, ...] = _key(".feed_forward_length", ())
    n_expert: int = _key(".expert_count", 0)
    n_expert_used: int = _key(".expert_used_count", 0)
    n_value_expert: int = _key(".attention.value_expert_count", 0)
    n_value_expert_used: int = _key(".attention.value_expert_used_count", 0)
    n_expert_shared: int = _key(".expert_shared_count", 0)
    n_expert_groups: int = _key(".expert_group_count", 0)
    n_group_used: int = _key(".expert_group_used_count", 0)
    n_group_experts: int = _key(".experts_per_group", 0)
    n_expert_latent: int = _key(".expert_latent_length", 0)
    n_ff_exp: int = _key(".expert_feed_forward_length", 0)
    n_ff_shexp: int = _key(".expert_shared_feed_forward_length", 0)
    n_ff_chexp: int = _key(".expert_chunk_feed_forward_length", 0)
    n_layer_dense_lead: int = _key(".leading_dense_block_count", 0)
    n_moe_layer_step: int = _key(".interleave_moe_layer_step", 0)
    moe_every_n_layers: int = _key(".moe_every_n_layers", 0)
    moe_latent_size: int = _key(".moe_latent_size", 0)
    expert_group_scale: float = _key(".expert_group_scale", 0.05)
    expert_weights_scale: float = _key(".expert_weights_scale", 0.0)
    expert_weights_norm: bool = _key(".expert_weights_norm", False)
    expert_gating_func: int = _key(".expert_gating_func", 0)  # 1 softmax, 2 sigmoid, 3, 4
    swiglu_clamp_exp: tuple[float, ...] = _key(".swiglu_clamp_exp", ())
    swiglu_clamp_shexp: tuple[float, ...] = _key(".swiglu_clamp_shexp", ())
    hidden_act: str = _key(".hidden_activation", "")
    xielu_alpha_n: tuple[float, ...] = _key("xielu.alpha_n", ())
    xielu_alpha_p: tuple[float, ...] = _key("xielu.alpha_p", ())
    xielu_beta: tuple[float, ...] = _key("xielu.beta", ())
    xielu_eps: tuple[float, ...] = _key("xielu.eps", ())

    # positions
    rope: tuple[bool, ...] = _key(".attention.rope_pattern", ())
    rope_sections: tuple[int, ...] = _key(".rope.dimension_sections", (0, 0, 0, 0))
    rope_finetuned: bool = _key(".rope.scaling.finetuned", False)
    rope_scaling_type: str = _key(".rope.scaling.type", "linear")
    rope_freq_base_train: float = _key(".rope.freq_base", 10000.0)
    rope_freq_base_train_swa: float = _key(".rope.freq_base_swa", 10000.0)
    rope_freq_scale_train: float = 1.0
    rope_freq_scale_train_swa: float = 1.0
    rope_attn_factor: float = _key(".rope.scaling.attn_factor", 1.0)
    rope_scaling_alpha: float = _key(".rope.scaling.alpha", 0.0)
    rope_yarn_log_mul: float = _key(".rope.scaling.yarn_log_multiplier", 0.0)
    n_ctx_orig_yarn: int = _key(".rope.scaling.original_context_length", 0)
    yarn_ext_factor: float = _key(".rope.scaling.yarn_ext_factor", -1.0)
    yarn_attn_factor: float = _key(".rope.scaling.yarn_attn_factor", 1.0)
    yarn_beta_fast: float = _key(".rope.scaling.yarn_beta_fast", 32.0)
    yarn_beta_slow: float = _key(".rope.scaling.yarn_beta_slow", 1.0)
    n_no_rope_layer_step: int = 4
    n_attn_temp_floor_scale: int = _key(".attention.temperature_length", 0)
    attn_temp_length: int = _key(".attention.temperature_length", 0)
    f_attn_temp_scale: float = _key(".attention.temperature_scale", 0.0)
    f_attn_temp_offset: float = 0.0

    # norms and scales
    f_norm_eps: float = _key(".attention.layer_norm_epsilon", 0.0)
    f_norm_rms_eps: float = _key(".attention.layer_norm_rms_epsilon", 0.0)
    f_norm_group_eps: float = _key(".attention.group_norm_epsilon", 0.0)
    n_norm_groups: int = _key(".attention.group_norm_groups", 0)
    norm_before_residual: bool = _key(".norm_before_residual", False)
    norm_before_fc: bool = _key(".norm_before_fc", False)
    swin_norm: bool = _key(".swin_norm", False)
    use_par_res: bool = _key(".use_parallel_residual", False)
    f_attn_logit_softcapping: float = _key(".attn_logit_softcapping", 50.0)
    f_router_logit_softcapping: float = _key(".router_logit_softcapping", 30.0)
    f_final_logit_softcapping: float = _key(".final_logit_softcapping", 30.0)
    f_logit_scale: float = _key(".logit_scale", 0.0)
    f_residual_scale: float = _key(".residual_scale", 0.0)
    f_embedding_scale: float = _key(".embedding_scale", 0.0)
    f_attention_scale: float = _key(".attention.scale", 0.0)
    f_attn_out_scale: float = _key(".attention.output_scale", 0.0)
    f_attn_value_scale: float = _key(".attention.value_scale", 0.0)
    attn_res_block_size: int = _key(".attn_res.block_size", 0)
    situ_beta: float = _key(".activation.situ_beta", 1.0)
    situ_linear_beta: float = _key(".activation.situ_linear_beta", 0.0)
    notes: tuple[str, ...] = ()  # note codes of zoo/README.md that the model itself causes

    @property
    def n_layer(self) -> int:
        """Layers without the next-token-prediction (MTP) layers."""
        return self.n_layer_all - self.n_layer_nextn

    @property
    def n_embd_out(self) -> int:
        return self.n_embd_out_impl or self.n_embd

    @property
    def n_embd_inp(self) -> int:
        return self.n_embd_inp_impl or self.n_embd * (1 + self.n_deepstack_layers)

    @property
    def n_embd_inp_enc(self) -> int:
        return self.n_embd_inp_enc_impl or self.n_embd_inp

    @property
    def is_mla(self) -> bool:
        return self.n_embd_head_k_mla_impl != 0 and self.n_embd_head_v_mla_impl != 0

    @property
    def n_embd_head_k_mla(self) -> int:
        return self.n_embd_head_k_mla_impl if self.is_mla else self.n_embd_head_k(0)

    @property
    def n_embd_head_v_mla(self) -> int:
        return self.n_embd_head_v_mla_impl if self.is_mla else self.n_embd_head_v(0)

    @property
    def use_mrope(self) -> bool:
        return self.rope_sections[0] > 0 and self.rope_sections[1] > 0

    @property
    def n_pos_per_embd(self) -> int:
        return 4 if self.rope_type in {"mrope", "imrope"} else 1

    @property
    def called(self) -> str:
        """The name in the header, or the file's without what it is packed in."""
        name = self.name or PurePath(self.path).name
        for ending in () if self.name else (".gz", ".json", ".gguf"):
            name = name.removesuffix(ending)
        return name or self.architecture

    @property
    def loadable(self) -> str:
        """The file that an engine would load; a header without weights (JSON) has but a name."""
        path = self.path
        return f"{self.called}.gguf" if path.endswith((".json", ".json.gz")) else path

    @property
    def tied_embeddings(self) -> bool:
        """The file has no output matrix of its own."""
        names = self.header.by_name
        return "output.weight" not in names and "token_embd.weight" in names

    @cached_property
    def is_swa_any(self) -> bool:
        return any(self.swa)

    def is_swa(self, il: int) -> bool:
        return self.swa[il]

    def is_recr(self, il: int) -> bool:
        return self.recr[il]

    def is_indexer_full(self, il: int) -> bool:
        return self.indexer_full[il]

    def has_kv(self, il: int) -> bool:
        """False for layers that reuse the cache of an earlier one."""
        return self.n_layer_kv_from_start < 0 or il < self.n_layer_kv_from_start

    def has_rope(self, il: int) -> bool:
        return il != self.router_layer and self.rope[il]

    def n_gqa(self, il: int = 0) -> int:
        return self.n_head[il] // self.n_head_kv[il] if self.n_head_kv[il] else 0

    def n_rot(self, il: int = 0) -> int:
        return self.n_rot_swa if self.swa[il] else self.n_rot_full

    def n_embd_head_k(self, il: int = 0) -> int:
        return self.n_embd_head_k_swa if self.swa[il] else self.n_embd_head_k_full

    def n_embd_head_v(self, il: int = 0) -> int:
        return self.n_embd_head_v_swa if self.swa[il] else self.n_embd_head_v_full

    def n_embd_k_gqa(self, il: int = 0) -> int:
        """Elements of K per cell of layer `il`."""
        return self.n_embd_head_k(il) * self.n_head_kv[il]

    def n_embd_v_gqa(self, il: int = 0) -> int:
        """Elements of V per cell of layer `il`."""
        return self.n_embd_head_v(il) * self.n_head_kv[il]

    @cached_property
    def n_embd_v_gqa_max(self) -> int:
        """The widest V of all layers (used when V is stored transposed)."""
        return max(self.n_embd_v_gqa(il) for il in range(self.n_layer_all))

    @cached_property
    def is_n_embd_v_gqa_variable(self) -> bool:
        return len({self.n_embd_v_gqa(il) for il in range(self.n_layer_all)}) > 1

    @property
    def n_embd_r(self) -> int:
        """Elements of one rolling state (convolution or token shift) of one layer."""
        if self.wkv_head_size:
            return self.token_shift_count * self.n_embd
        if self.n_shortconv_l_cache:
            return self.n_embd * (self.n_shortconv_l_cache - 1)
        if self.n_embd_head_kda:
            taps = self.ssm_d_conv - 1 if self.ssm_d_conv else 3
            return 3 * taps * self.n_head[0] * self.n_embd_head_kda
        taps = self.ssm_d_conv - 1 if self.ssm_d_conv else 0
        return taps * (self.ssm_d_inner + 2 * self.ssm_n_group * self.ssm_d_state)

    @property
    def n_embd_p(self) -> int:
        """Elements of the state of the convolution over n-grams, in `ple_layer`."""
        taps = max(0, self.ple_conv_kernel - 1)
        return taps * self.ple_ngram_size * self.dsv4_hc_mult * self.n_embd

    @property
    def n_embd_s(self) -> int:
        """Elements of one recurrent state of one layer."""
        if self.wkv_head_size:
            return self.n_embd * self.wkv_head_size
        if self.n_embd_head_kda:
            return self.n_embd_head_kda**2 * self.n_head[0]
        if self.n_embd_head_la:
            return self.n_embd_head_la**2 * self.n_head[0]
        return self.ssm_d_state * self.ssm_d_inner


KEYS: dict[str, tuple[str, str]] = {
    row.name: (row.metadata["key"], str(row.type)) for row in fields(Model) if "key" in row.metadata
}
"""Attribute -> (metadata key, type as written in `Model`)."""

DEFAULTS: dict[str, Any] = {
    row.name: row.default for row in fields(Model) if row.name not in {"header", "architecture"}
}
"""Attribute -> value when neither the file nor the architecture says anything."""
