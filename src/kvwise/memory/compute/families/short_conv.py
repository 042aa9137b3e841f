"""LFM2: short convolutions, and attention in some layers.

Source: src/models/lfm2.cpp, lfm2moe.cpp, b10605.
"""

from __future__ import annotations

from kvwise.memory.compute import ops
from kvwise.memory.compute import state_ops as st
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build, weighted
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import norm, output, recurrent
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    feed_forward,
    last_rows,
    self_attention,
    start,
)


def _is_moe(b: Builder, il: int) -> bool:
    return il >= b.model.n_layer_dense_lead


def _lfm2(b: Builder) -> None:
    attn = Attention(qk_norm="before")
    how = Decoder(attn=attn, moe=weighted(norm=True, gating="given"), moe_layers=_is_moe)
    x = start(b, how)
    for il in range(b.n_layer):
        b.layer_input(il, x)
        cur = norm.layer(b, x, il, "attn_norm")
        cur = short_conv(b, cur, il) if b.model.is_recr(il) else self_attention(b, cur, il, attn)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(x, cur)
        x = ops.add(x, feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, how))
    # the file calls its last norm so
    cur = output.final_norm(b, x, name="token_embd_norm")
    if b.context.embeddings:
        b.expand(cur)
    else:
        output.hand_out(b, output.logits(b, cur, bias=False))


def short_conv(b: Builder, x: Tensor, il: int) -> Tensor:
    """A gated convolution over the last few tokens, without activation."""
    steps, n_seqs, taps = recurrent.sequence_tokens(b), b.n_seqs, b.model.n_shortconv_l_cache
    x = ops.reshape(x, x.ne[0], steps, n_seqs)
    made = ops.mul_mat(b.need(il, "shortconv.in_proj.weight"), x)
    width = made.ne[0] // 3
    gate, out_gate, value = (
        ops.view(made, (width, steps, n_seqs), made.nb[1:3], part * width * made.type.size)
        for part in range(3)
    )
    cur = ops.mul(gate, value)
    if b.model.causal_attn:
        cur = recurrent.roll(b, il, cur, taps, newest_first=True)
    else:
        cur = _centred(b, il, cur, taps)
    cur = st.ssm_conv(cur, b.need(il, "shortconv.conv.weight"))
    cur = ops.mul_mat(b.need(il, "shortconv.out_proj.weight"), ops.mul(out_gate, cur))
    return ops.reshape(cur, cur.ne[0], b.n_tokens)


def _centred(b: Builder, il: int, x: Tensor, taps: int) -> Tensor:
    """Encoders look to both sides."""
    side = (taps - 1) // 2
    kept = ops.reshape(recurrent.read(b, "r", il), taps - 1, b.n_embd, b.n_seqs)
    shape = (side, b.n_embd, b.n_seqs)
    left = ops.cont(ops.view(kept, shape, kept.nb[1:3], (taps - 1 - side) * kept.nb[0]))
    cur = ops.pad(ops.concat(left, ops.transpose(x), 0), side)
    recurrent.keep(b, il, cur, taps, newest_first=True, snapshots=1)
    return cur


ROWS: dict[str, Build] = {"lfm2": _lfm2, "lfm2moe": _lfm2}
