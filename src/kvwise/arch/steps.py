"""Small quirks that many architectures share: constants, MTP layers, expert gating, scales.

Each function returns a `Step` for a row of `table.py`. Source: src/models/*.cpp
(load_arch_hparams) of llama.cpp b10605, where not said otherwise.
"""

from __future__ import annotations

from typing import Any

from kvwise.arch.draft import Draft, Step
from kvwise.gguf.model import MAX_LAYERS

SOFTMAX, SIGMOID, SQRT_SOFTPLUS = 1, 2, 4  # llama_expert_gating_func_type


def put(**values: Any) -> Step:
    """Constants that an architecture sets whatever the file says (a later key may change them)."""

    def step(draft: Draft) -> None:
        for name, value in values.items():
            draft[name] = value

    return step


def mtp(draft: Draft) -> None:
    """Next-token-prediction layers stand at the end and are fewer than all layers."""
    draft.read("n_layer_nextn")
    nextn, layers = draft["n_layer_nextn"], draft["n_layer_all"]
    draft.need(nextn < layers, "{nextn} MTP layers of {layers} layers", nextn=nextn, layers=layers)


def nextn(draft: Draft) -> None:
    """MTP layers that are counted without a check."""
    draft.read("n_layer_nextn")


def only_mtp(draft: Draft) -> None:
    """Gemma 4's assistant is nothing but MTP layers."""
    draft.read("n_layer_nextn")
    only = draft["n_layer_nextn"] == draft["n_layer_all"]
    draft.need(only, "not all layers are MTP layers")


def gating(default: int) -> Step:
    """The expert gating function when the file names none."""

    def step(draft: Draft) -> None:
        if draft["expert_gating_func"] == 0:
            draft["expert_gating_func"] = default

    return step


def gating_must_be(function: int) -> Step:
    def step(draft: Draft) -> None:
        got = draft["expert_gating_func"]
        draft.need(got == function, "unsupported expert gating function {got}", got=got)

    return step


def sections(required: bool) -> Step:
    """Four rope sections (multi-axis rope)."""

    def step(draft: Draft) -> None:
        draft["rope_sections"] = [0] * 4
        draft.read_or_array("rope_sections", 4, required)
        draft["rope_sections"] = tuple(draft["rope_sections"])

    return step


def per_layer(*names: str, required: bool = False) -> Step:
    """One number per layer, or one for all."""

    def step(draft: Draft) -> None:
        for name in names:
            draft.read_or_array(name, draft.n_layer, required)

    return step


def shared_expert_width(draft: Draft) -> None:
    """The shared expert is as wide as its routed experts together unless the file says so."""
    if draft["n_ff_shexp"] == 0:
        draft["n_ff_shexp"] = draft["n_ff_exp"] * max(1, draft["n_expert_shared"])


def swiglu_clamps(draft: Draft) -> None:
    draft.read_or_array("swiglu_clamp_exp", draft["n_layer_all"], required=True)
    if not draft.read_or_array("swiglu_clamp_shexp", draft["n_layer_all"]):
        draft["swiglu_clamp_shexp"] = list(draft["swiglu_clamp_exp"])


def swiglu_clamps_if_any(draft: Draft) -> None:
    for name in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        draft.read_or_array(name, draft["n_layer_all"])


def rope_unless_finetuned(draft: Draft) -> None:
    """Granite: `rope.scaling.finetuned` false means that no layer has positions."""
    draft["rope_finetuned"] = True
    draft.read("rope_finetuned")
    draft["rope"] = [draft["rope_finetuned"]] * MAX_LAYERS


def rope_listed(draft: Draft) -> None:
    """Which layers have positions, when the file lists them."""
    draft.read_array("rope")


def half_rope(draft: Draft) -> None:
    """Step 3.5: full layers rotate half of the head."""
    draft["n_rot_full"] //= 2


def deepstack(draft: Draft) -> None:
    """Granite vision: which layers take an extra input embedding."""
    draft.read_array("deepstack_mapping")
    used = {index for index in draft["deepstack_mapping"] if index >= 0}
    draft.need(all(index <= len(used) for index in used), "a deepstack index is out of range")
    draft["n_deepstack_layers"] = len(used)


def yarn_log_mul(draft: Draft) -> None:
    if draft.read("rope_yarn_log_mul"):
        draft["rope_yarn_log_mul"] /= 0.1


def head_scale(layers_27b: int) -> Step:
    """Gemma: queries are scaled by the head size; the 27B, told by its layers, by n_embd/n_head."""

    def step(draft: Draft) -> None:
        width = draft["n_embd_head_k_swa" if draft["swa"][0] else "n_embd_head_k_full"]
        if draft.n_layer == layers_27b:
            draft.need(draft["n_head"][0] > 0, "no attention heads")
            width = draft["n_embd"] // draft["n_head"][0]
        draft["f_attention_scale"] = width**-0.5 if width else 0.0

    return step


