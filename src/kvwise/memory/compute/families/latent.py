"""Latent attention (MLA): DeepSeek V2 and V3, Mistral 4, MiniCPM3, PLM.

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build, plain, weighted
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, keys, latent, norm, output
from kvwise.memory.compute.pieces.decoder import Decoder, feed_forward, finish, last_rows, start
from kvwise.memory.compute.pieces.ffn import ffn

AS_GIVEN = weighted(norm="given", gating="given")

DEEPSEEK = Decoder(moe=AS_GIVEN, shared="plain")
"""How the layers around DeepSeek's attention are put together."""


def temperature(b: Builder, q: Tensor) -> Tensor:
    """Queries scaled by position, where the model does that."""
    if not b.model.f_attn_temp_scale:
        return q
    return ops.mul(q, b.input("attn_scale", F32, 1, 1, b.n_tokens))


def attend(b: Builder, x: Tensor, il: int) -> Tensor:
    """DeepSeek V2: absorbed if the file says so, else with ordinary keys and values."""
    size = latent.sizes(b, il)
    q = ops.reshape(latent.queries(b, x, il), size.head, size.heads, b.n_tokens)
    key = latent.compressed(b, x, il, size)
    if not b.model.is_mla:
        q, k, v = latent.unfolded(b, q, key, il, size)
        return attention.cached(b, temperature(b, q), k, v, il)
    q, k, v = latent.absorbed(b, q, key, il, size)
    extras = attention.Extras(v_mla=b.need(il, "attn_v_b.weight"))
    return keys.cached(b, temperature(b, q), k, v, il, role="main", extras=extras)


def _deepseek2(b: Builder) -> None:
    x = start(b, DEEPSEEK)
    for il in range(b.n_layer):
        cur = attend(b, norm.layer(b, x, il, "attn_norm"), il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        x = ops.add(feed_forward(b, norm.layer(b, x, il, "ffn_norm"), il, DEEPSEEK), x)
    finish(b, x, DEEPSEEK)


def _unfolded(b: Builder, x: Tensor, il: int, *, scaled: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K and V of the models that keep ordinary KV."""
    size = latent.sizes(b, il)
    q = ops.reshape(latent.queries(b, x, il), size.head, size.heads, b.n_tokens)
    key = latent.compressed(b, x, il, size, scaled=scaled)
    return latent.unfolded(b, q, key, il, size, scaled=scaled)


def _minicpm3(b: Builder) -> None:
    """Embeddings, residuals and the last norm are scaled."""
    x = start(b, Decoder(embed_scale=True))
    for il in range(b.n_layer):
        q, k, v = _unfolded(b, norm.layer(b, x, il, "attn_norm"), il, scaled=True)
        cur = attention.cached(b, q, k, v, il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(ops.scale(cur), x)
        x = ops.add(ops.scale(ffn(b, norm.layer(b, x, il, "ffn_norm"), il)), x)
    output.hand_out(b, output.logits(b, ops.scale(output.final_norm(b, x)), bias=False))


def _plm(b: Builder) -> None:
    """Its values lose their heads on the way, which flash attention cannot take."""
    how = Decoder(act="relu_sqr")
    x = start(b, how)
    for il in range(b.n_layer):
        q, k, v = _unfolded(b, norm.layer(b, x, il, "attn_norm"), il, scaled=False)
        width = v.ne[0] * v.ne[1]
        v = ops.view_2d(v, width, b.n_tokens, v.type.row_bytes(width))
        cur = attention.cached(b, q, k, v, il)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = ops.add(cur, x)
        x = ops.add(ffn(b, norm.layer(b, x, il, "ffn_norm"), il, "relu_sqr"), x)
    finish(b, x, how)


ROWS: dict[str, Build] = {
    "deepseek2": _deepseek2,
    "mistral4": _deepseek2,
    "deepseek2-ocr": plain(moe=AS_GIVEN, shared="plain"),
    "minicpm3": _minicpm3,
    "plm": _plm,
}
