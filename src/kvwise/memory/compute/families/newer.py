"""Architectures that came after b10605, those whose graphs are made of known pieces.

Source: src/models/NAME.cpp of each, b11549.
"""

from __future__ import annotations

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.gated import AS_GIVEN, per_head
from kvwise.memory.compute.families.per_layer import slice_of
from kvwise.memory.compute.families.rows import Build, plain
from kvwise.memory.compute.graph import Tensor, contiguous_strides
from kvwise.memory.compute.pieces import attention, embed, norm, output
from kvwise.memory.compute.pieces.decoder import Attention, last_rows
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear, of_experts
from kvwise.memory.compute.pieces.moe import Moe, gating_of, moe, probabilities, weights_of
from kvwise.memory.compute.pieces.qkv import qkv
from kvwise.memory.compute.pieces.rope import rope


def _windowed_layers(b: Builder, il: int) -> bool:
    return b.model.is_swa(il)


def _factor_of_heads(b: Builder, cur: Tensor, x: Tensor, il: int) -> Tensor:
    gate = ops.unary("SIGMOID", ops.mul_mat(b.need(il, "attn_gate.weight"), x))
    return per_head(cur, gate)


# --- HRM-Text: two stacks of layers that run in turns ---


def _hrm_text(b: Builder) -> None:
    """The low stack runs several times for each run of the high one; each run has its cache."""
    model = b.model
    step = model.hrm_layers_per_stack
    high = embed.tokens(b)
    low = b.need_top("hrm.z_l_init")
    slot = 0
    for _ in range(model.hrm_h_cycles):
        for _ in range(model.hrm_l_cycles):
            low = _stack(b, ops.add(high, low), slot, 0)
            slot += step
        high = _stack(b, ops.add(high, low), slot, step)
        slot += step
    (cur,) = last_rows(b, high)
    b.embd = cur
    output.hand_out(b, output.logits(b, cur, bias=False))


def _stack(b: Builder, x: Tensor, slot: int, block: int) -> Tensor:
    """One run of a stack: layers with the weights from `block` on and the caches from `slot` on."""
    for step in range(b.model.hrm_layers_per_stack):
        x = _turn(b, x, slot + step, block + step)
    return ops.rms_norm(x)


def _turn(b: Builder, x: Tensor, slot: int, block: int) -> Tensor:
    model = b.model
    normed = ops.rms_norm(x)
    gate = linear(b, normed, block, "attn_gate", bias=False)
    sizes = (model.n_embd_head_k(slot), model.n_head[slot], model.n_head_kv[slot])
    q, k, v = qkv(b, normed, block, sizes)
    q, k = rope(b, q, slot), rope(b, k, slot)
    cur = attention.cached(b, q, k, v, slot, out=None)
    cur = ops.mul(cur, ops.unary("SIGMOID", gate))
    x = ops.add(linear(b, cur, block, "attn_output", bias=False), x)
    return ops.add(ffn(b, ops.rms_norm(x), block), x)


# --- K2 Horizon: norms in groups, values out of experts of their own ---


def _k2_horizon(b: Builder) -> None:
    model = b.model
    x = embed.tokens(b)
    for il in range(b.n_layer):
        b.layer_input(il, x)
        routed = model.n_expert > 0 and il >= model.n_layer_dense_lead
        cur = _k2_attention(b, _group_normed(b, x, b.w(il, "attn_norm.weight")), il, routed=routed)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        cur = _group_normed(b, x, b.w(il, "ffn_norm.weight"))
        x = ops.add(_k2_experts(b, cur, il) if routed else ffn(b, cur, il, bias=False), x)
    b.embd = cur = _group_normed(b, x, b.top("output_norm.weight"))
    output.hand_out(b, output.logits(b, cur, bias=False))


