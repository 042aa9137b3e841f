"""Dense decoders that leave the plain pattern, each in its own way.

Source: src/models/NAME.cpp of each, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families.rows import Build, plain
from kvwise.memory.compute.pieces import attention, norm, output
from kvwise.memory.compute.pieces.decoder import (
    Attention,
    Decoder,
    finish,
    last_rows,
    layer,
    start,
)
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.qkv import qkv
from kvwise.memory.compute.pieces.rope import rope

BEFORE = Attention(qk_norm="before")


def _qwen3vl(b: Builder) -> None:
    """Qwen3-TTS too: an output smaller than the vocabulary is filled up with minus infinity."""
    how = Decoder(attn=BEFORE, deepstack="after")
    x = start(b, how)
    for il in range(b.n_layer):
        x = layer(b, x, il, how)
    cur = output.logits(b, output.final_norm(b, x), bias=False)
    if cur.ne[0] > b.need_top("token_embd.weight").ne[1]:
        raise Unbuildable("the output is larger than the vocabulary")
    output.hand_out(b, output.filled(b, cur))


def _cogvlm(b: Builder) -> None:
    """Second matrices for images are loaded beside those for text; all rows give logits."""
    how = Decoder(rows="all")
    model, n = b.model, b.n_tokens
    x = start(b, how)
    for il in range(b.n_layer):
        b.leave(il, "vis_")
        head, heads, heads_kv = model.n_embd_head_k(il), model.n_head[il], model.n_head_kv[il]
        cur = norm.layer(b, x, il, "attn_norm")
        cur = ops.mul_mat(b.need(il, "attn_qkv.weight"), cur)
        steps, part = (head * cur.nb[0], cur.nb[1]), b.n_embd * cur.nb[0]
        q = ops.view_3d(cur, (head, heads, n), steps)
        k = ops.view_3d(cur, (head, heads_kv, n), steps, part)
        v = ops.view_3d(cur, (head, heads_kv, n), steps, 2 * part)
        q, k = rope(b, q, il), rope(b, k, il)
        x = ops.add(attention.cached(b, q, k, v, il), x)
        x = ops.add(ffn(b, norm.layer(b, x, il, "ffn_norm"), il), x)
    finish(b, x, how)


def _talkie(b: Builder) -> None:
    """Norms without weights, and the embeddings added again after every layer."""
    how = Decoder(embed_norm="bare", logit_scale="always")
    model = b.model
    x = skip = start(b, how)
    for il in range(b.n_layer):
        sizes = (model.n_embd_head_k(il), model.n_head[il], model.n_head_kv[il])
        q, k, v = qkv(b, ops.rms_norm(x), il, sizes)
        q, k = rope(b, q, il), rope(b, k, il)
        q, k = norm.layer(b, q, il, "attn_q_norm"), ops.rms_norm(k)
        cur = attention.cached(b, q, k, v, il)
        if il == b.n_layer - 1:
            cur, x, skip = last_rows(b, cur, x, skip)
        x = ops.add(cur, x)
        x = ops.add(ffn(b, ops.rms_norm(x), il), x)
        x = ops.add(x, ops.mul(skip, b.need(il, "layer_output_scale.weight")))
    finish(b, x, how)


def _nanbeige(b: Builder) -> None:
    """The same layers several times, each time with caches of their own; a norm in between."""
    model = b.model
    how = Decoder(attn=Attention(factors=True))
    x = start(b, how)
    if model.n_loops > 1:
        b.period = b.n_layer // model.n_loops
    for il in range(b.n_layer):
        x = layer(b, x, il, how)
        again = b.period and (il + 1) % b.period == 0 and il + 1 < b.n_layer
        if again and not model.skip_loop_final_norm:
            x = norm.norm(b, x, b.top("output_norm.weight"), il=il)
    finish(b, x, how)


def _openelm(b: Builder) -> None:
    """Q, K and V are heads of one product; the residual comes first in the sum."""
    how = Decoder()
    model, n = b.model, b.n_tokens
    x = start(b, how)
    for il in range(b.n_layer):
        head, heads, heads_kv = model.n_embd_head_k(il), model.n_head[il], model.n_head_kv[il]
        cur = norm.layer(b, x, il, "attn_norm")
        cur = ops.mul_mat(b.need(il, "attn_qkv.weight"), cur)
        cur = ops.reshape(cur, head, heads + 2 * heads_kv, n)
        row, steps = cur.nb[1], (cur.nb[1], cur.nb[2])
        q = ops.view_3d(cur, (head, heads, n), steps)
        k = ops.view_3d(cur, (head, heads_kv, n), steps, row * heads)
        v = ops.view_3d(cur, (head, heads_kv, n), steps, row * (heads + heads_kv))
        q, k = norm.layer(b, q, il, "attn_q_norm"), norm.layer(b, k, il, "attn_k_norm")
        cur = attention.cached(b, rope(b, q, il), rope(b, k, il), v, il)
        if il == b.n_layer - 1:
            x, cur = last_rows(b, x, cur)
        x = ops.add(x, cur)
        x = ops.add(ffn(b, norm.layer(b, x, il, "ffn_norm"), il), x)
    finish(b, x, how)


IMAGE_TOKENS = 8192
"""Logits of Chameleon that are suppressed: those of image tokens."""


def _chameleon(b: Builder) -> None:
    """Norms before or after attention and network (Swin); no logits for image tokens."""
    attn = Attention(qk_norm="before", qk_kind="layer")
    how = Decoder(attn=attn)
    if b.model.swin_norm:
        how = Decoder(
            attn=attn, attn_norm="", attn_post_norm="attn_norm", ffn_norm="",
            ffn_post_norm="ffn_norm", pin_post=True,
        )  # fmt: skip
    x = start(b, how)
    for il in range(b.n_layer):
        x = layer(b, x, il, how)
    cur = output.logits(b, output.final_norm(b, x), bias=False)
    if cur.elements < IMAGE_TOKENS:
        raise Unbuildable("fewer logits than image tokens")
    images = ops.clamp(ops.new("NONE", F32, (IMAGE_TOKENS, 1, 1, 1)))
    output.hand_out(b, ops.new("SET", cur.type, cur.ne, (cur, images)))


ROWS: dict[str, Build] = {
    "plamo3": plain(
        Attention(qk_norm="before", two_sizes=True), act="swiglu",
        attn_post_norm="post_attention_norm", ffn_post_norm="post_ffw_norm", pin_post=True,
    ),
    "qwen3vl": _qwen3vl,
    "qwen3tts": _qwen3vl,
    "cogvlm": _cogvlm,
    "talkie": _talkie,
    "nanbeige": _nanbeige,
    "openelm": _openelm,
    "chameleon": _chameleon,
    "pockettts": plain(norm="layer", act="gelu"),
}  # fmt: skip
