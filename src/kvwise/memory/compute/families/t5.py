"""T5: a bias by distance on the scores, and a decoder that looks at the encoder's output.

What is reserved for a T5 context is its decoder's graph; an encoder alone has the encoder's.
Source: src/models/t5.cpp; llama-graph.cpp build_pos_bias, build_inp_cross_embd, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F16, F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import attention, embed, norm, output
from kvwise.memory.compute.pieces.decoder import last_rows
from kvwise.memory.compute.pieces.ffn import activate


def _of(b: Builder, side: str, il: int, name: str) -> Tensor:
    """A weight of one half of the model, which must be there."""
    return b.need_top(f"{side}.blk.{il}.{name}.weight")


def _bias(b: Builder, side: str, il: int, cells: int) -> Tensor:
    """What the distance of two tokens adds to each head's scores; layer 0's if it has no own."""
    table = b.top(f"{side}.blk.{il}.attn_rel_b.weight")
    if table is None:
        table = _of(b, side, 0, "attn_rel_b")
    buckets = b.input("buckets", I32, cells, b.n_tokens)
    bias = ops.get_rows(table, ops.reshape(buckets, cells * b.n_tokens))
    bias = ops.reshape(bias, bias.ne[0], cells, b.n_tokens)
    return ops.cont(ops.permute(bias, 2, 0, 1, 3))


def _qkv(b: Builder, x: Tensor, y: Tensor, side: str, il: int, *, start: str) -> list[Tensor]:
    """Q of `x`, K and V of `y`."""
    model = b.model
    head, heads, heads_kv = model.n_embd_head_k(il), model.n_head[il], model.n_head_kv[il]
    made = []
    for letter, source, count in (("q", x, heads), ("k", y, heads_kv), ("v", y, heads_kv)):
        cur = ops.mul_mat(_of(b, side, il, start + letter), source)
        made.append(ops.reshape(cur, head, count, source.ne[1]))
    return made


def _ffn(b: Builder, x: Tensor, side: str, il: int) -> Tensor:
    """Gated GELU where there is a gate, else ReLU."""
    cur = norm.norm(b, x, _of(b, side, il, "ffn_norm"), il=il)
    up = ops.mul_mat(_of(b, side, il, "ffn_up"), cur)
    gate = b.top(f"{side}.blk.{il}.ffn_gate.weight")
    if gate is None:
        cur = activate(up, up, "relu", gated=False)
    else:
        cur = activate(ops.mul_mat(gate, cur), up, "gelu", gated=True)
    return ops.add(ops.mul_mat(_of(b, side, il, "ffn_down"), cur), x)


def _encoder(b: Builder) -> None:
    x = embed.tokens(b)
    for il in range(b.n_layer):
        normed = norm.norm(b, x, _of(b, "enc", il, "attn_norm"), il=il)
        q, k, v = _qkv(b, normed, normed, "enc", il, start="attn_")
        extras = attention.Extras(bias=_bias(b, "enc", il, b.n_tokens))
        cur = attention.uncached(b, q, k, v, il, out=None, extras=extras)
        cur = ops.mul_mat(_of(b, "enc", il, "attn_o"), cur)
        if il == b.n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = _ffn(b, ops.add(cur, x), "enc", il)
    b.expand(output.final_norm(b, x, name="enc.output_norm"))


def _decoder(b: Builder) -> None:
    model = b.model
    x = embed.tokens(b)
    encoded = b.input("encoded", F32, model.n_embd_inp, model.n_ctx_train)
    for il in range(model.dec_n_layer):
        cur = norm.norm(b, x, _of(b, "dec", il, "attn_norm"), il=il)
        q, k, v = _qkv(b, cur, cur, "dec", il, start="attn_")
        extras = attention.Extras(bias=_bias(b, "dec", il, b.cache_of(il).cells))
        cur = attention.cached(b, q, k, v, il, out=None, extras=extras)
        x = ops.add(ops.mul_mat(_of(b, "dec", il, "attn_o"), cur), x)
        cur = norm.norm(b, x, _of(b, "dec", il, "cross_attn_norm"), il=il)
        q, k, v = _qkv(b, cur, encoded, "dec", il, start="cross_attn_")
        b.expand(q, k, v)
        mask = b.input("cross mask", F16 if b.flash_attn else F32, encoded.ne[1], b.n_tokens)
        cur = ops.mul_mat(_of(b, "dec", il, "cross_attn_o"), attention.attend(b, q, k, v, mask))
        if il == model.dec_n_layer - 1:
            cur, x = last_rows(b, cur, x)
        x = _ffn(b, ops.add(cur, x), "dec", il)
        b.leave_all(f"dec.blk.{il}.cross_attn_rel_b")
    b.leave_all("enc.")
    cur = output.final_norm(b, x, name="dec.output_norm")
    output.hand_out(b, output.logits(b, cur))


ROWS: dict[str, Build] = {"t5": _decoder, "t5encoder": _encoder}
