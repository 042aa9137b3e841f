"""Recurrent and hybrid models: which layers keep a state instead of a KV cache.

Source: src/models/*.cpp (load_arch_hparams), b10605.
"""

from __future__ import annotations

from kvwise.arch.draft import Draft, Step
from kvwise.gguf.model import MAX_LAYERS


def without_kv_heads(draft: Draft) -> None:
    """Layers without KV heads are recurrent."""
    layers = draft.n_layer
    draft["recr"][:layers] = [heads == 0 for heads in draft["n_head_kv"][:layers]]


def without_kv_heads_and_ffn(draft: Draft) -> None:
    """Nemotron-H: a layer is attention, feed forward or recurrent, never two of them."""
    for il in range(draft["n_layer_all"]):
        bare = draft["n_head_kv"][il] == 0 and draft["n_ff"][il] == 0
        draft["recr"][il] = il < draft.n_layer and bare


def every_layer(draft: Draft) -> None:
    draft["recr"] = [True] * MAX_LAYERS


def interval(default: int) -> Step:
    """A list in the file, or all layers but every n-th; MTP layers never."""

    def step(draft: Draft) -> None:
        if draft.read_or_array("recr", draft["n_layer_all"]):
            return
        stated = draft.scalar(".full_attention_interval", "int")
        every = default if stated is None else stated
        draft.need(every > 0, "a full attention interval of 0")
        layers = draft["n_layer_all"]
        draft["recr"][:layers] = [
            il < draft.n_layer and (il + 1) % every != 0 for il in range(layers)
        ]

    return step


def linear_attention(draft: Draft) -> None:
    """MiniMax-01: the state is a square of the head size."""
    draft["n_embd_head_la"] = draft["n_embd_head_k_full"]


def safe_gate(draft: Draft) -> None:
    """BailingMoE 3: only the gate with a lower bound is supported."""
    draft["kda_safe_gate"] = True
    draft.read("kda_safe_gate")
    draft.read("kda_gate_lower_bound", required=True)
    draft.need(draft["kda_safe_gate"], "the KDA gate has no lower bound")
    draft.need(draft["kda_gate_lower_bound"] < 0.0, "the KDA gate's lower bound is not negative")
