"""The plain decoder: pre-norm attention and feed-forward, with what varies as options.

Most architectures are a row of these options (`families/`). The options say where norms,
rotary positions and scales stand and how the parts are added up; whether a weight, a bias or a
gate exists is read from the file. Source: the graphs in src/models/*.cpp, b10605.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kvwise import builds
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, embed, norm, output
from kvwise.memory.compute.pieces.ffn import Act, ffn
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.moe import Moe, moe
from kvwise.memory.compute.pieces.qkv import Sizes, qkv, two_sized
from kvwise.memory.compute.pieces.rope import rope

Layerwise = Callable[[Builder, int], bool]
MoeOf = Callable[[Builder, int], Moe]
Gate = Callable[[Builder, Tensor, Tensor, int], Tensor]
"""From the builder, attention's result, the layer's normed input and the layer: the result."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Self-attention of one layer.

    `rope`: every layer, or those the function names; `factors`: with frequency factors;
    `qk_norm`: heads normed before or after the rotation, or whole rows before they are split
    into heads (`rows`); `q_scale`: Q is scaled by itself; `cached` False: within the batch.
    `sub_norm` and `gate`: a norm, or a gate made of the layer's input, between attention and its
    projection. `two_sizes`: heads of V need not be as large as those of K. `value_scale`: the
    result is scaled where the model says so.
    """

    rope: bool | Layerwise = True
    factors: bool | Layerwise = False
    qk_norm: Literal["no", "before", "after", "rows"] = "no"
    qk_kind: norm.Norm = "rms"
    q_scale: bool = False
    temperature: Callable[[Builder, int], Tensor | None] | None = None
    sinks: bool = False
    cached: bool = True
    sub_norm: str = ""
    grok_cap: bool = False
    gate: Gate | None = None
    two_sizes: bool = False
    value_scale: bool = False


@dataclass(frozen=True, slots=True)
class Decoder:
    """One architecture of the plain kind.

    `embed_scale`: embeddings are scaled; `tokens_scale`: but only those of tokens.
    Names of norms are the file's (`post_attention_norm`); an empty one means there is none.
    `moe`: how the experts work, in layers that have a router (and, if given, `moe_layers` says
    so); `output`: the matrix of the logits, if there are any; `shared`: their second network,
    `gated` by the token itself, `fused` (up holds the gate too), or in `order` before the experts;
    `always`: there without its matrices too, its activation alone.
    `parallel`: feed-forward and attention both read the layer's input norm. `rows`: where the rows
    that are asked for are picked: in the last layer, from the whole `stream` or its final norm
    (`normed`), both handed out for MTP layers, or nowhere. `pin_post`: the last norm of a layer
    belongs to the layer. `deepstack`: parts of wide input vectors are added after each of the first
    layers, or before those that the file lists. `hand_on`: newer builds hand out the last layer's
    result.
    """

    norm: norm.Norm = "rms"
    attn: Attention = field(default_factory=Attention)
    embed_scale: bool = False
    tokens_scale: bool = False
    embed_norm: Literal["no", "weights", "bare"] = "no"
    positions: bool = False
    attn_norm: str = "attn_norm"
    attn_post_norm: str = ""
    ffn_norm: str = "ffn_norm"
    ffn_post_norm: str = ""
    act: Act = "silu"
    moe: Moe | MoeOf | None = None
    shared: Literal["", "plain", "always", "gated", "fused", "first"] = ""
    residual_scale: bool = False
    parallel: bool = False
    ffn_sub_norm: str = ""
    pin_post: bool = False
    rows: Literal["last", "stream", "normed", "all"] = "last"
    moe_layers: Layerwise | None = None
    output: Literal["own", "embeddings", "none"] = "own"
    logit_scale: Literal["no", "always", "given"] = "no"
    soft_cap: Literal["no", "always", "given"] = "no"
    deepstack: Literal["", "after", "before"] = ""
    hand_on: bool = False


def build(b: Builder, how: Decoder) -> None:
    """The whole graph of a plain decoder."""
    cur = start(b, how)
    for il in range(b.n_layer):
        cur = layer(b, cur, il, how)
    finish(b, cur, how)


def start(b: Builder, how: Decoder) -> Tensor:
    """Embeddings, with scale, positions and norm."""
    cur = embed.tokens(b, scaled=how.tokens_scale)
    if how.embed_scale:
        cur = ops.scale(cur)
    if how.positions:
        cur = embed.positions(b, cur)
    if how.embed_norm == "weights":
        weight, bias = b.top("token_embd_norm.weight"), b.top("token_embd_norm.bias")
        cur = norm.norm(b, cur, weight, bias, kind=how.norm, il=0)
    elif how.embed_norm == "bare":
        cur = norm.norm(b, cur, None, kind=how.norm)
    return cur


def layer(b: Builder, x: Tensor, il: int, how: Decoder) -> Tensor:
    """One layer: what it adds to the stream `x`."""
    b.layer_input(il, x)
    if how.deepstack == "before" and il and (place := _listed(b, il)) >= 0:
        x = ops.add(x, embed.beside(b, place))
    parallel = how.parallel or (b.borrowed and norm.one_norm(b.model.header.by_name, il))
    normed = norm.layer(b, x, il, how.attn_norm, kind=how.norm) if how.attn_norm else x
    cur = self_attention(b, normed, il, how.attn)
    if il == b.n_layer - 1 and picks_in_last(b, how):
        cur, x = last_rows(b, cur, x)
        if parallel:
            normed = ops.get_rows(normed, b.out_rows())
    if parallel:
        made = feed_forward(b, normed, il, how)
        return ops.add(ops.add(made, x), cur)
    if how.attn_post_norm:
        cur = norm.layer(b, cur, il, how.attn_post_norm, kind=how.norm)
    if how.residual_scale and b.model.f_residual_scale:
        cur = ops.scale(cur)
    x = ops.add(cur, x)
    cur = norm.layer(b, x, il, how.ffn_norm, kind=how.norm) if how.ffn_norm else x
    cur = feed_forward(b, cur, il, how)
    if how.ffn_post_norm:
        # most graphs of llama.cpp give this norm no layer
        weight = norm.weight(b, il, how.ffn_post_norm)
        cur = norm.norm(b, cur, weight, kind=how.norm, il=il if how.pin_post else -1)
    if how.residual_scale and b.model.f_residual_scale:
        cur = ops.scale(cur)
    x = ops.add(cur, x)
    if how.deepstack == "after" and il < b.model.n_deepstack_layers:
        x = ops.add(x, embed.beside(b, il + 1))
    return x


def picks_in_last(b: Builder, how: Decoder) -> bool:
    """Whether the rows that are asked for are picked in the last layer, after its attention."""
    if how.rows in ("stream", "normed"):
        return _picks_early(b) and b.n_layer not in b.context.paired.embeddings_layer_inp
    return how.rows == "last"


def _picks_early(b: Builder) -> bool:
    """Whether rows are picked before the hidden state is handed out, not after."""
    return b.since(builds.ROWS_BEFORE_LAST) and not b.context.paired.embeddings_nextn


def _listed(b: Builder, il: int) -> int:
    """The part of wide input vectors that the file gives layer `il`, -1 for none."""
    listed = b.model.deepstack_mapping
    return listed[il] if il < len(listed) else -1


def last_rows(b: Builder, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Only the rows that are asked for."""
    return tuple(ops.get_rows(t, b.out_rows()) for t in tensors)


