"""Encoders: BERT and its kin, attention within the batch, one vector per token or sequence.

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from functools import partial

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build, plain
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, embed, norm, output
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    last_rows,
    layer,
    self_attention,
    start,
)
from kvwise.memory.compute.pieces.ffn import Act, ffn
from kvwise.memory.compute.pieces.moe import Moe, moe
from kvwise.memory.compute.pieces.qkv import qkv
from kvwise.memory.compute.pieces.rope import rope


def _bert(b: Builder, *, positions: bool = False, turned: bool = False, act: Act = "gelu") -> None:
    """Post-norm: what a part adds is normed together with the stream."""
    model = b.model
    x = embed.tokens(b)
    kinds = b.top("token_types.weight")
    if kinds is not None:
        x = ops.add(x, ops.view_1d(kinds, b.n_embd))
    if positions:
        x = ops.add(ops.get_rows(b.need_top("position_embd.weight"), b.positions()), x)
    weight, bias = b.top("token_embd_norm.weight"), b.top("token_embd_norm.bias")
    x = norm.norm(b, x, weight, bias, kind="layer", il=0)
    for il in range(b.n_layer):
        q, k, v = _normed(b, x, il)
        if turned:
            q, k = rope(b, q, il), rope(b, k, il)
        cur = attention.uncached(b, q, k, v, il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        cur = ops.add(cur, x)
        cur = norm.layer(b, cur, il, "attn_output_norm", kind="layer")
        if b.has(il, "attn_norm_2.weight"):
            cur = norm.layer(b, ops.add(cur, x), il, "attn_norm_2", kind="layer")
        step = model.moe_every_n_layers
        if step > 0 and il % step == 1:
            made = moe(b, cur, il, Moe(act="gelu", scale=model.expert_weights_scale))
        else:
            made = _jina_ffn(b, cur, il) if act == "geglu" else _bert_ffn(b, cur, il, act)
        x = norm.layer(b, ops.add(made, cur), il, "layer_output_norm", kind="layer")
    b.embd = x
    b.expand(x)


def _normed(b: Builder, x: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K, V; whole rows of Q and K normed where the file has the weights."""
    model, n = b.model, b.n_tokens
    head, heads, heads_kv = model.n_embd_head_k(il), model.n_head[il], model.n_head_kv[il]
    q, k, v = qkv(b, x, il, (head, heads, heads_kv))
    if b.has(il, "attn_q_norm.weight"):
        q = norm.layer(b, ops.reshape(q, head * heads, n), il, "attn_q_norm", kind="layer")
        q = ops.reshape(q, head, heads, n)
    if b.has(il, "attn_k_norm.weight"):
        k = norm.layer(b, ops.reshape(k, head * heads_kv, n), il, "attn_k_norm", kind="layer")
        k = ops.reshape(k, head, heads_kv, n)
    return q, k, v


def _bert_ffn(b: Builder, x: Tensor, il: int, act: Act) -> Tensor:
    if act == "silu":  # nomic-bert: llama.cpp loads these biases and adds none of them
        for name in ("ffn_up.bias", "ffn_down.bias"):
            b.leave(il, name)
        return ffn(b, x, il, act, bias=False)
    return ffn(b, x, il, act, gate=False)


def _jina_ffn(b: Builder, x: Tensor, il: int) -> Tensor:
    """Without a gate of its own, a matrix of twice the width holds it."""
    both = not b.has(il, "ffn_gate.weight") and b.need(il, "ffn_up.weight").ne[1] != b.model.n_ff[0]
    return ffn(b, x, il, "geglu" if both else "gelu")


def _modern_bert(b: Builder) -> None:
    """The first layer may have no attention norm; gate and up are one matrix."""
    act = _ACTIVATIONS.get(b.model.hidden_act, "geglu")
    x = embed.tokens(b)
    x = norm.norm(b, x, b.top("token_embd_norm.weight"), kind="layer", il=0)
    for il in range(b.n_layer):
        normed = x
        if b.has(il, "attn_norm.weight"):
            normed = norm.layer(b, x, il, "attn_norm", kind="layer")
        cur = self_attention(b, normed, il, WITHIN)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        cur = norm.layer(b, x, il, "ffn_norm", kind="layer")
        x = ops.add(ffn(b, cur, il, act, gate=False, bias=False), x)
    b.expand(output.final_norm(b, x, kind="layer"))


def _neo_bert(b: Builder) -> None:
    """Its final norm is the encoder's."""
    how = Decoder(attn=WITHIN, act="swiglu")
    x = start(b, how)
    for il in range(b.n_layer):
        x = layer(b, x, il, how)
    b.expand(output.final_norm(b, x, name="enc.output_norm"))


WITHIN = Attention(cached=False)

_ACTIVATIONS: dict[str, Act] = {
    "silu": "swiglu", "swish": "swiglu", "swiglu": "swiglu", "relu": "relu", "reglu": "reglu",
}  # fmt: skip
"""Names in `hidden_activation`; every other one means GEGLU (llama-model.cpp)."""

ROWS: dict[str, Build] = {
    "bert": partial(_bert, positions=True),
    "nomic-bert": partial(_bert, turned=True, act="silu"),
    "nomic-bert-moe": partial(_bert, turned=True),
    "jina-bert-v3": partial(_bert, turned=True),
    "jina-bert-v2": partial(_bert, act="geglu"),
    "modern-bert": _modern_bert,
    "neo-bert": _neo_bert,
    "eurobert": plain(WITHIN, output="none"),
    "gemma-embedding": plain(
        Attention(cached=False, q_scale=True, qk_norm="before"), act="gelu", tokens_scale=True,
        attn_post_norm="post_attention_norm", ffn_post_norm="post_ffw_norm", output="none",
    ),
}  # fmt: skip