def temperature_from_context(draft: Draft) -> None:
    if draft["f_attn_temp_scale"] != 0.0:
        draft["n_attn_temp_floor_scale"] = draft["n_ctx_orig_yarn"]
        draft.need(draft["n_ctx_orig_yarn"] > 0, "no original context length to scale by")


def minicpm_scales(draft: Draft) -> None:
    draft["f_embedding_scale"] = 12.0
    draft["f_residual_scale"] = 1.4 / draft.n_layer**0.5
    draft["f_logit_scale"] = 256.0 / draft["n_embd"] if draft["n_embd"] else 1.0


def alibi_at(layers: int, bias: float) -> Step:
    """Baichuan: only the 13B, told by its layers, has ALiBi."""

    def step(draft: Draft) -> None:
        if draft.n_layer == layers:
            draft["f_max_alibi_bias"] = bias

    return step


def value_scale(draft: Draft) -> None:
    scale = draft.scalar(".attention.value_scale", "float")
    if scale is not None and scale != 1.0:
        draft["f_attn_value_scale"] = scale


def xdrope_base(draft: Draft) -> None:
    """Hunyuan: NTK-aware alpha raises the rope base."""
    alpha, dim = draft["rope_scaling_alpha"], draft["n_embd_head_k_full"]
    if alpha > 0.0 and dim > 2:
        try:
            draft["rope_freq_base_train"] *= alpha ** (dim / (dim - 2))
        except OverflowError:
            raise draft.lie("a rope scaling alpha of {alpha}", alpha=alpha) from None


def input_as_output(draft: Draft) -> None:
    """A draft head fed with its target's output embedding."""
    draft["n_embd_inp_impl"] = draft["n_embd_out_impl"] or draft["n_embd"]


def all_dense(draft: Draft) -> None:
    draft["n_layer_dense_lead"] = draft.n_layer


def either_norm(draft: Draft) -> None:
    """Cohere2 MoE: one of the two norm epsilons must be there."""
    either = draft.read("f_norm_eps") | draft.read("f_norm_rms_eps")
    draft.need(either, "no norm epsilon")


def need_size(*names: str) -> Step:
    """Attributes that llama.cpp divides by: they must not be 0."""

    def step(draft: Draft) -> None:
        for name in names:
            draft.need(draft[name] > 0, "{name} is 0", name=name)

    return step


def equals_embedding(*names: str) -> Step:
    """Dense modules behind the pooling must fit the embedding, when there are any."""

    def step(draft: Draft) -> None:
        for name in names:
            draft.need(draft[name] in {0, draft["n_embd"]}, "{name} is not n_embd", name=name)

    return step


def decoder_layers(draft: Draft) -> None:
    """T5: the decoder has as many layers as the encoder unless the file says so."""
    draft["dec_n_layer"] = draft.n_layer
    draft.read("dec_n_layer")


def loops(draft: Draft) -> None:
    """Nanbeige: the same layers run several times, each run with a cache of its own."""
    draft.read("n_loops")
    draft.read("skip_loop_final_norm")
    count, layers = draft["n_loops"], draft.n_layer
    sound = count >= 1 and count * layers <= MAX_LAYERS
    draft.need(sound, "{count} loops over {layers} layers", count=count, layers=layers)
    for name in ("n_head", "n_head_kv", "n_ff", "swa", "recr"):
        draft[name][: count * layers] = draft[name][:layers] * count
    if count > 1:
        draft["n_layer_all"] = count * layers


def router(draft: Draft) -> None:
    """Granite-switch: one more layer with a single head remembers the chosen adapters."""
    draft.read("n_adapters", required=True)
    draft.read("adapter_lora_rank", required=True)
    count, layers = draft["n_adapters"], draft.n_layer
    sound = count <= 4096 and draft["adapter_lora_rank"] <= 4096 and layers < MAX_LAYERS
    draft.need(sound, "too many adapters, too high a rank or too many layers")
    for key in (".adapters.token_ids_activate", ".adapters.token_ids_substitute"):
        ids = draft.array(key, required=True)
        draft.need(len(ids or ()) == count, "{key} does not match the adapters", key=key)
    draft["router_layer"] = layers
    draft["n_layer_all"] = layers + 1
    draft["n_layer_nextn"] = 1
    draft["n_head"][layers] = draft["n_head_kv"][layers] = 1
    draft["n_ff"][layers] = 0


def feed_forward_op(draft: Draft) -> None:
    """ModernBERT: the named activation, GEGLU when none or an unknown one is named."""
    draft["hidden_act"] = "geglu"
    draft.read("hidden_act")


def take(names: str) -> Step:
    """Read keys into attributes: `"n_swa n_ff_exp!"`, `!` marks the ones that must be there."""
    wanted = [(name.rstrip("!"), name.endswith("!")) for name in names.split()]

    def step(draft: Draft) -> None:
        for name, required in wanted:
            draft.read(name, required)

    return step