def self_attention(b: Builder, x: Tensor, il: int, how: Attention) -> Tensor:
    """Q, K, V, norms, rotation, attention, projection."""
    model = b.model
    sizes = (model.n_embd_head_k(il), model.n_head[il], model.n_head_kv[il])
    if how.qk_norm == "rows":
        q, k, v = _rows_normed(b, x, il, how, sizes)
    elif how.two_sizes:
        q, k, v = two_sized(b, x, il, sizes, model.n_embd_head_v(il))
    else:
        q, k, v = qkv(b, x, il, sizes)
    if how.qk_norm == "before":
        q, k = _heads_normed(b, q, k, il, how)
    if how.rope if isinstance(how.rope, bool) else how.rope(b, il):
        factors = how.factors if isinstance(how.factors, bool) else how.factors(b, il)
        q, k = (rope(b, t, il, scaled=factors) for t in (q, k))
    if how.qk_norm == "after":
        q, k = _heads_normed(b, q, k, il, how)
    if how.q_scale:
        q = ops.scale(q)
    temperature = None if how.temperature is None else how.temperature(b, il)
    if temperature is not None:
        q = ops.mul(q, temperature)
    sinks = b.w(il, "attn_sinks.weight") if how.sinks else None
    extras = attention.Extras(sinks=sinks, grok_cap=how.grok_cap)
    run = attention.cached if how.cached else attention.uncached
    cur = run(b, q, k, v, il, out=None, extras=extras)
    if how.sub_norm:
        cur = norm.layer(b, cur, il, how.sub_norm)
    if how.gate is not None:
        cur = how.gate(b, cur, x, il)
    cur = linear(b, cur, il, "attn_output")
    return ops.scale(cur) if how.value_scale and model.f_attn_value_scale else cur


def _heads_normed(
    b: Builder, q: Tensor, k: Tensor, il: int, how: Attention
) -> tuple[Tensor, Tensor]:
    """Each head normed, where the file has the weights."""
    if b.has(il, "attn_q_norm.weight"):
        q = norm.layer(b, q, il, "attn_q_norm", kind=how.qk_kind)
    if b.has(il, "attn_k_norm.weight"):
        k = norm.layer(b, k, il, "attn_k_norm", kind=how.qk_kind)
    return q, k


