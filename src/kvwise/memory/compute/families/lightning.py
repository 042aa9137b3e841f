"""MiniMax-01: linear attention with tables of decay, and attention in some layers.

Source: src/models/minimax-01.cpp, b10605.
"""

from __future__ import annotations

from kvwise import builds
from kvwise.gguf.types import F32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import norm, recurrent
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    finish,
    last_rows,
    self_attention,
    start,
)
from kvwise.memory.compute.pieces.moe import Moe, moe

Triple = tuple[Tensor, Tensor, Tensor]


def _minimax(b: Builder) -> None:
    """Residuals are the normed inputs, scaled."""
    attn = Attention()
    how = Decoder(attn=attn)
    x = start(b, how)
    for il in range(b.n_layer):
        b.layer_input(il, x)
        normed = norm.layer(b, x, il, "attn_norm")
        linear = b.model.is_recr(il)
        cur = _linear(b, normed, il) if linear else self_attention(b, normed, il, attn)
        if il == b.n_layer - 1:
            cur, normed = last_rows(b, cur, normed)
        x = ops.add(cur, ops.scale(normed))
        normed = norm.layer(b, x, il, "ffn_norm")
        cur = moe(b, normed, il, Moe(norm=True, scale=b.model.expert_weights_scale))
        x = ops.add(cur, ops.scale(normed))
    finish(b, x, how)


def _linear(b: Builder, x: Tensor, il: int) -> Tensor:
    """Lightning attention of one layer, with a norm and a gate before its projection."""
    head, heads = b.model.n_embd_head_v(), b.model.n_head[0]
    steps, n_seqs = recurrent.sequence_tokens(b), b.n_seqs
    recurrent.read(b, "r", il)
    x = ops.reshape(x, x.ne[0], steps, 1, n_seqs)
    both = ops.unary("SILU", ops.mul_mat(b.need(il, "attn_qkv.weight"), x))
    both = ops.reshape(both, head * 3, heads, steps, n_seqs)
    shape, width = (head, heads, steps, n_seqs), head * both.type.size
    q, k, v = (ops.view(both, shape, both.nb[1:], part * width) for part in range(3))
    state = ops.reshape(recurrent.read(b, "s", il), head, head, heads, n_seqs)
    slopes = ops.scale(b.input("slopes", F32, heads))
    run = _one if steps == 1 and not b.since(builds.DECAY_ALWAYS) else _many
    cur, state = run(b, (q, k, v), state, slopes)
    recurrent.write(b, "s", il, state)
    cur = ops.cont(ops.permute(cur, 0, 2, 1, 3))
    cur = ops.reshape(cur, cur.ne[0] * cur.ne[1], cur.ne[2], 1, cur.ne[3])
    cur = norm.layer(b, cur, il, "attn_norm_2")
    gate = ops.unary("SIGMOID", ops.mul_mat(b.need(il, "attn_gate.weight"), x))
    cur = ops.mul_mat(b.need(il, "attn_output.weight"), ops.mul(gate, cur))
    return ops.reshape(cur, cur.ne[0], b.n_tokens)


def _faded(state: Tensor, slopes: Tensor) -> Tensor:
    """The state after the batch's tokens, without their part."""
    decay = ops.unary("EXP", ops.scale(slopes))
    return ops.mul(state, ops.reshape(decay, 1, 1, decay.ne[0]))


def _one(b: Builder, qkv: Triple, state: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """One token per sequence."""
    del b
    q, k, v = qkv
    v, k = (ops.cont(ops.permute(t, 1, 2, 0, 3)) for t in (v, k))
    state = ops.add(_faded(state, slopes), ops.mul_mat(k, v))
    return ops.mul_mat(state, ops.permute(q, 0, 2, 1, 3)), state


def _many(b: Builder, qkv: Triple, state: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Several tokens: with each other, and with the state."""
    q, k, v = qkv
    heads, steps, n_seqs = q.ne[1:]

    def decay(name: str, *ne: int) -> Tensor:
        return ops.unary("EXP", ops.scale(b.input(name, F32, *ne)))

    q_decay = decay("q_decay", 1, heads, steps, n_seqs)
    across = ops.mul_mat(state, ops.permute(ops.mul(q, q_decay), 0, 2, 1, 3))
    scores = ops.mul_mat(ops.permute(k, 0, 2, 1, 3), ops.permute(q, 0, 2, 1, 3))
    scores = ops.mul(scores, decay("diag_decay", steps, steps, heads, n_seqs))
    v = ops.cont(ops.permute(v, 1, 2, 0, 3))
    cur = ops.add(across, ops.mul_mat(v, scores))
    b.expand(cur)
    kept = ops.mul(k, decay("k_decay", 1, heads, steps, n_seqs))
    kept = ops.cont(ops.permute(kept, 1, 2, 0, 3))
    return cur, ops.add(_faded(state, slopes), ops.mul_mat(kept, v))


ROWS: dict[str, Build] = {"minimax-01": _minimax}
