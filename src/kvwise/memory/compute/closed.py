"""A closed form for models that no known graph is near to.

Adds up what stands side by side at the widest place: inputs, a few copies of the residual
stream, and either the results of all weights of a layer's widest part (attention, feed-forward,
state) or the logits. Real graphs reuse more than this, so the figure errs upwards.
Source: the rules of docs on the compute buffer (memory-rules, sections "Compute buffers"), b10605.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from kvwise.gguf.model import Model
from kvwise.memory.compute.builder import Batch, kind_named
from kvwise.memory.compute.devices.cuda import OFFLOAD_BATCH, ROW_PADDING
from kvwise.memory.compute.nearest import result_width
from kvwise.memory.compute.reserve import Job
from kvwise.memory.ledger import Cache
from kvwise.memory.placement import HOST

F32_SIZE = 4
INDEXED = 4
"""Copies of an indexer's scores that are alive at once."""

BIASED = 5
"""The same of scores with a bias by position."""

STREAMS = 3
"""Copies of the residual stream that are alive at once, at most, in most graphs."""

_LAYER = re.compile(r"^(?:blk|enc\.blk|dec\.blk|convnext|posnet)\.(\d+)\.(.+)$")
_LOOKED_UP = frozenset({"token_embd.weight", "per_layer_token_embd.weight"})
_ATTENTION = re.compile(r"attn|indexer|cross")
_STATE = re.compile(r"ssm|time_mix|shortconv|channel_mix|linear|conv")


