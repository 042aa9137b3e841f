"""What stands beside the parts of layers in a closed form (closed.py): inputs, copies, logits.

Source: the rules of docs on the compute buffer (memory-rules, sections "Compute buffers"), b10605.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvwise import builds
from kvwise.gguf.model import Model
from kvwise.memory.compute.alike import QUANTIZED
from kvwise.memory.compute.builder import kind_named
from kvwise.memory.compute.closed_parts import (
    F32_SIZE,
    Widths,
    attends_on_host,
    stored,
    takes_over,
    with_half,
)
from kvwise.memory.compute.devices.cuda import ROW_PADDING
from kvwise.memory.compute.pieces.embed import ONE_KIND
from kvwise.memory.compute.reserve import Job
from kvwise.memory.placement import HOST

MIXED = 3
"""Vectors of a batch of tokens and vectors: those given, the same once more, and its tokens'."""

MIN_ROTATION = 64
_LOOKED_UP = frozenset({"token_embd.weight", "per_layer_token_embd.weight"})


def words(job: Job) -> int:
    """Elements per token of the vector input; newer builds have those of mixed batches too."""
    width = job.model.n_embd_inp
    mixed = job.context.since(builds.MIXED_BATCHES) and job.model.architecture not in ONE_KIND
    return width + MIXED * width * mixed


def tables(model: Model) -> int:
    """Tables that tokens and their places are looked up in."""
    beside = ("position_embd.weight", "token_types.weight")
    return 1 + sum(name in model.header.by_name for name in beside)


def rotations(job: Job) -> int:
    """Matrices that turn what quantized caches hold: for keys no wider than their widest head."""
    elements = 0
    for cache in job.caches:
        if cache.kind != "kv" or not QUANTIZED & {cache.type_k, cache.type_v}:
            continue
        heads = [job.model.n_embd_head_k(il) for il in cache.layers]
        elements += max((MIN_ROTATION, *heads)) ** 2 + MIN_ROTATION**2
    return elements * F32_SIZE


def inputs_of_layers(model: Model) -> int:
    """Elements per token that are looked up for each layer by itself."""
    table = model.header.by_name.get("per_layer_token_embd.weight")
    whole = table.shape[0] if table is not None else 0
    return max(whole, model.n_embd_per_layer * model.n_layer)


def handed(model: Model, widths: Widths) -> int:
    """The residual stream and what is half done at the border: a state's input, an indexer's."""
    state = max((width for (_, part, _), width in widths.items() if part == "state"), default=0)
    lanes = _lanes(model)
    streams = 2 + 2 * bool(model.indexer_n_head) + (2 * lanes if lanes > 1 else 0)
    return streams * model.n_embd * F32_SIZE + with_half(state)


def fetches(job: Job) -> bool:
    """Whether GPUs read what lies on the host, in every layer or some."""
    away = not job.context.offload_kqv or HOST in job.placement.layers
    return away and bool(job.placement.n_gpu)


def output_home(job: Job) -> int:
    """The backend that makes the logits: where their matrix is, which may be the embeddings'."""
    where, placement = job.weights.where, job.placement
    device = where.get("output.weight", where.get("token_embd.weight", placement.output))
    return placement.n_gpu if device == HOST else device


def buckets(model: Model, n_gpu: int) -> int:
    """Bytes per pair that the layers of a decoder with a bias by position copy to a GPU.

    Each looks the distances up for itself. Where only the first layer has a table, all scores cross
    over to its GPU, with the values that they weigh.
    """
    if not model.has_encoder:
        return 0
    crossing = 2 * max(model.n_head) if n_gpu > 1 else 0
    return model.dec_n_layer * F32_SIZE * (1 + crossing)


def _lanes(model: Model) -> int:
    """Residual streams side by side (AltUp, hyper-connections)."""
    joined = model.header.by_name.get("altup_proj.weight")
    return max(1, model.dsv4_hc_mult, 0 if joined is None else joined.shape[-1] + 1)


def chosen(job: Job) -> tuple[int, ...]:
    """A column for the choice of each layer with an indexer, or, in newer builds, of experts: all
    of them stand from the start."""
    model, n_gpu = job.model, job.placement.n_gpu
    found = [0] * (n_gpu + 1)
    if model.n_expert and job.context.since(builds.CUDA_KEEPS_FUSED):
        for home in job.placement.layers[: model.n_layer]:
            found[n_gpu if home == HOST else home] += (
                model.n_expert + model.n_expert_used
            ) * F32_SIZE
    for home in job.placement.layers[: model.n_layer] if model.indexer_n_head else ():
        for backend in {n_gpu, 0} if home == HOST else {home}:
            found[backend] += model.indexer_top_k * F32_SIZE
    return tuple(found)


def lent(job: Job) -> Iterator[tuple[int, int, int]]:
    """Caches that layers without one of their own read from another backend: each looks at its
    own view, and each view is copied."""
    model, placement = job.model, job.placement
    for layer in range(model.n_layer):
        if model.has_kv(layer):
            continue
        here = placement.n_gpu if placement.layers[layer] == HOST else placement.layers[layer]
        for number, cache in enumerate(job.caches):
            if cache.kind != "kv" or not cache.layers:
                continue
            owner = max(cache.layers)
            if model.is_swa(owner) != model.is_swa(layer):
                continue
            there = placement.layers[owner] if job.context.offload_kqv else HOST
            if (placement.n_gpu if there == HOST else there) != here:
                place = cache.layers.index(owner)
                rows = ((cache.k_row[place], cache.type_k), (cache.v_row[place], cache.type_v))
                yield here, number, sum(kind_named(k).row_bytes(row) for row, k in rows if row)


def _crossing_layers(job: Job) -> tuple[int, ...]:
    """Layers whose attention the host does in a pipeline, which keeps all copies to the end."""
    layers = job.placement.layers[: job.model.n_layer]
    if job.placement.sched_copies < 2:
        return ()
    return tuple(il for il, home in enumerate(layers) if attends_on_host(job, il, home))


def kept(job: Job) -> Iterator[tuple[int, int, int]]:
    """The caches of these layers on the host."""
    for il in _crossing_layers(job):
        for number, cache in enumerate(job.caches):
            if cache.kind == "kv" and il in cache.layers:
                yield job.placement.n_gpu, number, stored(cache, il)


def crossing(job: Job) -> int:
    """Bytes per token of queries, keys, values and results that go over and back."""
    model = job.model
    return F32_SIZE * sum(
        model.n_embd_k_gqa(il)
        + model.n_embd_v_gqa(il)
        + model.n_head[il] * (model.n_embd_head_k(il) + model.n_embd_head_v(il))
        for il in _crossing_layers(job)
    )


def logits(model: Model) -> int:
    """Elements per row; an output smaller than the vocabulary is filled up, which takes both."""
    table = model.header.by_name
    widths = [row.shape[1] for name in ("output.weight", "token_embd.weight")
              if (row := table.get(name)) is not None and len(row.shape) > 1]  # fmt: skip
    if not widths:
        return model.n_vocab
    return 2 * widths[-1] if widths[0] < widths[-1] else widths[0]


def staged(job: Job) -> int:
    """The largest host weights that the first GPU brings over for a large batch."""
    if not takes_over(job):
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