def _group_normed(b: Builder, x: Tensor, weight: Tensor | None) -> Tensor:
    groups, width, n = b.model.n_norm_groups, x.ne[0], x.ne[1]
    cur = ops.rms_norm(ops.reshape(x, width // groups, groups, n))
    cur = ops.reshape(cur, width, n)
    return cur if weight is None else ops.mul(cur, weight)


def _k2_attention(b: Builder, x: Tensor, il: int, *, routed: bool) -> Tensor:
    model, n = b.model, b.n_tokens
    head, heads, heads_kv = model.n_embd_head_v(il), model.n_head[il], model.n_head_kv[il]
    q, k = (linear(b, x, il, f"attn_{side}", bias=False) for side in "qk")
    if routed and model.n_value_expert:
        v = _routed_values(b, x, il)
    else:
        v = linear(b, x, il, "attn_v", bias=False)
    q, k, v = (
        ops.reshape(t, head, count, n) for t, count in ((q, heads), (k, heads_kv), (v, heads_kv))
    )
    q, k = (_each_head_normed(b, t, il, f"attn_{side}_norm") for t, side in ((q, "q"), (k, "k")))
    q, k = rope(b, q, il), rope(b, k, il)
    if not b.has(il, "attn_gate.weight"):
        return attention.cached(b, q, k, v, il)
    cur = attention.cached(b, q, k, v, il, out=None)
    gate = ops.scale(linear(b, x, il, "attn_gate", bias=False))
    gate = ops.scale(ops.unary("SOFTPLUS", gate))
    return linear(b, ops.mul(cur, gate), il, "attn_output")


def _each_head_normed(b: Builder, x: Tensor, il: int, name: str) -> Tensor:
    """One weight per head, which the file keeps in one row."""
    weight = b.w(il, name + ".weight")
    if weight is None:
        return x
    weight.ne = (x.ne[0], x.ne[1], 1, 1)
    weight.nb = contiguous_strides(weight.type, weight.ne)
    return norm.norm(b, x, weight, il=il)


def _routed_values(b: Builder, x: Tensor, il: int) -> Tensor:
    """V as the weighted sum of what the chosen value experts make."""
    model, n, used = b.model, x.ne[1], b.model.n_value_expert_used
    how = Moe(
        gating=gating_of(model),
        norm=model.expert_weights_norm,
        scale=model.expert_weights_scale,
    )
    probs = probabilities(ops.mul_mat(b.need(il, "attn_v_gate.weight"), x), how.gating)
    bias = b.w(il, "attn_v_gate.bias")
    chosen = ops.argsort_top_k(probs if bias is None else ops.add(probs, bias), used)
    weights = weights_of(probs, chosen, used, how)
    made = of_experts(b, ops.reshape(x, x.ne[0], 1, n), il, "attn_v_exps", chosen)
    made = ops.mul(ops.unary("SILU", made), weights)
    width, step = made.ne[0], made.nb[1]
    views = [ops.view_3d(made, (width, 1, n), (step, made.nb[2]), i * step) for i in range(used)]
    b.expand(*views)
    total = views[0]
    for view in views[1:]:
        total = ops.add(total, view)
        b.expand(total)
    return ops.cont(total) if used == 1 else total


def _k2_experts(b: Builder, x: Tensor, il: int) -> Tensor:
    made = moe(b, x, il, AS_GIVEN(b, il))
    if not b.has(il, "ffn_gate_shexp.weight"):
        return made
    return ops.add(made, ffn(b, x, il, suffix="_shexp", bias=False))


# --- EmbeddingGemma 2: an input of its own for every layer, made of the embeddings alone ---


def _gemma_embedding2(b: Builder) -> None:
    width, n, layers = b.model.n_embd_per_layer, b.n_tokens, b.n_layer
    x = embed.tokens(b, scaled=True)
    beside = ops.scale(ops.mul_mat(b.need_top("per_layer_model_proj.weight"), x))
    beside = ops.reshape(beside, width, layers, n)
    beside = norm.norm(b, beside, b.top("per_layer_proj_norm.weight"))
    beside = ops.cont(ops.permute(beside, 0, 2, 1, 3))
    for il in range(layers):
        last = il == layers - 1
        cur = _normed_values(b, norm.layer(b, x, il, "attn_norm"), il)
        if last:
            cur, x = last_rows(b, cur, x)
        x = ops.add(norm.layer(b, cur, il, "post_attention_norm"), x)
        cur = ffn(b, norm.layer(b, x, il, "ffn_norm"), il, "gelu", bias=False)
        x = ops.add(norm.norm(b, cur, b.w(il, "post_ffw_norm.weight")), x)
        mine = slice_of(beside, il)
        if last:
            (mine,) = last_rows(b, mine)
        cur = ops.unary("GELU", ops.mul_mat(b.need(il, "inp_gate.weight"), x))
        cur = ops.mul_mat(b.need(il, "proj.weight"), ops.mul(cur, mine))
        x = ops.add(x, norm.layer(b, cur, il, "post_norm"))
        x = ops.mul(x, b.need(il, "layer_output_scale.weight"))
    cur = output.final_norm(b, x)
    b.embd = cur = output.logits(b, cur, bias=False)
    b.expand(cur)


def _normed_values(b: Builder, x: Tensor, il: int) -> Tensor:
    """Attention within the batch, with normed Q, K and V."""
    model, n = b.model, b.n_tokens
    head = model.n_embd_head_k(il)
    counts = {"q": model.n_head[il], "k": model.n_head_kv[il], "v": model.n_head_kv[il]}
    made = {side: linear(b, x, il, f"attn_{side}", bias=False) for side in counts}
    q, k, v = (ops.reshape(made[side], head, count, n) for side, count in counts.items())
    q, k = norm.layer(b, q, il, "attn_q_norm"), norm.layer(b, k, il, "attn_k_norm")
    v = ops.rms_norm(v)
    return attention.uncached(b, rope(b, q, il), rope(b, k, il), v, il)


ROWS: dict[str, Build] = {
    "maple": plain(
        Attention(qk_norm="before", rope=_windowed_layers), moe=Moe(norm=True),
    ),
    "spark2_5": plain(Attention(gate=_factor_of_heads), act="gelu"),
    "hrm_text": _hrm_text,
    "k2-horizon": _k2_horizon,
    "gemma-embedding2": _gemma_embedding2,
}  # fmt: skip