def closed(job: Job, batch: Batch) -> list[int]:
    """Bytes per backend, the processor last."""
    model, placement = job.model, job.placement
    n_gpu = placement.n_gpu
    stream = model.n_embd * batch.n_tokens * F32_SIZE
    inputs = _inputs(job, batch)
    found = [0] * (n_gpu + 1)
    for home, width in _widths(job, batch):
        found[home] = max(found[home], STREAMS * stream + width)
    rows = batch.n_outputs if model.causal_attn else batch.n_tokens
    logits = (_n_vocab(model) + 2 * model.n_embd) * rows * F32_SIZE
    home = n_gpu if placement.output == HOST else placement.output
    if home == n_gpu and _takes_over(job) and rows >= OFFLOAD_BATCH:
        home = 0
    # logits fit into no gap of the layers before: they come behind what is left of the last one
    found[home] = max(found[home], stream + logits + found[home] * 3 // 4)
    looked_up = model.n_embd_inp + model.n_embd + model.n_embd_per_layer * model.n_layer
    found[n_gpu] += looked_up * batch.n_tokens * F32_SIZE
    if model.n_embd_per_layer:  # an input of every layer, made on the host, read everywhere
        beside = model.n_embd_per_layer * model.n_layer * batch.n_tokens * F32_SIZE
        found = [size + beside if size else 0 for size in found]
        inputs += beside
    if model.has_encoder:  # biases are looked up on the host
        heads, cells = max(model.n_head), max((c.cells for c in job.caches), default=0)
        found[n_gpu] += 2 * heads * max(cells, batch.n_tokens) * batch.n_tokens * F32_SIZE
    if n_gpu and found[0]:
        found[0] += _staged(job)
    if placement.sched_copies > 1:  # every input, and what one GPU hands to the next
        inputs = (inputs + 2 * stream) * placement.sched_copies
    return [size + inputs if size else 0 for size in found]


def _takes_over(job: Job) -> bool:
    """The first GPU takes work of host weights when the batch is large."""
    return job.context.op_offload and bool(job.placement.n_gpu) and job.backends[0].asynchronous


def _inputs(job: Job, batch: Batch) -> int:
    """Masks, rows and positions."""
    mask = 2 if job.context.flash_attn else 4
    total = batch.n_tokens * (4 * job.model.n_pos_per_embd + 64)
    for cache in job.caches:
        if cache.kind != "kv":
            total += cache.cells * 8
            continue
        total += cache.cells * batch.n_tokens * mask + batch.n_tokens * 16
        if not job.context.flash_attn and any(cache.v_row):
            total += batch.n_tokens * 8 * max(cache.v_row)
    if not job.caches:
        total += 2 * batch.n_tokens * batch.n_tokens * mask
    return total


def _widths(job: Job, batch: Batch) -> Iterator[tuple[int, int]]:
    """Backend and bytes of each part (attention, feed-forward, state) of each layer."""
    model, n_gpu = job.model, job.placement.n_gpu
    parts: dict[tuple[int, str, int], int] = defaultdict(int)
    for name, device in job.weights.where.items():
        match = _LAYER.match(name)
        row = model.header.by_name.get(name)
        if match is None or row is None or len(row.shape) < 2:
            continue
        part = "ffn"
        if _STATE.search(match[2]):
            part = "state"
        elif _ATTENTION.search(match[2]):
            part = "attention"
        home = n_gpu if device == HOST else device
        parts[int(match[1]), part, home] += result_width(row, model) * batch.n_tokens * F32_SIZE
    for (layer, part, home), width in parts.items():
        extra = _scores(job, batch, layer) if part == "attention" else width // 2
        if part == "state":
            extra += 4 * (model.n_embd_r + model.n_embd_s) * batch.n_seqs * F32_SIZE
        yield home, width + extra
        if home == n_gpu and _takes_over(job):
            yield 0, width + extra
        if part == "attention" and not job.context.offload_kqv:
            yield n_gpu, width + extra


def _scores(job: Job, batch: Batch, layer: int) -> int:
    """Attention scores without flash attention, and copies of K and V."""
    model, context = job.model, job.context
    kept = [c for c in job.caches if c.kind == "kv" and layer in c.layers]
    most = max((c.cells * c.streams for c in kept), default=batch.n_tokens)
    heads = model.n_head[layer] if layer < len(model.n_head) else 1
    copies = sum(_copies(job, cache, layer) for cache in kept)
    # an indexer looks at every cell before attention does
    sparse = INDEXED * most * batch.n_tokens * F32_SIZE if model.indexer_n_head else 0
    if model.has_encoder:
        # T5 adds a bias to the scores and attends to the encoder's whole output
        return BIASED * max(most, model.n_ctx_train) * batch.n_tokens * heads * F32_SIZE + copies
    if context.flash_attn:
        return copies + sparse + heads * model.n_embd_head_v(layer) * batch.n_tokens * F32_SIZE
    values = most * model.n_embd_v_gqa(layer) * F32_SIZE
    streams = 1 if context.kv_unified else batch.n_seqs
    scores = most * (batch.n_tokens // streams) * heads * F32_SIZE
    return scores + values + sparse + (0 if context.offload_kqv else copies)


def _copies(job: Job, cache: Cache, layer: int) -> int:
    """A layer's K and V once more: in f16 for flash attention, as they are from the host."""
    context = job.context
    place = cache.layers.index(layer)
    rows = (cache.k_row[place], cache.v_row[place])
    cells = cache.cells * cache.streams
    copied = 0
    for row, kind in zip(rows, (cache.type_k, cache.type_v), strict=True):
        if not row:
            continue
        if kind != "f16" and context.flash_attn:
            copied += 2 * cells * row
        if not context.offload_kqv or job.placement.layers[layer] == HOST:
            copied += kind_named(kind).row_bytes(row) * cells
    return copied


def _n_vocab(model: Model) -> int:
    for name in ("output.weight", "token_embd.weight"):
        row = model.header.by_name.get(name)
        if row is not None and len(row.shape) > 1:
            return row.shape[1]
    return model.n_vocab


def _staged(job: Job) -> int:
    """The largest host weights that the first GPU brings over for a large batch."""
    if not _takes_over(job):
        return 0
    table = job.model.header.by_name
    sizes = sorted(
        row.nbytes + row.type.row_bytes(ROW_PADDING) * (row.type.block > 1)
        for name, device in job.weights.where.items()
        if device == HOST and (row := table.get(name)) is not None and name not in _LOOKED_UP
    )
    output = table.get("token_embd.weight")
    if job.placement.output == HOST and output is not None:
        sizes.append(output.nbytes)
    return sum(sorted(sizes)[-2:])
