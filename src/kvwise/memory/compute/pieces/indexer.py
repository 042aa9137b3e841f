"""The lightning indexer: each token chooses the cached tokens it will attend to.

Source: src/models/deepseek32.cpp, glm-dsa.cpp, dots3note.cpp; src/llama-graph.cpp build_attn
(llm_graph_input_attn_k_dsa), b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, GGMLType
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor, contiguous_strides
from kvwise.memory.compute.pieces import keys as cache
from kvwise.memory.compute.pieces import norm
from kvwise.memory.compute.pieces.attention import Extras, attend
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.rope import rope

FUSED = "LIGHTNING_INDEXER"


def top_k(b: Builder, x: Tensor, rows: Tensor, il: int, *, role: str) -> Tensor:
    """The best cells for each token: i32 [top k, tokens, 1, streams].

    `x` is the layer's normed input, `rows` its compressed queries, `role` the indexer's cache.
    """
    model, n = b.model, b.n_tokens
    size, heads = model.indexer_head_size, model.indexer_n_head
    keys = cache.keys_of(b, role, half=FUSED not in b.unfused)
    rotation = cache.rotation(b, keys.cache, size)
    q = ops.mul_mat(b.need(il, "indexer.attn_q_b.weight"), rows)
    q = ops.mul_mat(rotation, rope(b, ops.reshape(q, size, heads, n), il))
    k = ops.mul_mat(b.need(il, "indexer.attn_k.weight"), x)
    k = ops.reshape(norm.layer(b, k, il, "indexer.k_norm", kind="layer"), size, 1, n)
    cache.write(b, keys, ops.mul_mat(rotation, rope(b, k, il)), il)
    weights = ops.mul_mat(b.need(il, "indexer.proj.weight"), x)
    weights = ops.scale(per_stream(weights, keys.cache.streams))
    return best(b, q, cache.read(b, keys, il), weights, keys.mask, il)


def per_stream(weights: Tensor, streams: int) -> Tensor:
    """Weights of the indexer's heads [heads, tokens], token after token of each stream."""
    shape = (weights.ne[0], weights.ne[1] // streams, weights.ne[2], streams)
    steps = (weights.nb[1], weights.nb[2] // streams, weights.nb[3] // streams)
    return ops.view(weights, shape, steps)


def best(  # noqa: PLR0917  (what the fused operation takes)
    b: Builder, q: Tensor, k: Tensor, weights: Tensor, mask: Tensor, il: int
) -> Tensor:
    """The best cells for each token, from the indexer's `q` [head, heads, tokens]."""
    streams = k.ne[3]
    steps = (q.nb[1], q.nb[2], q.nb[3] // streams)
    q = ops.view(q, (q.ne[0], q.ne[1], q.ne[2] // streams, streams), steps)
    made = scores(b, q, k, weights, mask, il)
    return ops.cont(ops.top_k(made, min(made.ne[0], b.model.indexer_top_k)))


def scores(  # noqa: PLR0917
    b: Builder, q: Tensor, k: Tensor, weights: Tensor, mask: Tensor, il: int
) -> Tensor:
    """How well each cell fits each token: f32 [cells, tokens, 1, streams]."""
    if FUSED not in b.unfused:
        made = ops.new(FUSED, F32, (k.ne[2], q.ne[2], 1, q.ne[3]), (q, k, weights, mask))
        b.fused_nodes.append((made, il))
        return made
    cur = ops.mul_mat(ops.permute(k, 0, 2, 1, 3), ops.permute(q, 0, 2, 1, 3))
    cur = ops.unary("RELU", ops.cont(ops.permute(cur, 2, 1, 0, 3)))
    cur = ops.sum_rows(ops.mul(cur, weights))
    return ops.add(ops.cont(ops.permute(cur, 2, 1, 0, 3)), mask)


def only(mask: Tensor, chosen: Tensor, kind: GGMLType = F32) -> Tensor:
    """The mask with all but the chosen cells closed; `kind`: type of the zeros that open."""
    cells, n, _, streams = mask.ne
    nb = mask.nb
    closed = ops.view(ops.fill(mask), (1, cells, n, streams), nb[:3])
    steps = (chosen.nb[1], chosen.nb[2], chosen.ne[3] * chosen.nb[3])
    which = ops.view(chosen, (chosen.ne[0], chosen.ne[1], chosen.ne[3], 1), steps)
    shape = (1, *which.ne[:3])
    zeros = ops.fill(Tensor("NONE", kind, shape, contiguous_strides(kind, shape)))
    opened = ops.set_rows(closed, zeros, which)
    nb = opened.nb
    opened = ops.view(opened, (cells, n, 1, streams), (nb[2], nb[3], nb[3]))
    return ops.add(opened, mask)


def cached(  # noqa: PLR0917  (Q, K, V and the choice)
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    chosen: Tensor,
    il: int,
    *,
    role: str,
    out: str | None = "attn_output",
    extras: Extras,
) -> Tensor:
    """Latent attention over the chosen cells of a cache of keys."""
    keys = cache.keys_of(b, role)
    b.expand(q, v, k)
    cache.write(b, keys, k, il)
    mask = only(keys.mask, chosen)
    stored = cache.read(b, keys, il)
    cur = attend(b, q, stored, cache.values(stored, v.ne[0]), mask, extras=extras)
    return cur if out is None else linear(b, cur, il, out)
