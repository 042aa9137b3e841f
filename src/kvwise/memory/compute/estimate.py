"""An upper estimate of the compute buffers for models whose graph is not known.

Adds up what stands side by side at the widest place: inputs, a few copies of the residual
stream, and either the results of all weights of a layer's widest part (attention, feed-forward,
state) or the logits. Real graphs reuse more than this, so the figure errs upwards.
Source: the rules of docs on the compute buffer (memory-rules, sections "Compute buffers"), b10605.
"""

from __future__ import annotations

import re
from collections import defaultdict

from kvwise.gguf.header import Tensor as Weight
from kvwise.gguf.model import Model
from kvwise.memory.compute.builder import Batch
from kvwise.memory.compute.devices.cuda import ROW_PADDING
from kvwise.memory.compute.reserve import Job
from kvwise.memory.placement import HOST

F32_SIZE = 4
STREAMS = 3
"""Copies of the residual stream that are alive at once, at most, in most graphs."""

_LAYER = re.compile(r"^(?:blk|enc\.blk|dec\.blk|convnext|posnet)\.(\d+)\.(.+)$")
_ATTENTION = re.compile(r"attn|indexer|cross")
_STATE = re.compile(r"ssm|time_mix|shortconv|channel_mix|linear|conv")


def estimate(job: Job, batch: Batch) -> list[int]:
    """Bytes per backend, the processor last; at or above the truth in all known cases."""
    model, placement = job.model, job.placement
    n_gpu = placement.n_gpu
    tokens = batch.n_tokens
    stream = model.n_embd * tokens * F32_SIZE
    inputs = _inputs(job, batch)
    widths = _layer_widths(job, batch)
    found = [0] * (n_gpu + 1)
    for layer, width in widths.items():
        device = placement.layers[layer] if layer < len(placement.layers) else placement.output
        home = n_gpu if device == HOST else device
        found[home] = max(found[home], inputs + STREAMS * stream + width)
    home = n_gpu if placement.output == HOST else placement.output
    rows = batch.n_outputs if model.causal_attn else tokens
    logits = (_n_vocab(model) + 2 * model.n_embd) * rows * F32_SIZE
    found[home] = max(found[home], inputs + stream + logits)
    looked_up = model.n_embd_inp + model.n_embd + model.n_embd_per_layer * model.n_layer
    found[n_gpu] = max(found[n_gpu], inputs) + looked_up * tokens * F32_SIZE
    for number in range(n_gpu):
        found[number] *= placement.sched_copies if found[number] < inputs * 2 else 1
        found[number] += _staged(job, number) + inputs * (placement.sched_copies - 1)
    return found


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


def _layer_widths(job: Job, batch: Batch) -> dict[int, int]:
    """Bytes of the widest part of each layer."""
    model = job.model
    parts: dict[tuple[int, str], int] = defaultdict(int)
    for name in job.weights.where:
        match = _LAYER.match(name)
        row = model.header.by_name.get(name)
        if match is None or row is None or len(row.shape) < 2:
            continue
        part = "ffn"
        if _STATE.search(match[2]):
            part = "state"
        elif _ATTENTION.search(match[2]):
            part = "attention"
        parts[int(match[1]), part] += _result(row, model) * batch.n_tokens * F32_SIZE
    found: dict[int, int] = defaultdict(int)
    for (layer, part), width in parts.items():
        extra = _scores(job, batch, layer) if part == "attention" else width // 3
        found[layer] = max(found[layer], width + extra)
    return found


def _result(row: Weight, model: Model) -> int:
    """Elements per token that a weight makes."""
    if len(row.shape) > 2 and row.shape[2] == model.n_expert:
        return row.shape[1] * max(model.n_expert_used, 1)
    return row.shape[1] * (row.shape[2] if len(row.shape) > 2 else 1)


def _scores(job: Job, batch: Batch, layer: int) -> int:
    """Attention scores without flash attention, and copies of K and V that CUDA makes with it."""
    model, context = job.model, job.context
    cells = [c.cells * c.streams for c in job.caches if c.kind == "kv" and layer in c.layers]
    most = max(cells, default=batch.n_tokens)
    if context.flash_attn:
        return 0 if context.type_k == "f16" else 2 * most * 2 * model.n_embd_k_gqa(layer)
    heads = model.n_head[layer] if layer < len(model.n_head) else 1
    return most * batch.n_tokens * heads * F32_SIZE


def _n_vocab(model: Model) -> int:
    for name in ("output.weight", "token_embd.weight"):
        row = model.header.by_name.get(name)
        if row is not None and len(row.shape) > 1:
            return row.shape[1]
    return model.n_vocab


def _staged(job: Job, number: int) -> int:
    """The largest host weights that a GPU brings over for a large batch."""
    if number or not job.context.op_offload or not job.backends[number].asynchronous:
        return 0
    sizes = [
        row.nbytes + row.type.row_bytes(ROW_PADDING) * (row.type.block > 1)
        for name, device in job.weights.where.items()
        if device == HOST
        and _LAYER.match(name)
        and (row := job.model.header.by_name.get(name)) is not None
    ]
    return sum(sorted(sizes)[-2:])
