"""Which weights in a file the engine does not load: those of unused MTP layers.

Models with next-token-prediction layers keep them in the file; they are loaded only when MTP
speculation is asked for, in some architectures never. A few tensors of such a layer are loaded
all the same, because their loader does not pass the flag on; fused experts only before b11549.
Source: src/models/*.cpp load_arch_tensors, create_tensor_gate_up_exps, b10605.
"""

from __future__ import annotations

from kvwise.gguf.model import Model
from kvwise.memory.roles import Role

NEVER_LOADED = frozenset({"bailingmoe2", "dots3note", "exaone-moe", "exaone4", "glm4"})
"""Architectures whose MTP layers have no graph yet."""

ON_REQUEST = frozenset(
    {
        "bailingmoe3", "clef", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa",
        "glm4moe", "glm5-next", "hy_v3", "mimo2", "mistral4", "nemotron_h", "nemotron_h_moe",
        "qwen35", "qwen35moe", "qwen3next", "qwen4exp", "step35",
    }
)  # fmt: skip
"""Architectures that load their MTP layers when asked."""

_HEADS = frozenset({"nextn.embed_tokens", "nextn.shared_head_head", "nextn.shared_head_norm"})
_FUSED = frozenset({"ffn_gate_up_exps"})
_DENSE = frozenset({"ffn_gate", "ffn_down", "ffn_up"})
_EXPERTS = frozenset(
    {
        "ffn_gate_inp", "ffn_gate_exps", "ffn_down_exps", "ffn_up_exps", "exp_probs_b",
        "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp",
    }
)  # fmt: skip

KEPT: dict[str, frozenset[str]] = {
    "cohere2moe": _HEADS | _FUSED,
    "deepseek2": _FUSED,
    "deepseek32": frozenset({"exp_probs_b"}),
    "glm-dsa": frozenset({"exp_probs_b"}),
    "hy_v3": _HEADS | _FUSED | _DENSE | _EXPERTS,
    "mistral4": _FUSED,
    "qwen35moe": _FUSED,
    "qwen3next": _FUSED,
    "step35": _HEADS | _DENSE | _EXPERTS | {"attn_q_norm", "attn_k_norm", "attn_gate"},
}
"""Tensors of an MTP layer that are loaded even when the layer is not."""


def is_skipped(model: Model, role: Role, *, load_mtp: bool, fused_left: bool = False) -> bool:
    """Whether the engine reads the table row of a weight and leaves the weight in the file.

    `fused_left`: the build leaves fused experts there too (builds.FUSED_EXPERTS_LEFT).
    """
    if role.op == "NONE":
        return True
    if role.part != "layer" or role.layer < model.n_layer or not model.n_layer_nextn:
        return False
    architecture = model.architecture
    if architecture in NEVER_LOADED:
        return True
    if load_mtp or architecture not in ON_REQUEST:
        return False
    if fused_left and role.base in _FUSED:
        return True
    return role.base not in KEPT.get(architecture, ())
