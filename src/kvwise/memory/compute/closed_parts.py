"""What one layer of a model makes, part by part: attention, feed-forward, states.

The parts of a closed form (closed.py), read off the shapes of a layer's weights: which of them
stand side by side, where each may be made, and what grows with the caches they look at.
Source: the rules of docs on the compute buffer (memory-rules, sections "Compute buffers"), b10605.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from kvwise.gguf.types import F16, F32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import kind_named
from kvwise.memory.compute.devices.cuda import OFFLOAD_BATCH
from kvwise.memory.compute.nearest import result_width
from kvwise.memory.compute.pieces import norm
from kvwise.memory.compute.reserve import Job
from kvwise.memory.context import CELLS
from kvwise.memory.ledger import Cache
from kvwise.memory.placement import HOST

F32_SIZE = 4
F16_SIZE = 2
INDEXED = 4
"""Copies of an indexer's scores that are alive at once."""

BIASED = 5
"""The same of scores with a bias by position."""

TWICE = 2
"""Copies of a layer's K and V for attention elsewhere: the next layer's come before these go."""

CHUNK = 64
"""Tokens that a sequence's states are brought forward by at once: fewer are filled up."""

PLAIN = frozenset({"f32", "f16", "bf16"})
_COMMON = frozenset({64, 80, 96, 112, 128, 256})
"""Head sizes that flash attention of every kind of GPU knows."""

_LAYER = re.compile(r"^(?:blk|enc\.blk|dec\.blk|convnext|posnet)\.(\d+)\.(.+)$")
_ATTENTION = re.compile(r"attn|indexer|cross")
_STATE = re.compile(r"ssm|time_mix|shortconv|channel_mix|linear|conv")

Seen = tuple[tuple[int, int, int], ...]
Widths = dict[tuple[int, str, int], int]


@dataclass(frozen=True, slots=True)
class Part:
    """What one part of a layer makes on a backend.

    Bytes per token, bytes whatever the batch, bytes per pair of tokens, and of each cache that it
    looks at (its number, bytes per cell, bytes per cell of a sequence and token).
    """

    home: int
    per_token: int
    fixed: int = 0
    square: int = 0
    seen: Seen = ()


def widths_of(job: Job) -> tuple[Widths, set[int]]:
    """Elements per token that a layer's part makes where its weights are; layers with a norm
    between attention and what follows."""
    found: Widths = defaultdict(int)
    normed: set[int] = set()
    for name, device in job.weights.where.items():
        match = _LAYER.match(name)
        row = job.model.header.by_name.get(name)
        if match is None or row is None:
            continue
        layer = int(match[1])
        if match[2].removesuffix(".weight") in norm.SECOND:
            normed.add(layer)
        if len(row.shape) > 1:
            home = job.placement.n_gpu if device == HOST else device
            known = layer < len(job.model.swa)  # a file may have weights of layers that it has not
            part = _part_of(match[2]) if known else "ffn"
            found[layer, part, home] += result_width(row, job.model)
    return found, normed


def parts_of(job: Job, widths: Widths, normed: Collection[int]) -> Iterator[Part]:
    """Each part (attention, feed-forward, state) of each layer, wherever it may be made.

    Attention and state of one layer stand side by side, and where nothing is normed between them
    and the feed-forward part, all three.
    """
    model = job.model
    beside: dict[tuple[int, str, int], list[Part]] = defaultdict(list)
    for (layer, part, home), width in widths.items():
        made = Part(home, with_half(width))
        if part == "attention":
            made = _attention(job, layer, home, width * F32_SIZE)
        elif part == "state":
            states = 4 * (model.n_embd_r + model.n_embd_s) * F32_SIZE
            chunk = CHUNK * with_half(width)
            made = replace(made, fixed=(states + chunk) * job.context.n_seq_max)
        alone = part == "ffn" and layer in normed
        for each in _placed(job, layer, part, made):
            beside[layer, part if alone else "", each.home].append(each)
    yield from (_joined(parts) for parts in beside.values())


def with_half(width: int) -> int:
    """Bytes per token of what weights make, and half as much of what comes of it."""
    return width * F32_SIZE + width * F32_SIZE // 2


def _part_of(name: str) -> str:
    """Which part of a layer a weight belongs to."""
    if _STATE.search(name):
        return "state"
    return "attention" if _ATTENTION.search(name) else "ffn"


def _joined(parts: Sequence[Part]) -> Part:
    """Parts that stand on one backend at the same time."""
    seen = tuple(look for part in parts for look in part.seen)
    return Part(
        parts[0].home,
        sum(part.per_token for part in parts),
        sum(part.fixed for part in parts),
        sum(part.square for part in parts),
        seen,
    )


