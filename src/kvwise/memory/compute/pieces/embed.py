"""Token embeddings and the input that stands beside them.

Source: src/llama-graph.cpp build_inp_embd, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.graph import Tensor


def tokens(b: Builder) -> Tensor:
    """Rows of the token embedding, added to the graph together with the unused vector input."""
    model = b.model
    width, n_embd = model.n_embd_inp, model.n_embd
    ids = b.input("tokens", I32, b.n_tokens)
    vectors = b.input("embd", F32, width, b.n_tokens)
    cur = ops.get_rows(b.need_top("token_embd.weight"), ids)
    if width != n_embd:
        cur = ops.pad(cur, width - n_embd)
    b.expand(cur, vectors)
    if width != n_embd:
        cur = ops.view_2d(cur, n_embd, b.n_tokens, cur.nb[1])
    first = cur
    b.once("first embeddings", lambda: first)
    if model.f_embedding_scale:
        if width != n_embd:
            cur = ops.cont(cur)
        cur = ops.scale(cur)
    b.expand(cur)
    return cur


def beside(b: Builder, place: int) -> Tensor:
    """Part `place` of wide input vectors (deepstack); 0 are the token's own embeddings."""

    def missing() -> Tensor:
        raise Unbuildable("no embeddings are there yet")

    x = b.once("first embeddings", missing)
    if x.nb[1] < (place + 1) * b.n_embd * x.nb[0]:
        raise Unbuildable("the input vectors are too narrow for deepstack")
    return ops.view_2d(x, b.n_embd, b.n_tokens, x.nb[1], place * b.n_embd * x.nb[0])


def positions(b: Builder, x: Tensor) -> Tensor:
    """Learned positions added to `x`."""
    return ops.add(x, ops.get_rows(b.need_top("position_embd.weight"), b.positions()))
