"""DFlash: a block of masked tokens at once, against the target's features in the draft's cache.

DSpark is DFlash with a head that makes each guess depend on the one before. Source:
src/models/dflash.cpp, b10605 and b11549. What is reserved is the decoder's graph.
"""

from __future__ import annotations

from kvwise import builds
from kvwise.gguf.types import I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families import deepseek4, dflash2
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, head, hyper, norm, output
from kvwise.memory.compute.pieces.attention import Extras
from kvwise.memory.compute.pieces.ffn import Act, ffn
from kvwise.memory.compute.pieces.linear import linear


def _dflash(b: Builder) -> None:
    head.leave_encoder(b)
    if b.model.dsv4_hc_mult:
        _on_streams(b)
        return
    model, newer = b.model, b.since(builds.DFLASH_OPTIONS)
    x = head.token_rows(b)
    if newer and model.f_embedding_scale:
        x = ops.scale(x)
    act: Act = "gelu" if newer and _turned(b) else "silu"
    for il in range(b.n_layer):
        x = _layer(b, x, il, act, scaled=newer and bool(model.f_attn_value_scale))
    cur = output.final_norm(b, x)
    selects = dflash2.selects(b)
    made = head.product(b, cur, scaled=True)
    if selects:
        made = dflash2.transformed(b, made)
    made = head.scattered(b, made)
    b.expand(made)
    if b.top("markov_w1.weight") is not None:
        made = _markov(b, made, cur)
    output.hand_out(b, made)
    if selects:
        dflash2.select(b, made, cur)


def _on_streams(b: Builder) -> None:
    """Blocks of DeepSeek V4, whose keys are a window alone."""
    streams = hyper.start(b, head.token_rows(b))
    for il in range(b.n_layer):
        mixed = hyper.before(b, streams, il, "attn")
        cur = norm.layer(b, mixed.read, il, "attn_norm")
        streams = hyper.after(b, deepseek4.attended(b, cur, il, role="swa"), mixed, il)
        mixed = hyper.before(b, streams, il, "ffn")
        cur = deepseek4.feed_forward(b, norm.layer(b, mixed.read, il, "ffn_norm"), il)
        streams = hyper.after(b, cur, mixed, il)
    b.embd = collapsed = hyper.head(b, streams)
    cur = norm.norm(b, collapsed, b.need_top("output_norm.weight"))
    made = head.product(b, cur, scaled=True)
    b.expand(made)
    if b.top("markov_w1.weight") is not None:
        made = _markov(b, made, collapsed)
    output.hand_out(b, made)


def _turned(b: Builder) -> bool:
    """Whether the file names a smooth activation; only newer builds look."""
    return b.model.header.get(".hidden_activation") in ("gelu", "gelu_pytorch_tanh")


def _layer(b: Builder, x: Tensor, il: int, act: Act, *, scaled: bool) -> Tensor:
    cur, mixed = dflash2.before(b, norm.layer(b, x, il, "attn_norm"), il, "attn")
    cur = _attend(b, cur, il)
    cur = ops.scale(cur) if scaled else cur
    cur = dflash2.after(b, cur, mixed, il, "attn")
    x = ops.add(_normed(b, cur, il, "post_attention_norm"), x)
    cur, mixed = dflash2.before(b, norm.layer(b, x, il, "ffn_norm"), il, "ffn")
    cur = dflash2.after(b, ffn(b, cur, il, act, bias=False), mixed, il, "ffn")
    x = ops.add(_normed(b, cur, il, "post_ffw_norm"), x)
    scale = b.w(il, "layer_output_scale.weight")
    return x if scale is None else ops.mul(x, scale)


def _normed(b: Builder, x: Tensor, il: int, name: str) -> Tensor:
    """Normed, where the file has a weight for it."""
    return norm.layer(b, x, il, name) if b.has(il, name + ".weight") else x


