"""DeepSeek V4: hyper connections, a window of raw keys, and compressed keys of the whole context.

Source: src/models/deepseek4.cpp, src/llama-graph.cpp build_inp_dsv4, b10605.
"""

from __future__ import annotations

from functools import reduce

from kvwise import builds
from kvwise.gguf.types import F16, F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families.rows import Build, weighted
from kvwise.memory.compute.graph import Tensor, contiguous_strides
from kvwise.memory.compute.pieces import compressor, embed, hyper, indexer, latent, norm, output
from kvwise.memory.compute.pieces import keys as cache
from kvwise.memory.compute.pieces.attention import Extras, attend
from kvwise.memory.compute.pieces.compressor import Compressor
from kvwise.memory.compute.pieces.ffn import ffn
from kvwise.memory.compute.pieces.linear import linear
from kvwise.memory.compute.pieces.moe import moe
from kvwise.memory.compute.pieces.rope import rope

CSA = Compressor("csa", "attn_compressor", 4, overlap=True)
HCA = Compressor("hca", "attn_compressor", 128, overlap=False)
INDEXER = Compressor(compressor.INDEXER_ROLE, "indexer_compressor", 4, overlap=True)
RAW = "raw.swa"

EXPERTS = weighted(norm="given", gating="given")


def _deepseek4(b: Builder) -> None:
    x = embed.tokens(b)
    b.expand(cache.keys_of(b, RAW).mask)
    streams = hyper.start(b, x)
    for il in range(b.n_layer):
        _tell(b, streams, il)
        mixed = hyper.before(b, streams, il, "attn")
        cur = attended(b, norm.layer(b, mixed.read, il, "attn_norm"), il)
        streams = hyper.after(b, cur, mixed, il)
        mixed = hyper.before(b, streams, il, "ffn")
        b.expand(mixed.streams, mixed.post, mixed.comb)
        cur = feed_forward(b, norm.layer(b, mixed.read, il, "ffn_norm"), il)
        streams = hyper.after(b, cur, mixed, il)
        b.pin_norm(streams, il)
    _tell(b, streams, b.n_layer)
    if b.since(builds.HIDDEN_ALWAYS_OUT):
        b.outputs.append(streams)
    n_embd, count, n, _ = streams.ne
    rows = ops.get_rows(ops.reshape(streams, n_embd * count, n), b.out_rows())
    cur = hyper.head(b, ops.reshape(rows, n_embd, count, rows.ne[1]))
    output.hand_out(b, output.logits(b, output.final_norm(b, cur), bias=False))


def _tell(b: Builder, streams: Tensor, il: int) -> None:
    """The mean of all streams, if a draft reads what layer `il` reads."""
    if il not in b.context.paired.embeddings_layer_inp:
        return
    n_embd, count, n, _ = streams.ne
    _, step, row, _ = streams.nb
    parts = (ops.view_2d(streams, n_embd, n, row, place * step) for place in range(count))
    mean = ops.scale(reduce(ops.add, parts))
    b.layer_input(il, mean)
    b.expand(mean)


def feed_forward(b: Builder, x: Tensor, il: int) -> Tensor:
    """The first layers choose their experts by the token's number."""
    how = EXPERTS(b, il)
    if il < b.model.dsv4_hash_layer_count:
        ids = b.input("tokens", I32, b.n_tokens)
        chosen = ops.get_rows(b.need(il, "ffn_gate_tid2eid.weight"), ids)
        how = weighted(norm="given", gating="given", chosen=chosen)(b, il)
    return ops.add(moe(b, x, il, how), ffn(b, x, il, suffix="_shexp", bias=False))


