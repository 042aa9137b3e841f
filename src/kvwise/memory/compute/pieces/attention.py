"""Attention over a cache, or over the batch itself: with and without flash attention.

Source: src/llama-graph.cpp build_attn (one per kind of memory) and build_attn_mha, b10605.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise import builds
from kvwise.gguf.types import F16, F32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces import cache as kv
from kvwise.memory.compute.pieces.linear import linear


@dataclass(frozen=True, slots=True)
class Extras:
    """What few models add to the scores. `v_mla` decompresses latent values."""

    bias: Tensor | None = None
    sinks: Tensor | None = None
    v_mla: Tensor | None = None
    grok_cap: bool = False


PLAIN = Extras()


def attend(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    extras: Extras = PLAIN,
) -> Tensor:
    """Scores, softmax and values; the result has one row per token."""
    streams = k.ne[3]
    transposed = v.nb[1] > v.nb[2]
    step = q.nb[3] // streams
    if b.since(builds.QUERIES_BY_STREAM):
        step = q.nb[2] * (q.ne[2] // streams)
    q = ops.view(q, (q.ne[0], q.ne[1], q.ne[2] // streams, streams), (q.nb[1], q.nb[2], step))
    q = ops.permute(q, 0, 2, 1, 3)
    k = ops.permute(k, 0, 2, 1, 3)
    v = ops.permute(v, 0, 2, 1, 3)
    if b.flash_attn and extras.bias is None:
        cur = _flash(b, q, k, v, mask, extras=extras, transposed=transposed)
    else:
        cur = _scores(b, q, k, v, mask, extras=extras, transposed=transposed)
    b.expand(cur)
    return cur


def _flash(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    extras: Extras,
    transposed: bool,
) -> Tensor:
    if transposed:
        v = ops.transpose(v)
    if k.type is F32:
        k = ops.cast(k, F16)
    if v.type is F32:
        v = ops.cast(v, F16)
    cur = ops.flash_attn(q, k, v, mask, sinks=extras.sinks, max_bias=b.model.f_max_alibi_bias)
    if extras.v_mla is not None:
        cur = ops.mul_mat(extras.v_mla, ops.permute(cur, 0, 2, 1, 3))
        cur = ops.cont(ops.permute(cur, 0, 2, 1, 3))
    return ops.reshape(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])


def _scores(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    extras: Extras,
    transposed: bool,
) -> Tensor:
    scores = ops.mul_mat(k, q)
    if extras.grok_cap:
        scores = ops.scale(ops.unary("TANH", ops.scale(scores)))
    if b.model.attn_soft_cap:
        scores = ops.scale(ops.unary("TANH", ops.scale(scores)))
    if extras.bias is not None:
        scores = ops.add(scores, extras.bias)
    scores = ops.soft_max(scores, mask, extras.sinks)
    if not transposed:
        v = ops.cont(ops.transpose(v))
    cur = ops.mul_mat(v, scores)
    if extras.v_mla is not None:
        cur = ops.mul_mat(extras.v_mla, cur)
    cur = ops.permute(cur, 0, 2, 1, 3)
    cur = ops.cont(cur, cur.ne[0] * cur.ne[1], cur.ne[2] * cur.ne[3])
    if not b.context.offload_kqv:
        b.pin(cur, b.placement.n_gpu)
    return cur


def cached(
    b: Builder,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    il: int,
    *,
    out: str | None = "attn_output",
    owner: int | None = None,
    extras: Extras = PLAIN,
    mask: Tensor | None = None,
) -> Tensor:
    """Write K and V, attend over the whole cache, project with `out`.

    `k` and `v` None: the layer reads the cache of layer `owner` and writes nothing. `mask` stands
    instead of the cache's own.
    Windowed models add K before V, the others V before K.
    """
    inputs = kv.kv_input(b, il if owner is None else owner)
    if inputs.k_rot is not None:
        q = ops.mul_mat_hadamard(q, inputs.k_rot)
        k = None if k is None else ops.mul_mat_hadamard(k, inputs.k_rot)
    if inputs.v_rot is not None and v is not None:
        v = ops.mul_mat_hadamard(v, inputs.v_rot)
    windowed = b.model.swa_type != "none"
    b.expand(q, *(t for t in ((k, v) if windowed else (v, k)) if t is not None))
    if k is not None:
        kv.write_k(b, k, inputs.k_rows, il)
    if v is not None:
        kv.write_v(b, v, inputs.v_rows, il)
    cur = attend(
        b,
        q,
        kv.read_k(b, il, owner=owner),
        kv.read_v(b, il, owner=owner),
        inputs.mask if mask is None else mask,
        extras=extras,
    )
    if inputs.v_rot is not None:
        cur = ops.mul_mat_hadamard(cur, inputs.v_rot)
    return cur if out is None else linear(b, cur, il, out)


def uncached(
    b: Builder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    il: int,
    *,
    out: str | None = "attn_output",
    extras: Extras = PLAIN,
) -> Tensor:
    """Attention within the batch (encoders, diffusion models), project with `out`."""
    b.expand(q, k, v)
    key = "window" if b.model.swa_type != "none" and b.model.is_swa(il) else "full"
    kind = F16 if b.flash_attn else F32
    mask = b.input(("mask", key), kind, b.n_tokens, b.n_tokens)
    cur = attend(b, q, k, v, mask, extras=extras)
    return cur if out is None else linear(b, cur, il, out)
