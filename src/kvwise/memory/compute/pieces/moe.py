"""Mixture of experts: router, choice, the chosen experts' networks, their weighted sum.

Source: src/llama-graph.cpp build_moe_ffn, b10605.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvwise import builds
from kvwise.gguf.model import Model
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces.ffn import Act, activate, clamp_of
from kvwise.memory.compute.pieces.linear import of_experts, scaled

Gating = Literal["softmax", "sigmoid", "softmax_weight", "sqrt_softplus"]

_WIDE_INPUTS = frozenset({"mistral4"})
"""Architectures whose experts are told to read their last input in f32 (b11549)."""

GATING: dict[int, Gating] = {1: "softmax", 2: "sigmoid", 3: "softmax_weight", 4: "sqrt_softplus"}
"""By `expert_gating_func` of the metadata."""


def gating_of(model: Model) -> Gating:
    """How the model's experts are chosen. Raises Unbuildable for a kind that llama.cpp aborts on
    (src/llama-graph.cpp build_moe_ffn, b10605)."""
    kind = GATING.get(model.expert_gating_func)
    if kind is None:
        raise Unbuildable(f"no router of kind {model.expert_gating_func}: llama.cpp would abort")
    return kind


@dataclass(frozen=True, slots=True)
class Moe:
    """How a layer's experts are chosen and weighed.

    `norm`: weights are divided by their sum; `scale`: by the model's own factor, if it has one;
    `before`: weights go in before the experts (llama4); `router`: scores made elsewhere;
    `chosen`: experts chosen elsewhere.
    """

    act: Act = "silu"
    gating: Gating = "softmax"
    norm: bool = False
    scale: float = 0.0
    before: bool = False
    select_logits: bool = False
    router: Tensor | None = None
    chosen: Tensor | None = None
    router_bias: bool = False
    suffix: str = "_exps"


def moe(b: Builder, x: Tensor, il: int, how: Moe = Moe()) -> Tensor:
    """The experts' part of a layer's feed-forward network: [n_embd, tokens]."""
    model = b.model
    n_embd, n, used = x.ne[0], x.ne[1], model.n_expert_used
    logits = how.router
    if logits is None:
        logits = ops.mul_mat(b.need(il, "ffn_gate_inp.weight"), x)
    bias = b.w(il, "ffn_gate_inp.bias") if how.router_bias else None
    if bias is not None:
        logits = ops.add(logits, bias)
    probs = probabilities(logits, how.gating)
    chosen = how.chosen if how.chosen is not None else _choose(b, il, logits, probs, how)
    weights = weights_of(probs, chosen, used, how)
    b.expand(weights)
    cur = ops.reshape(x, n_embd, 1, n)
    before = how.before or b.weighed_first
    if before:
        cur = ops.mul(ops.repeat(cur, n_embd, used, n), weights)
    experts = _experts(b, cur, il, chosen, how)
    if not before:
        experts = ops.mul(experts, weights)
    return _sum(b, experts, used)


def probabilities(logits: Tensor, gating: Gating) -> Tensor:
    if gating == "softmax":
        return ops.soft_max(logits)
    if gating == "sigmoid":
        return ops.unary("SIGMOID", logits)
    if gating == "sqrt_softplus":
        return ops.sqrt(ops.unary("SOFTPLUS", logits))
    return logits


def _choose(b: Builder, il: int, logits: Tensor, probs: Tensor, how: Moe) -> Tensor:
    """The experts of each token: best scores, of the best groups if there are groups."""
    scores = probs
    bias = b.w(il, "exp_probs_b.bias")
    if bias is None:
        bias = b.w(il, "exp_probs_b")  # Hy 3 names it without an ending
    if bias is not None:
        scores = ops.add(probs, bias)
    if how.select_logits:
        scores = logits
    if b.model.n_expert_groups > 1:
        scores = _best_groups(b, scores)
    return ops.argsort_top_k(scores, b.model.n_expert_used)


def _best_groups(b: Builder, scores: Tensor) -> Tensor:
    """Scores with all but the best groups masked."""
    groups, count, n = b.model.n_expert_groups, scores.ne[0], scores.ne[1]
    grouped = ops.reshape(scores, count // groups, groups, n)
    best = ops.argsort_top_k(grouped, 2)
    best = ops.get_rows(ops.reshape(grouped, 1, *grouped.ne[:3]), best)
    best = ops.sum_rows(ops.reshape(best, *best.ne[1:]))
    best = ops.reshape(best, best.ne[1], best.ne[2])
    chosen = ops.argsort_top_k(best, b.model.n_group_used)
    kept = ops.get_rows(grouped, chosen)
    return ops.reshape(ops.set_rows(ops.fill(grouped), kept, chosen), count, n)


def weights_of(probs: Tensor, chosen: Tensor, used: int, how: Moe) -> Tensor:
    """[1, experts used, tokens]."""
    n = probs.ne[1]
    weights = ops.get_rows(ops.reshape(probs, 1, probs.ne[0], n), chosen)
    if how.gating == "softmax_weight":
        weights = ops.soft_max(ops.reshape(weights, used, n))
        weights = ops.reshape(weights, 1, used, n)
    if how.norm:
        weights = ops.reshape(weights, used, n)
        total = ops.clamp(ops.sum_rows(weights))
        weights = ops.reshape(ops.div(weights, total), 1, used, n)
    if how.scale not in (0.0, 1.0):
        weights = ops.scale(weights)
    return weights


def _experts(b: Builder, cur: Tensor, il: int, chosen: Tensor, how: Moe) -> Tensor:
    """[n_embd, experts used, tokens]."""
    end = how.suffix
    if b.has(il, f"ffn_gate_up{end}.weight"):
        both = _biased(
            b, of_experts_fused(b, cur, il, chosen, end), il, "ffn_gate_up" + end, chosen
        )
        half = both.ne[0] // 2
        shape, steps = (half, both.ne[1], both.ne[2]), (both.nb[1], both.nb[2])
        gate = ops.view_3d(both, shape, steps)
        up = ops.view_3d(both, shape, steps, half * both.nb[0])
        made = activate(gate, up, how.act, gated=True)
    else:
        up = _biased(b, of_experts(b, cur, il, "ffn_up" + end, chosen), il, "ffn_up" + end, chosen)
        gated = b.has(il, f"ffn_gate{end}.weight")
        gate = up
        if gated:
            gate = of_experts(b, cur, il, "ffn_gate" + end, chosen)
            gate = _biased(b, gate, il, "ffn_gate" + end, chosen)
        made = activate(gate, up, how.act, gated=gated, clamp=clamp_of(b, il, "exp"))
    down = "ffn_down" + end
    made = of_experts(b, made, il, down, chosen)
    if b.model.architecture in _WIDE_INPUTS and b.since(builds.CUDA_OPERATIONS):
        _keep_in_f32(made)
    return _biased(b, made, il, down, chosen)


def _keep_in_f32(made: Tensor) -> None:
    """The product, scaled or not, reads its input in f32."""
    product = made if made.op == "MUL_MAT_ID" else made.src[0]
    if product is not None:
        product.params = 1


def of_experts_fused(b: Builder, cur: Tensor, il: int, chosen: Tensor, end: str) -> Tensor:
    """Gate and up in one product; the scale is that of the up weights."""
    both = ops.mul_mat_id(b.need(il, f"ffn_gate_up{end}.weight"), cur, chosen)
    scale = b.w(il, f"ffn_up{end}.scale")
    if scale is None:
        return both
    count = scale.ne[0]
    rows = ops.repeat(ops.reshape(scale, 1, count, 1), 1, count, cur.ne[2])
    return scaled(both, ops.get_rows(rows, chosen))


def _biased(b: Builder, x: Tensor, il: int, name: str, chosen: Tensor) -> Tensor:
    bias = b.w(il, name + ".bias")
    return x if bias is None else ops.add_id(x, bias, chosen)


def _sum(b: Builder, experts: Tensor, used: int) -> Tensor:
    """Views of each expert's result first, then one addition after the other."""
    b.expand(experts)
    n_embd, _, n, _ = experts.ne
    parts = [ops.view_2d(experts, n_embd, n, experts.nb[2], i * experts.nb[1]) for i in range(used)]
    b.expand(*parts)
    total = parts[0]
    for part in parts[1:]:
        total = ops.add(total, part)
        b.expand(total)
    return ops.cont(total) if used == 1 else total
