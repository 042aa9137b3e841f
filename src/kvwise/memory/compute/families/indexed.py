"""Latent attention over chosen tokens: DeepSeek V3.2, GLM 5, dots3.note.

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families.latent import DEEPSEEK
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import indexer, keys, latent, norm
from kvwise.memory.compute.pieces.attention import Extras
from kvwise.memory.compute.pieces.decoder import feed_forward, finish, last_rows, start
from kvwise.memory.compute.pieces.linear import linear


def _deepseek32(b: Builder) -> None:
    """Layers without an indexer of their own take over the last choice."""
    chosen: Tensor | None = None
    x = start(b, DEEPSEEK)
    for il in range(b.n_layer):
        cur = norm.layer(b, x, il, "attn_norm")
        rows = latent.query_rows(b, cur, il)
        if b.model.is_indexer_full(il):
            chosen = indexer.top_k(b, cur, rows, il, role="indexer")
        else:
            b.leave(il, "indexer.")
        if chosen is None:
            raise Unbuildable("the first layer has no indexer")
        cur = _chosen_only(b, cur, rows, chosen, il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        x = ops.add(feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, DEEPSEEK), x)
    finish(b, x, DEEPSEEK)


def _chosen_only(b: Builder, x: Tensor, rows: Tensor, chosen: Tensor, il: int) -> Tensor:
    size = latent.sizes(b, il)
    q = ops.mul_mat(b.need(il, "attn_q_b.weight"), rows)
    q, k, v = latent.absorbed(b, q, latent.compressed(b, x, il, size), il, size)
    extras = Extras(v_mla=b.need(il, "attn_v_b.weight"))
    return indexer.cached(b, q, k, v, chosen, il, role="mla", extras=extras)


def _dots3note(b: Builder) -> None:
    """Windowed layers attend to all of their window; heads are gated one by one."""
    x = start(b, DEEPSEEK)
    for il in range(b.n_layer):
        cur = _gated(b, norm.layer(b, x, il, "attn_norm"), il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        x = ops.add(feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, DEEPSEEK), x)
    finish(b, x, DEEPSEEK)


def _gated(b: Builder, x: Tensor, il: int) -> Tensor:
    size = _sizes(b, il)
    rows = latent.query_rows(b, x, il)
    key = latent.compressed(b, x, il, size)
    q = ops.mul_mat(b.need(il, "attn_q_b.weight"), rows)
    extras = Extras(v_mla=b.need(il, "attn_v_b.weight"))
    if b.model.is_swa(il):
        q, k, v = latent.absorbed(b, q, key, il, size)
        cur = keys.cached(b, q, k, v, il, role="swa", out=None, extras=extras)
    else:
        chosen = indexer.top_k(b, x, rows, il, role="dsa.indexer")
        q, k, v = latent.absorbed(b, q, key, il, size)
        cur = indexer.cached(b, q, k, v, chosen, il, role="dsa.mla", out=None, extras=extras)
    gate = ops.unary("SIGMOID", ops.mul_mat(b.need(il, "attn_gate.weight"), x))
    heads, n = size.heads, b.n_tokens
    cur = ops.mul(ops.reshape(cur, size.value, heads, n), ops.reshape(gate, 1, heads, n))
    return linear(b, ops.reshape(cur, size.value * heads, n), il, "attn_output")


def _sizes(b: Builder, il: int) -> latent.Sizes:
    model = b.model
    if not model.is_swa(il):
        return latent.sizes(b, il)
    return latent.Sizes(
        model.n_embd_head_k_mla_swa,
        model.n_rot(),
        model.n_embd_head_v_mla_swa,
        model.n_lora_kv_swa,
        model.n_head[il],
    )


ROWS: dict[str, Build] = {
    "deepseek32": _deepseek32,
    "glm-dsa": _deepseek32,
    "dots3note": _dots3note,
}
