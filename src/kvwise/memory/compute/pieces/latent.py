"""Latent attention (MLA): Q, K and V out of compressed queries and one compressed key per token.

Absorbed: the heads look into the compressed keys themselves (one key head, a cache of keys);
unfolded: every head gets keys and values of its own (ordinary KV cache).
Source: src/models/deepseek2.cpp, minicpm3.cpp, b10605.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import norm
from kvwise.memory.compute.pieces.rope import rope

Triple = tuple[Tensor, Tensor, Tensor]

Key = tuple[Tensor, Tensor]
"""The normed compressed key [rank, tokens], and its end that carries the position."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Elements of one head: whole key, its rotated end, value; of the compressed key; heads."""

    head: int
    turned: int
    value: int
    rank: int
    heads: int

    @property
    def plain(self) -> int:
        """Elements of a head that carry no position."""
        return self.head - self.turned


def sizes(b: Builder, il: int) -> Sizes:
    """The sizes of a layer of a model with one kind of layer."""
    model = b.model
    return Sizes(
        model.n_embd_head_k_mla,
        model.n_rot(),
        model.n_embd_head_v_mla,
        model.n_lora_kv,
        model.n_head[il],
    )


def query_rows(b: Builder, x: Tensor, il: int) -> Tensor:
    """Compressed queries, normed."""
    return norm.layer(b, ops.mul_mat(b.need(il, "attn_q_a.weight"), x), il, "attn_q_a_norm")


def queries(b: Builder, x: Tensor, il: int) -> Tensor:
    """Whole rows of queries: through the compressed ones, where the file has them."""
    if b.has(il, "attn_q.weight"):
        return ops.mul_mat(b.need(il, "attn_q.weight"), x)
    return ops.mul_mat(b.need(il, "attn_q_b.weight"), query_rows(b, x, il))


def compressed(
    b: Builder, x: Tensor, il: int, size: Sizes, *, turn: bool = True, scaled: bool = False
) -> Key:
    """The compressed key of a layer.

    `turn`: its end is rotated; `scaled`: with the layer's factors. It is normed before if the
    file has `attn_k_norm`.
    """
    both = ops.mul_mat(b.need(il, "attn_kv_a_mqa.weight"), x)
    kind, n, row = both.type, b.n_tokens, both.nb[1]
    key = ops.view_2d(both, size.rank, n, row)
    end = ops.view_3d(both, (size.turned, 1, n), (row, row), kind.row_bytes(size.rank))
    if b.has(il, "attn_k_norm.weight"):
        end = norm.layer(b, end, il, "attn_k_norm")
    if turn:
        end = rope(b, end, il, scaled=scaled)
    return norm.layer(b, key, il, "attn_kv_a_norm"), end


def absorbed(b: Builder, q: Tensor, key: Key, il: int, size: Sizes, *, turn: bool = True) -> Triple:
    """Queries in the space of the compressed keys; Q, K, V for a cache of keys."""
    kind, n = q.type, b.n_tokens
    row = kind.row_bytes(size.head)
    steps = (row, row * size.heads)
    plain = ops.view_3d(q, (size.plain, size.heads, n), steps)
    q_end = ops.view_3d(q, (size.turned, size.heads, n), steps, kind.row_bytes(size.plain))
    if turn:
        q_end = rope(b, q_end, il)
    plain = ops.mul_mat(b.need(il, "attn_k_b.weight"), ops.permute(plain, 0, 2, 1, 3))
    whole = ops.concat(ops.permute(plain, 0, 2, 1, 3), q_end, 0)
    value = ops.reshape(key[0], size.rank, 1, n)
    return whole, ops.concat(value, key[1], 0), value


def unfolded(
    b: Builder, q: Tensor, key: Key, il: int, size: Sizes, *, scaled: bool = False
) -> Triple:
    """Keys and values of every head; `q` [head, heads, tokens] is rotated at its end."""
    both = ops.mul_mat(b.need(il, "attn_kv_b.weight"), key[0])
    kind, n, heads = both.type, b.n_tokens, size.heads
    row = kind.row_bytes(size.plain + size.value)
    steps = (row, row * heads)
    plain = ops.view_3d(both, (size.plain, heads, n), steps)
    value = ops.view_3d(both, (size.value, heads, n), steps, kind.row_bytes(size.plain))
    k = ops.concat(plain, ops.repeat(key[1], size.turned, heads, n), 0)
    return rope(b, q, il, scaled=scaled), k, ops.cont(value)
