"""RWKV of versions 6 and 7, and the same on top of Qwen2.

Source: src/models/rwkv6.cpp, rwkv7.cpp, rwkv6qwen2.cpp, arwkv7.cpp, b10605.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import norm, recurrent, rwkv
from kvwise.memory.compute.pieces.decoder import Decoder, finish, last_rows, start
from kvwise.memory.compute.pieces.ffn import ffn

TimeMix = Callable[[Tensor, Tensor, int], Tensor]
"""From a layer's tokens and their predecessors."""


def _time_mix(b: Builder, version: int) -> TimeMix:
    first: list[Tensor] = []  # version 7: the values of the first layer

    def mix(x: Tensor, previous: Tensor, il: int) -> Tensor:
        if version == 6:
            return rwkv.time_mix_6(b, x, previous, il)
        cur, value = rwkv.time_mix_7(b, x, previous, il, first[0] if first else None)
        first.append(value)
        return cur

    return mix


def _rwkv(b: Builder, *, version: int) -> None:
    """Time mixing and channel mixing, each with the token before."""
    how = Decoder(norm="layer", embed_norm="weights")
    mix, steps, n = _time_mix(b, version), recurrent.sequence_tokens(b), b.n_tokens
    rescale = b.model.rescale_every_n_layers if version == 6 else 0
    x = start(b, how)
    for il in range(b.n_layer):
        x = ops.reshape(x, b.n_embd, steps, b.n_seqs)
        shift = rwkv.load_shift(b, il)
        shape, size = (b.n_embd, 1, b.n_seqs), shift.type.size
        seen = ops.view(shift, shape, shift.nb[1:3])
        seen_after = ops.view(shift, shape, shift.nb[1:3], b.n_embd * size)
        normed = norm.layer(b, x, il, "attn_norm", kind="layer")
        cur = mix(normed, rwkv.before(normed, seen), il)
        x = ops.add(cur, x)
        after = norm.layer(b, x, il, "attn_norm_2", kind="layer")
        previous = rwkv.before(after, seen_after)
        rwkv.store_shift(b, il, ops.concat(rwkv.last(normed), rwkv.last(after), 1))
        x, after, previous = (ops.reshape(t, b.n_embd, n) for t in (x, after, previous))
        if il == b.n_layer - 1:
            x, after, previous = last_rows(b, x, after, previous)
        x = ops.add(rwkv.channel_mix(b, after, previous, il, gated=version == 6), x)
        if rescale and (il + 1) % rescale == 0:
            x = ops.scale(x)
    finish(b, x, how)


def _on_qwen2(b: Builder, *, version: int) -> None:
    """Time mixing in attention's place, Qwen2's feed-forward network after it."""
    how = Decoder()
    mix, steps, n = _time_mix(b, version), recurrent.sequence_tokens(b), b.n_tokens
    x = start(b, how)
    for il in range(b.n_layer):
        x = ops.reshape(x, b.n_embd, steps, b.n_seqs)
        shift = rwkv.load_shift(b, il)
        normed = norm.layer(b, x, il, "attn_norm")
        cur = mix(normed, rwkv.before(normed, shift), il)
        rwkv.store_shift(b, il, rwkv.last(normed))
        x = ops.reshape(ops.add(cur, x), b.n_embd, n)
        if il == b.n_layer - 1:
            (x,) = last_rows(b, x)
        x = ops.add(ffn(b, norm.layer(b, x, il, "ffn_norm"), il), x)
    finish(b, x, how)


ROWS: dict[str, Build] = {
    "rwkv6": partial(_rwkv, version=6),
    "rwkv7": partial(_rwkv, version=7),
    "rwkv6qwen2": partial(_on_qwen2, version=6),
    "arwkv7": partial(_on_qwen2, version=7),
}
