"""Draft contexts of models whose attention looks at pools of tokens: GLM 5 Next and Qwen 4.

One attention layer with an indexer of its own and no states; the numbers of the states are an
input all the same. Source: graph_mtp in src/models/{glm5-next,qwen4exp}.cpp, b11549.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families import glm5_next, mtp, qwen4
from kvwise.memory.compute.families.delta_nets import feed_forward
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.pieces import hyper, norm, output
from kvwise.memory.compute.pieces.decoder import last_rows


def _state_rows(b: Builder) -> None:
    """Allocated from the start, read by nobody."""
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
    """The hidden state is as many streams as the model has; the token's row joins each of them."""
    model, il, n = b.model, b.n_layer, b.n_tokens
    n_embd, count = b.n_embd, model.dsv4_hc_mult
    hidden = b.input("hidden", F32, n_embd * count, n)
    words = ops.get_rows(b.need_top("token_embd.weight"), b.input("tokens", I32, n))
    _state_rows(b)
    pools = qwen4.pools_of(b) if model.indexer_kpool else None
    hidden = ops.reshape(hidden, n_embd, count, n)
    weight = qwen4.by_stream(b.need(il, "nextn.hnorm.weight"), hidden)
    hidden = norm.norm(b, hidden, weight, il=il)
    words = norm.norm(b, words, b.need(il, "nextn.enorm.weight"), il=il)
    both = ops.concat(hyper.start(b, words), hidden, 0)
    streams = ops.mul_mat(b.need(il, "nextn.eh_proj.weight"), both)
    cur, inject = qwen4.mixed(b, streams, il, "hc_attn_")
    streams = qwen4.combined(b, streams, qwen4.attend(b, cur, pools, il), inject, il)
    cur, inject = qwen4.mixed(b, streams, il, "hc_ffn_")
    streams = qwen4.combined(b, streams, feed_forward(b, cur, il), inject, il)
    flat = ops.reshape(streams, n_embd * count, n)
    b.outputs.append(flat)
    (rows,) = last_rows(b, flat)
    b.expand(flat)
    _, cur = qwen4.read(b, ops.reshape(rows, n_embd, count, rows.ne[1]), il, "nextn.hc_head_")
    b.embd = cur
    output.hand_out(b, output.logits(b, cur, bias=False))


ROWS: dict[str, Build] = {"glm5-next": _glm5_next, "qwen4exp": _qwen4}
