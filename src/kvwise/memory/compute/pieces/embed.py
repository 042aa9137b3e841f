"""Token embeddings and the input that stands beside them.

Source: src/llama-graph.cpp build_inp_embd, b10605.
"""

from __future__ import annotations

from kvwise import builds
from kvwise.gguf.types import BY_NAME, F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.loader import EMBEDDINGS, OUTPUT, looks_up_output

I64 = BY_NAME["i64"]

ONE_KIND = frozenset(
    {"cogvlm", "deepseek4", "graniteswitch", "eagle3", "dflash", "gemma4-assistant"}
)
"""Architectures whose batches hold either tokens or vectors."""


def tokens(b: Builder, *, scaled: bool = False) -> Tensor:
    """Rows of the token embedding, added to the graph together with the unused vector input.

    `scaled`: the model scales its tokens' embeddings in code. Newer builds also make the way of a
    batch that holds both, which no text takes and no draft context has.
    """
    model = b.model
    width, n_embd = model.n_embd_inp, model.n_embd
    apart = model.architecture in ONE_KIND or b.context.mtp
    mixed = b.since(builds.MIXED_BATCHES) and not apart
    table = b.need_top(OUTPUT if looks_up_output(model) else EMBEDDINGS)
    cur = ops.get_rows(table, b.input("tokens", I32, b.n_tokens))
    if b.since(builds.EMBEDDINGS_FIRST):
        b.expand(cur)
    between = ops.get_rows(table, b.input("mixed_tokens", I32, b.n_tokens)) if mixed else None
    if between is not None:
        b.expand(between)
    if width != n_embd:
        cur = ops.pad(cur, width - n_embd)
    b.expand(cur, b.input("embd", F32, width, b.n_tokens))
    if between is not None:
        _mixed(b, between, width)
    if width != n_embd:
        cur = ops.view_2d(cur, n_embd, b.n_tokens, cur.nb[1])
    first = cur
    b.once("first embeddings", lambda: first)
    cur = _scaled(b, cur, scaled=scaled)
    b.expand(cur)
    return ops.scale(cur) if scaled and not b.since(builds.SCALES_BY_ROW) else cur


def _mixed(b: Builder, cur: Tensor, width: int) -> None:
    """Rows of tokens, put between vectors."""
    if width != b.model.n_embd:
        cur = ops.pad(cur, width - b.model.n_embd)
    slots = b.input("mixed_slots", I64, b.n_tokens)
    vectors = ops.like("DUP", b.input("mixed_embd", F32, width, b.n_tokens))
    b.expand(ops.set_rows(vectors, cur, slots))


def _scaled(b: Builder, cur: Tensor, *, scaled: bool) -> Tensor:
    """By the model's own factor, and by the one that its code has for tokens only."""
    model = b.model
    by_row = b.since(builds.SCALES_BY_ROW)
    tokens_only = by_row and model.n_deepstack_layers > 0
    if model.f_embedding_scale and not tokens_only:
        cur = ops.scale(_whole(cur))
    if by_row and (scaled or (model.f_embedding_scale and tokens_only)):
        cur = ops.mul(_whole(cur), b.input("scale_rows", F32, 1, b.n_tokens))
    return cur


def _whole(cur: Tensor) -> Tensor:
    """Without the gaps of wide input vectors."""
    return cur if cur.base is None else ops.cont(cur)


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
