"""Draft contexts of MTP layers that are not a plain decoder block: gated latent attention, several
residual streams, attention over pools of tokens.

Source: graph_mtp in src/models/{bailingmoe3,deepseek4}.cpp, b10605, and {glm5-next,qwen4exp}.cpp,
b11549.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families import deepseek4, delta_nets, glm5_next, kimi, mtp, qwen4
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import hyper, norm, output
from kvwise.memory.compute.pieces.decoder import feed_forward, last_rows
from kvwise.memory.compute.pieces.linear import linear


def _ling3(b: Builder) -> None:
    """Latent attention, rotated and gated per head."""
    il = b.n_layer
    x = mtp.start(b, il)
    cur = kimi.gated(b, norm.layer(b, x, il, "attn_norm"), il)
    x = ops.add(cur, x)
    x = ops.add(feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, kimi.LING3), x)
    cur = mtp.head_norm(b, x, il)
    b.outputs.append(cur)
    mtp.logits(b, ops.get_rows(cur, b.out_rows()), il)


def _deepseek4(b: Builder) -> None:
    """A window of keys alone; the hidden state is all of the streams."""
    il = b.n_layer
    words, hidden = _words(b, il), _hidden(b)
    hidden = norm.norm(b, hidden, b.need(il, "nextn.hnorm.weight"), il=il)
    both = ops.concat(hyper.start(b, words), hidden, 0)
    streams = linear(b, both, il, "nextn.eh_proj", bias=False)
    mixed = hyper.before(b, streams, il, "attn")
    cur = norm.layer(b, mixed.read, il, "attn_norm")
    streams = hyper.after(b, deepseek4.attended(b, cur, il, role="swa"), mixed, il)
    mixed = hyper.before(b, streams, il, "ffn")
    cur = deepseek4.feed_forward(b, norm.layer(b, mixed.read, il, "ffn_norm"), il)
    streams = hyper.after(b, cur, mixed, il)
    n_embd, count, n, _ = streams.ne
    (rows,) = last_rows(b, ops.reshape(streams, n_embd * count, n))
    b.outputs.append(rows)
    cur = hyper.head(b, ops.reshape(rows, n_embd, count, rows.ne[1]))
    b.embd = cur = mtp.head_norm(b, cur, il)
    mtp.logits(b, cur, il)


def _words(b: Builder, il: int) -> Tensor:
    """The drafted tokens' embeddings, normed."""
    table = b.w(il, "nextn.embed_tokens.weight")
    table = b.need_top("token_embd.weight") if table is None else table
    words = ops.get_rows(table, b.input("tokens", I32, b.n_tokens))
    return norm.norm(b, words, b.need(il, "nextn.enorm.weight"), il=il)


def _hidden(b: Builder) -> Tensor:
    """All residual streams of the model: [n_embd, streams, tokens]."""
    count, n = b.model.dsv4_hc_mult, b.n_tokens
    return ops.reshape(b.input("hidden", F32, b.n_embd * count, n), b.n_embd, count, n)


def _state_rows(b: Builder) -> None:
    """There are no states; the numbers of their rows are an input all the same."""
    b.expand(b.input("state_rows", I32, b.context.n_seq_max))


def _glm5_next(b: Builder) -> None:
    """One residual stream; rows are picked behind attention."""
    il = b.n_layer
    pools = glm5_next.pools_of(b)
    _state_rows(b)
    x = mtp.start(b, il)
    cur, _ = glm5_next.attention(b, norm.layer(b, x, il, "attn_norm"), pools, None, il)
    cur, x = last_rows(b, cur, x)
    x = ops.add(cur, x)
    cur = glm5_next.feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il)
    cur = mtp.head_norm(b, ops.add(cur, x), il)
    b.outputs.append(cur)
    mtp.logits(b, cur, il)


def _qwen4(b: Builder) -> None:
    """The token's row joins each of the streams."""
    model, il = b.model, b.n_layer
    words, hidden = _words(b, il), _hidden(b)
    _state_rows(b)
    pools = qwen4.pools_of(b) if model.indexer_kpool else None
    weight = qwen4.by_stream(b.need(il, "nextn.hnorm.weight"), hidden)
    both = ops.concat(hyper.start(b, words), norm.norm(b, hidden, weight, il=il), 0)
    streams = ops.mul_mat(b.need(il, "nextn.eh_proj.weight"), both)
    cur, inject = qwen4.mixed(b, streams, il, "hc_attn_")
    streams = qwen4.combined(b, streams, qwen4.attend(b, cur, pools, il), inject, il)
    cur, inject = qwen4.mixed(b, streams, il, "hc_ffn_")
    streams = qwen4.combined(b, streams, delta_nets.feed_forward(b, cur, il), inject, il)
    n_embd, count, n, _ = streams.ne
    flat = ops.reshape(streams, n_embd * count, n)
    b.outputs.append(flat)
    (rows,) = last_rows(b, flat)
    b.expand(flat)
    _, cur = qwen4.read(b, ops.reshape(rows, n_embd, count, rows.ne[1]), il, "nextn.hc_head_")
    b.embd = cur
    output.hand_out(b, output.logits(b, cur, bias=False))


ROWS: dict[str, Build] = {
    "bailingmoe3": _ling3,
    "deepseek4": _deepseek4,
    "glm5-next": _glm5_next,
    "qwen4exp": _qwen4,
}
