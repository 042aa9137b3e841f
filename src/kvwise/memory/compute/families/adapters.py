"""Granite Switch: adapters for every matrix, chosen per token by a head of attention of its own.

Source: src/models/granite-switch.cpp, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, norm
from kvwise.memory.compute.pieces.decoder import Decoder, finish, last_rows
from kvwise.memory.compute.pieces.rope import rope


def _granite_switch(b: Builder) -> None:
    model = b.model
    ids = b.input("substituted tokens", I32, b.n_tokens)
    x = ops.get_rows(b.need_top("token_embd.weight"), ids)
    if model.f_embedding_scale:
        x = ops.scale(x)
    chosen = _router(b)
    for il in range(b.n_layer):
        cur = _attention(b, norm.layer(b, x, il, "attn_norm"), chosen, il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
            kept = ops.get_rows(ops.reshape(chosen, 1, chosen.ne[0]), b.out_rows())
            chosen = ops.reshape(kept, b.n_outputs)
        x = ops.add(_residual(b, cur), x)
        cur = norm.layer(b, x, il, "ffn_norm")
        gate = _adapted(b, cur, chosen, il, "ffn_gate")
        up = _adapted(b, cur, chosen, il, "ffn_up")
        cur = ops.mul(ops.unary("SILU", gate), up)
        x = ops.add(_residual(b, _adapted(b, cur, chosen, il, "ffn_down")), x)
    finish(b, x, Decoder(logit_scale="always"))


def _residual(b: Builder, x: Tensor) -> Tensor:
    return ops.scale(x) if b.model.f_residual_scale else x


def _router(b: Builder) -> Tensor:
    """The adapter of each token: attention over signals, read back as a number."""
    n, il = b.n_tokens, b.model.router_layer
    head = b.model.n_embd_head_v()
    q, k, v = (
        ops.pad(ops.reshape(b.input(("router", name), F32, n), 1, 1, n), head - 1)
        for name in ("q", "k", "v")
    )
    cur = attention.cached(b, q, k, v, il, out=None)
    cur = ops.cont(ops.view_2d(cur, 1, n, cur.nb[1]))
    cur = ops.unary("ROUND", ops.clamp(ops.reshape(cur, n)))
    return ops.cast(cur, I32)


def _delta(b: Builder, x: Tensor, chosen: Tensor, il: int, name: str) -> Tensor:
    """What the chosen adapters add."""
    width, n, _, _ = x.ne
    rows, ids = ops.reshape(x, width, 1, n), ops.reshape(chosen, 1, n)
    cur = ops.mul_mat_id(b.need(il, name + ".lora_a"), rows, ids)
    cur = ops.mul_mat_id(b.need(il, name + ".lora_b"), cur, ids)
    return ops.reshape(cur, cur.ne[0], n)


def _adapted(b: Builder, x: Tensor, chosen: Tensor, il: int, name: str) -> Tensor:
    """A product, with what the chosen adapters add."""
    base = ops.mul_mat(b.need(il, name + ".weight"), x)
    return ops.add(base, _delta(b, x, chosen, il, name))


def _attention(b: Builder, x: Tensor, chosen: Tensor, il: int) -> Tensor:
    model, n = b.model, b.n_tokens
    head, heads, heads_kv = model.n_embd_head_k(il), model.n_head[il], model.n_head_kv[il]
    cur = ops.mul_mat(b.need(il, "attn_qkv.weight"), x)
    made, start = [], 0
    for name, count in (("attn_q", heads), ("attn_k", heads_kv), ("attn_v", heads_kv)):
        width = head * count
        part = ops.cont(ops.view_2d(cur, width, n, cur.nb[1], start * cur.nb[0]))
        part = ops.add(part, _delta(b, x, chosen, il, name))
        made.append(ops.reshape(part, head, count, n))
        start += width
    q, k, v = made
    if model.has_rope(il):
        q, k = (rope(b, t, il, scaled=True) for t in (q, k))
    cur = attention.cached(b, q, k, v, il, out=None)
    return _adapted(b, cur, chosen, il, "attn_output")


ROWS: dict[str, Build] = {"graniteswitch": _granite_switch}