def _rows_normed(
    b: Builder, x: Tensor, il: int, how: Attention, sizes: Sizes
) -> tuple[Tensor, Tensor, Tensor]:
    """Whole rows of Q and K normed, then split into heads."""
    head, n_head, n_head_kv = sizes
    n = b.n_tokens
    q = norm.layer(
        b, ops.mul_mat(b.need(il, "attn_q.weight"), x), il, "attn_q_norm", kind=how.qk_kind
    )
    k = norm.layer(
        b, ops.mul_mat(b.need(il, "attn_k.weight"), x), il, "attn_k_norm", kind=how.qk_kind
    )
    v = ops.mul_mat(b.need(il, "attn_v.weight"), x)
    return (
        ops.reshape(q, head, n_head, n),
        ops.reshape(k, head, n_head_kv, n),
        ops.reshape(v, head, n_head_kv, n),
    )


def feed_forward(b: Builder, x: Tensor, il: int, how: Decoder) -> Tensor:
    """Dense network, or experts with their shared network."""
    routed = b.has(il, "ffn_gate_inp.weight")
    if routed and how.moe_layers is not None and not how.moe_layers(b, il):
        # llama.cpp takes the dense branch of such a layer, whose matrices may not be there
        b.leave(il, "ffn_")
        b.leave(il, "exp_probs_b")
        return ffn(b, x, il, how.act, optional=True)
    if how.moe is not None and routed:
        for name in ("ffn_gate.", "ffn_up.", "ffn_down."):
            if b.has(il, name + "weight"):  # a few files hold a dense network too
                b.leave(il, name)
        experts = how.moe if isinstance(how.moe, Moe) else how.moe(b, il)
        return _experts(b, x, il, experts, how)
    if how.ffn_sub_norm:
        return _sub_normed(b, x, il, how)
    return ffn(b, x, il, how.act)


def _experts(b: Builder, x: Tensor, il: int, experts: Moe, how: Decoder) -> Tensor:
    """Experts, and the shared network that every token passes."""
    if how.shared == "always":
        beside = ffn(b, x, il, suffix="_shexp", bias=False, optional=True)
        return ops.add(moe(b, x, il, experts), beside)
    if not how.shared or not b.has(il, "ffn_up_shexp.weight"):
        return moe(b, x, il, experts)
    if how.shared == "first":
        beside = ffn(b, x, il, suffix="_shexp")
        return ops.add(moe(b, x, il, experts), beside)
    cur = moe(b, x, il, experts)
    if how.shared == "gated":
        gate = ops.mul_mat(b.need(il, "ffn_gate_inp_shexp.weight"), x)
        gate = ops.div(ops.unary("SILU", gate), gate)
        return ops.add(cur, ops.mul(ffn(b, x, il, suffix="_shexp"), gate))
    act: Act = "swiglu" if how.shared == "fused" else "silu"
    return ops.add(cur, ffn(b, x, il, act, suffix="_shexp"))


def _sub_normed(b: Builder, x: Tensor, il: int, how: Decoder) -> Tensor:
    """A norm between the activation and the down projection."""
    cur = ffn(b, x, il, how.act, down=False)
    return linear(b, norm.layer(b, cur, il, how.ffn_sub_norm), il, "ffn_down")


def finish(b: Builder, x: Tensor, how: Decoder) -> None:
    """Final norm, logits, their scale and soft cap."""
    picked = picks_in_last(b, how)
    b.layer_input(b.n_layer, x)
    if how.rows in ("stream", "normed") and not picked and _picks_early(b):
        x, picked = ops.get_rows(x, b.out_rows()), True
    if how.hand_on and b.since(builds.HIDDEN_ALWAYS_OUT):
        b.outputs.append(x)
    if how.rows == "stream":
        b.outputs.append(x)
        x = x if picked else ops.get_rows(x, b.out_rows())
    cur = output.final_norm(b, x, kind=how.norm)
    if how.rows == "normed":
        b.outputs.append(cur)
        cur = b.embd = cur if picked else ops.get_rows(cur, b.out_rows())
    if how.output == "none":
        b.expand(cur)
        return
    model = b.model
    if how.output == "embeddings":
        cur = ops.mul_mat(b.need_top("token_embd.weight"), cur)
    else:
        cur = output.filled(b, output.logits(b, cur))
    if how.logit_scale == "always" or (how.logit_scale == "given" and model.f_logit_scale):
        cur = ops.scale(cur)
    if how.soft_cap == "always" or (how.soft_cap == "given" and model.f_final_logit_softcapping):
        cur = ops.scale(ops.unary("TANH", ops.scale(cur)))
    output.hand_out(b, cur)
