"""Room in an estimate for what a near graph leaves out: results of weights that it does not use,
scales and sums, which have no weights, and copies of a cache that may find no gap."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence

from kvwise.gguf.model import Model
from kvwise.memory.compute.builder import Batch, kind_named
from kvwise.memory.compute.nearest import LAYER, width_of
from kvwise.memory.compute.reserve import Job
from kvwise.memory.placement import HOST
from kvwise.units import MIB

F32_SIZE = 4
MARGIN = 15
SMALL = 2 * MIB
"""Thousandths and bytes by which a near graph's figure is raised, at most."""

STREAMS = 2
"""Copies of the residual stream that a near graph may lack."""

ALIVE = 4
"""Results of unknown parts that may stand beside the known ones at once."""

_SINGLE = re.compile(r"(post\w*|out\w*|[qk]|embd)_norm\.weight$")
"""Norms of results, of heads and of embeddings, which make one. Others may begin a part."""


def for_unused(job: Job, unused: Collection[str], batch: Batch) -> list[int]:
    """Bytes per backend, the processor last, of what weights make that a graph does not use.

    What a weight makes is made where it lies, or where its work is taken over. A table of no
    layer is looked up on the host, and what is found handed to all, once for each copy.
    """
    n_gpu, model = job.placement.n_gpu, job.model
    per_token = batch.n_tokens * F32_SIZE
    here: dict[int, list[str]] = defaultdict(list)
    tables = []
    for name in unused:
        device, row = job.weights.where.get(name), model.header.by_name.get(name)
        if device is None or row is None:  # not loaded, or a second copy of the embeddings
            continue
        if LAYER.match(name) is None and len(row.shape) > 1:
            tables.append(name)
            continue
        for backend in {n_gpu, 0} if device == HOST else {device}:
            here[backend].append(name)
    everywhere = _width(model, tables) * job.placement.sched_copies
    return [(everywhere + _width(model, here[backend])) * per_token for backend in range(n_gpu + 1)]


def _width(model: Model, names: Sequence[str]) -> int:
    """Elements per token of what may stand at once."""
    single = [name for name in names if _SINGLE.search(name)]
    others = [name for name in names if not _SINGLE.search(name)]
    return ALIVE * width_of(model, others, norms=True) + width_of(model, single, norms=True)


def for_streams(job: Job, batch: Batch, size: int) -> int:
    """Bytes for more of the residual stream, as far as a figure of `size` bytes stays close."""
    stream = STREAMS * job.model.n_embd * batch.n_tokens * F32_SIZE
    return min(stream, max(size * MARGIN // 1000, SMALL))


def for_latent(job: Job) -> list[int]:
    """Bytes per backend of the smaller side of a layer's cache, where latent attention reads it
    from the host: its copy may find no gap, and the graphs known are too few to show that."""
    n_gpu = job.placement.n_gpu
    if job.context.offload_kqv or not job.model.n_lora_kv:
        return [0] * (n_gpu + 1)
    found = 0
    for cache in job.caches:
        if cache.kind != "kv":
            continue
        for k_row, v_row in zip(cache.k_row, cache.v_row, strict=True):
            sides = ((k_row, cache.type_k), (v_row, cache.type_v))
            sizes = [kind_named(kind).row_bytes(row) for row, kind in sides if row]
            found = max(found, min(sizes, default=0) * cache.cells * cache.streams)
    return [found] * n_gpu + [0]