def _attend(b: Builder, x: Tensor, il: int) -> Tensor:
    """Values may be the keys; all layers have the first one's factors."""
    model, n = b.model, b.n_tokens
    size, heads, heads_kv = model.n_embd_head_k(il), model.n_head[il], model.n_head_kv[il]
    q, k = (linear(b, x, il, f"attn_{side}", bias=False) for side in "qk")
    own = b.has(il, "attn_v.weight")
    v = linear(b, x, il, "attn_v", bias=False) if own else k
    q = ops.reshape(q, size, heads, n)
    k, v = (ops.reshape(t, size, heads_kv, n) for t in (k, v))
    q, k = norm.layer(b, q, il, "attn_q_norm"), norm.layer(b, k, il, "attn_k_norm")
    v = v if own else ops.rms_norm(v)
    factors = b.top("rope_freqs.weight", 0)
    q, k = (ops.rope(t, b.positions(), factors) for t in (q, k))
    sinks = Extras(sinks=b.w(il, "attn_sinks.weight"))
    return attention.cached(b, q, k, v, il, extras=sinks)


def _markov(b: Builder, base: Tensor, hidden: Tensor) -> Tensor:
    """DSpark: each position's scores depend on the token guessed before it.

    Batches longer than the blocks it was trained on pass it by.
    """
    size = b.model.header.get("dflash.block_size")
    if not isinstance(size, int) or size <= 0 or base.ne[1] % b.n_seqs:
        raise Unbuildable("dflash.block_size")
    blocks, length = b.n_seqs, base.ne[1] // b.n_seqs
    if length > size:
        b.leave_all("markov_")
        b.leave_all("conf_proj")
        return base
    trusts = b.top("conf_proj.weight") is not None
    tokens = b.input("tokens", I32, b.n_tokens)
    before = ops.cont(ops.view_2d(tokens, 1, blocks, length * tokens.nb[0]), blocks)
    many, stride = base.ne[0], length * base.nb[1]
    scores: list[Tensor] = []
    trust: list[Tensor] = []
    if b.model.header.get("dflash.sample_from_anchor") is False:
        scores.append(ops.cont(ops.view_2d(base, many, blocks, stride)))
        trust.append(ops.unary("SIGMOID", ops.cont(ops.view_2d(base, 1, blocks, stride))))
    for place in range(len(scores), length):
        known = ops.get_rows(b.need_top("markov_w1.weight"), before)
        bias = head.scattered(b, ops.mul_mat(b.need_top("markov_w2.weight"), known))
        here = ops.view_2d(base, many, blocks, stride, place * base.nb[1])
        here = ops.add(here, bias)
        scores.append(here)
        if trusts:
            trust.append(_trust(b, hidden, known, place))
        before = ops.new("ARGMAX", I32, (blocks, 1, 1, 1), (here,))
    if trusts:
        b.outputs.append(ops.repeat(_block_major(trust, blocks), *hidden.ne))
        b.expand(b.outputs[-1])
    return _block_major(scores, blocks)


def _trust(b: Builder, hidden: Tensor, known: Tensor, place: int) -> Tensor:
    """How likely a position's token is accepted."""
    length, blocks = hidden.ne[1] // b.n_seqs, b.n_seqs
    x = ops.view_2d(hidden, hidden.ne[0], blocks, length * hidden.nb[1], place * hidden.nb[1])
    cur = ops.mul_mat(b.need_top("conf_proj.weight"), ops.concat(ops.cont(x), known, 0))
    bias = b.top("conf_proj.bias")
    return ops.unary("SIGMOID", cur if bias is None else ops.add(cur, bias))


def _block_major(parts: list[Tensor], blocks: int) -> Tensor:
    """Positions of all blocks, put back in the order of the batch."""
    cur, width = parts[0], parts[0].ne[0]
    for part in parts[1:]:
        cur = ops.concat(cur, part, 1)
    cur = ops.cont(ops.permute(ops.reshape(cur, width, blocks, len(parts)), 0, 2, 1, 3))
    return ops.reshape(cur, width, blocks * len(parts))


ROWS: dict[str, Build] = {"dflash": _dflash}