def attended(b: Builder, x: Tensor, il: int, *, role: str = RAW) -> Tensor:
    """Attention with its projection; `role` is the cache of the window."""
    model, n = b.model, b.n_tokens
    head, heads = model.n_embd_head_k(), model.n_head[il]
    rows = latent.query_rows(b, x, il)
    q = ops.reshape(linear(b, rows, il, "attn_q_b", bias=False), head, heads, n)
    q = rope(b, ops.rms_norm(q), il)
    key = norm.layer(b, linear(b, x, il, "attn_kv", bias=False), il, "attn_kv_a_norm")
    key = rope(b, ops.reshape(key, head, 1, n), il)
    ratio = model.dsv4_compress_ratios[il]
    chosen: Tensor | None = None
    extra: Compressor | None = None
    if ratio == CSA.ratio:
        extra = CSA
        compressor.compress(b, x, il, CSA)
        compressor.compress(b, x, il, INDEXER)
        chosen = _chosen(b, x, rows, il)
    elif ratio == HCA.ratio:
        extra = HCA
        compressor.compress(b, x, il, HCA)
    cur = _over_all(b, q, key, il, extra, chosen, role)
    cur = ops.rope_back(ops.reshape(cur, head, heads, n), b.positions())
    return _project(b, cur, il)


def _chosen(b: Builder, x: Tensor, rows: Tensor, il: int) -> Tensor:
    """The compressed keys that each token attends to."""
    model = b.model
    size, heads = model.indexer_head_size, model.indexer_n_head
    q = ops.reshape(linear(b, rows, il, "indexer.attn_q_b", bias=False), size, heads, b.n_tokens)
    q = ops.mul_mat_hadamard(rope(b, q, il), cache.rotation(b, b.cache_named(INDEXER.role), size))
    weights = ops.scale(linear(b, x, il, "indexer.proj", bias=False))
    keys = compressor.keys(b, INDEXER)
    weights = indexer.per_stream(weights, keys.cache.streams)
    return indexer.best(b, q, _whole(cache.read(b, keys, il)), weights, keys.mask, il)


def _whole(k: Tensor) -> Tensor:
    """llama.cpp cuts a view to the cells in use, which are all of them here."""
    return ops.view(k, k.ne, k.nb[1:])


def _over_all(  # noqa: PLR0917
    b: Builder,
    q: Tensor,
    key: Tensor,
    il: int,
    extra: Compressor | None,
    chosen: Tensor | None,
    role: str,
) -> Tensor:
    """Attention over the window and over compressed keys; values are the keys."""
    turn = compressor.rotation(b, role)
    if turn is not None:
        q, key = ops.mul_mat_hadamard(q, turn), ops.mul_mat_hadamard(key, turn)
    b.expand(q, key)
    raw = cache.keys_of(b, role)
    cache.write(b, raw, key, il)
    k, mask = cache.read(b, raw, il), raw.mask
    if extra is not None:
        more = compressor.keys(b, extra)
        k = ops.concat(k, _whole(cache.read(b, more, il)), 2)
        open_ = more.mask
        if chosen is not None:
            open_ = indexer.only(more.mask, chosen, F16 if b.flash_attn else F32)
        mask = ops.concat(mask, open_, 0)
    cur = attend(b, q, k, k, mask, extras=Extras(sinks=b.w(il, "attn_sinks.weight")))
    return cur if turn is None else ops.mul_mat_hadamard(cur, turn)


def _project(b: Builder, x: Tensor, il: int) -> Tensor:
    """Out of the heads in groups, through one narrow matrix per group."""
    groups, rank, n = b.model.dsv4_o_group_count, b.model.dsv4_o_lora_rank, b.n_tokens
    first = b.need(il, "attn_output_a.weight")
    width = x.ne[0] * x.ne[1] // groups
    if first.elements != width * rank * groups:
        raise ops.Unbuildable(f"{first} does not fit {groups} groups")
    first.ne = (width, rank, groups, 1)  # files may hold it as a matrix
    first.nb = contiguous_strides(first.type, first.ne)
    cur = ops.permute(ops.reshape(x, width, groups, n), 0, 2, 1, 3)
    cur = ops.permute(ops.mul_mat(first, cur), 0, 2, 1, 3)
    return linear(b, ops.cont(cur, rank * groups, n), il, "attn_output_b", bias=False)


ROWS: dict[str, Build] = {"deepseek4": _deepseek4}