def _placed(job: Job, layer: int, part: str, made: Part) -> Iterator[Part]:
    """The part where its weights are, and wherever else it may be made."""
    n_gpu, home = job.placement.n_gpu, made.home
    yield made
    if not n_gpu:
        return
    if home == n_gpu:  # taken over, or what has no weights; the next copies come before these go
        twice = tuple((cache, 2 * size, each) for cache, size, each in made.seen)
        yield replace(made, home=0, seen=twice)
    elif HOST in job.placement.layers:
        yield replace(made, home=n_gpu, seen=())
    if home == n_gpu:
        return
    if part == "attention" and attends_on_host(job, layer, home):
        brought = tuple(
            (cache, size + TWICE * stored(job.caches[cache], layer), each)
            for cache, size, each in made.seen
        )
        yield replace(made, home=n_gpu, seen=brought)
    elif part == "state" and not job.context.offload_kqv:
        yield replace(made, home=n_gpu)


def attends_on_host(job: Job, layer: int, home: int) -> bool:
    """The cache is there, or the GPU cannot do flash attention on such heads or types."""
    if not job.context.offload_kqv:
        return True
    model = job.model
    sizes = {model.n_embd_head_k(layer), model.n_embd_head_v(layer)}
    common = len(sizes) == 1 and sizes <= _COMMON
    known = common and all(
        _runs(job, cache, layer, home) for cache in job.caches if layer in cache.layers
    )
    return job.context.flash_attn and job.backends[home].asynchronous and not known


def _runs(job: Job, cache: Cache, layer: int, home: int) -> bool:
    """Whether a GPU does flash attention on a cache's types."""
    if cache.kind != "kv":
        return True
    model = job.model
    k, v = kind_named(cache.type_k), kind_named(cache.type_v or cache.type_k)
    head, heads_kv = model.n_embd_head_k(layer), max(1, model.n_head_kv[layer])
    q = ops.new("NONE", F32, (head, OFFLOAD_BATCH, max(1, model.n_head[layer]), 1))
    keys, values = (ops.new("NONE", t, (head, CELLS, heads_kv, 1)) for t in (k, v))
    mask = ops.new("NONE", F16, (CELLS, OFFLOAD_BATCH, 1, 1))
    return job.backends[home].supports(ops.flash_attn(q, keys, values, mask))


def stored(cache: Cache, layer: int) -> int:
    """Bytes per cell of a layer's K and V as the cache has them."""
    place = cache.layers.index(layer)
    sides = ((cache.k_row[place], cache.type_k), (cache.v_row[place], cache.type_v))
    return sum(kind_named(kind).row_bytes(row) for row, kind in sides if row)


def _attention(job: Job, layer: int, home: int, per_token: int) -> Part:
    """With attention scores where there is no flash attention, and copies of K and V."""
    model, context = job.model, job.context
    kept = [(n, c) for n, c in enumerate(job.caches) if c.kind == "kv" and layer in c.layers]
    heads = model.n_head[layer] if layer < len(model.n_head) else 1
    flash = context.flash_attn and not model.has_encoder
    per_pair = 0 if flash else heads * F32_SIZE
    if model.indexer_n_head:  # it looks at every cell before attention does
        per_pair += INDEXED * F32_SIZE
    fixed = 0
    if model.has_encoder:
        # T5 adds a bias to the scores and attends to the encoder's whole output
        per_pair = BIASED * heads * F32_SIZE
        per_token += per_pair * model.n_ctx_train
        crossed = model.n_embd_k_gqa(layer) + model.n_embd_v_gqa(layer)
        fixed = model.n_ctx_train * crossed * (F32_SIZE + F16_SIZE)
    head_k, head_v = model.n_embd_head_k(layer), model.n_embd_head_v(layer)
    # the result; beside scores queries, values and it stand in another order as well
    per_token += heads * (head_v if flash else 2 * (head_k + head_v)) * F32_SIZE
    if model.is_mla:  # queries in the space of the compressed keys
        per_token += heads * (model.n_lora_kv + model.n_rot()) * F32_SIZE
    seen = []
    for number, cache in kept:
        if cache.type_k not in PLAIN:  # queries and results are turned as well
            per_token += heads * (head_k + head_v) * F32_SIZE
        copied = 0 if not flash and context.offload_kqv else _copies(job, cache, layer)
        values = 0 if flash else model.n_embd_v_gqa(layer) * F32_SIZE
        seen.append((number, copied + values, per_pair))
    square = 0 if kept or model.has_encoder else per_pair  # within the batch
    return Part(home, per_token, fixed, square, tuple(seen))


def _copies(job: Job, cache: Cache, layer: int) -> int:
    """Bytes per cell of a layer's K and V once more: in f16 for flash attention, as they are from
    the host."""
    context = job.context
    place = cache.layers.index(layer)
    sides = [(cache.k_row[place], cache.type_k), (cache.v_row[place], cache.type_v)]
    fetched = not context.offload_kqv or job.placement.layers[layer] == HOST
    if job.model.is_mla:  # values are a view of K, copied by itself
        sides[1] = sides[0]
    copied = 0
    for row, kind in sides:
        if not row:
            continue
        if kind != "f16" and context.flash_attn:
            copied += 2 * row
        if fetched:  # from a cache on the host the next layer's come before these go
            copied += kind_named(kind).row_bytes(row) * (1 if context.offload_kqv else 2)
    return copied


def takes_over(job: Job) -> bool:
    """The first GPU takes work of host weights when the batch is large."""
    return job.context.op_offload and bool(job.placement.n_gpu) and job.backends[0].asynchronous
