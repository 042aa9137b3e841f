"""A closed form for models that no known graph is near to.

Adds up what stands side by side at the widest place: inputs, a few copies of the residual
stream, and either the results of all weights of a layer's widest part (attention, feed-forward,
state) or the logits. Real graphs reuse more than this, so the figure errs upwards.
Source: the rules of docs on the compute buffer (memory-rules, sections "Compute buffers"), b10605.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvwise import builds
from kvwise.gguf.model import Model
from kvwise.memory.compute.alike import QUANTIZED
from kvwise.memory.compute.builder import Batch, kind_named
from kvwise.memory.compute.closed_parts import (
    F32_SIZE,
    Part,
    Widths,
    attends_on_host,
    parts_of,
    stored,
    takes_over,
    widths_of,
    with_half,
)
from kvwise.memory.compute.devices.cuda import OFFLOAD_BATCH, ROW_PADDING
from kvwise.memory.compute.pieces.embed import ONE_KIND
from kvwise.memory.compute.reserve import Job
from kvwise.memory.ledger import Cache
from kvwise.memory.legality import DECAYING
from kvwise.memory.placement import HOST

JOINED = 3
"""Copies of the inputs of all layers: looked up, projected, and both together in another order."""

STREAMS = 3
"""Copies of the residual stream that are alive at once, at most, in most graphs."""

FETCHED = 4
"""As many more where layers or their caches lie on the host: copies come and go between them."""

MIXED = 3
"""Vectors of a batch of tokens and vectors: those given, the same once more, and its tokens'."""

DECAYED = 4
"""Tables of decay between all tokens, and what is made with them."""

MIN_ROTATION = 64
_NEVER = 1 << 62

_LOOKED_UP = frozenset({"token_embd.weight", "per_layer_token_embd.weight"})


@dataclass(frozen=True, slots=True)
class Closed:
    """The form for one layout: a function of the batch and of the caches' cells.

    `at` costs microseconds: parts that are alike are one, and what weights say is summed up before.
    """

    n_gpu: int
    parts: tuple[Part, ...]
    stream: int  # bytes per token of the residual stream
    streams: int  # how often it stands beside a part
    logits: int  # bytes per row
    last: int  # the backend of the output layer, whose norm may be all that it makes
    output: int  # the backend that makes the logits
    taken_over: int  # rows from which on the first GPU makes them
    picks: bool  # rows are those that are asked for
    input_per_token: int
    input_fixed: int
    masks: tuple[tuple[int, int], ...]  # cache, bytes per cell of a sequence and token
    rows: tuple[tuple[int, int], ...]  # cache, bytes per cell
    square: int  # bytes per pair of tokens, without caches
    looked_up: int  # bytes per token on the host
    everywhere: int  # bytes per token that stand on every backend
    bias: int  # bytes per cell or token of the batch and token, on the host
    buckets: int  # the same on each GPU, for each copy: layers look it up each for itself
    staged: int
    lent: tuple[tuple[int, int, int], ...]  # backend, cache of another one, bytes per cell
    chosen: tuple[int, ...]  # bytes per token and backend that indexers put their choice into
    handed: int  # bytes per token that one GPU hands on to the next, once per copy
    copies: int

    @property
    def idle_host(self) -> bool:
        """Whether the host makes nothing of any layer, and no logits: it only holds inputs."""
        return self.output < self.n_gpu and all(part.home < self.n_gpu for part in self.parts)

    def at(self, batch: Batch, cells: Sequence[tuple[int, int]]) -> list[int]:
        """Bytes per backend, the processor last; `cells` of each cache, of one stream and all."""
        tokens, n_gpu = batch.n_tokens, self.n_gpu
        stream = self.stream * tokens
        found = [0] * (n_gpu + 1)
        for part in self.parts:
            size = (part.per_token + part.square * tokens) * tokens + part.fixed
            for cache, per_cell, per_pair in part.seen:
                one, whole = cells[cache]
                size += per_cell * whole + per_pair * one * tokens
            found[part.home] = max(found[part.home], size)
        found[self.last] = max(found[self.last], stream)
        found = [size + self.streams * stream if size else 0 for size in found]
        rows = batch.n_outputs if self.picks else tokens
        home = 0 if rows >= self.taken_over else self.output
        # logits fit into no gap of the layers before: they come behind what is left of the last one
        found[home] = max(found[home], stream + self.logits * rows + found[home] * 3 // 4)
        found[n_gpu] += self.looked_up * tokens
        inputs = self.input_per_token * tokens + self.input_fixed + self.square * tokens * tokens
        inputs += sum(cells[cache][0] * tokens * size for cache, size in self.masks)
        inputs += sum(cells[cache][1] * size for cache, size in self.rows)
        beside = self.everywhere * tokens
        inputs += beside
        joined = JOINED * beside * (2 if self.copies > 1 else 1)
        found = [size + joined if size else 0 for size in found]
        if self.bias:
            pairs = max((tokens, *(one for one, _ in cells))) * tokens
            looked = self.buckets * pairs * self.copies
            found = [size + looked if size else 0 for size in found[:n_gpu]] + found[n_gpu:]
            found[n_gpu] += self.bias * pairs
        if n_gpu and found[0]:
            found[0] += self.staged
        found = [size + tokens * more if size else 0
                 for size, more in zip(found, self.chosen, strict=True)]  # fmt: skip
        for home, cache, per_cell in self.lent:
            found[home] += per_cell * cells[cache][1] * self.copies
        if self.copies > 1:
            inputs = (inputs + self.handed * tokens) * self.copies
        return [size + inputs if size else 0 for size in found]


def closed(job: Job, batch: Batch) -> list[int]:
    """Bytes per backend, the processor last."""
    return form(job).at(batch, cells_of(job.caches))


def cells_of(caches: Iterable[Cache]) -> list[tuple[int, int]]:
    """Cells of each cache: of one stream, and of all."""
    return [(cache.cells, cache.cells * cache.streams) for cache in caches]


def form(job: Job) -> Closed:
    """What does not change with lengths, micro-batch and outputs."""
    model, placement = job.model, job.placement
    n_gpu = placement.n_gpu
    output = _output_home(job)
    over = output == n_gpu and takes_over(job)
    of_layers = _inputs_of_layers(model)
    mask = 2 if job.context.flash_attn else 4
    kv = [(number, c) for number, c in enumerate(job.caches) if c.kind == "kv"]
    per_token = 4 * model.n_pos_per_embd + 64 + 16 * len(kv)
    if not job.context.flash_attn:
        per_token += sum(8 * max(cache.v_row, default=0) for _, cache in kv)
    encoded = model.n_ctx_train if model.has_encoder else 0
    per_token += encoded * mask
    # tables of decay between all tokens, on the host and wherever they are used: with the scores
    decays = DECAYED * max(model.n_head) * F32_SIZE if model.architecture in DECAYING else 0
    widths, normed = widths_of(job)
    return Closed(
        n_gpu=n_gpu,
        parts=tuple(dict.fromkeys(parts_of(job, widths, normed))),
        stream=model.n_embd * F32_SIZE,
        streams=STREAMS + FETCHED * _fetches(job),
        logits=(_logits(model) + 2 * model.n_embd) * F32_SIZE,
        last=n_gpu if placement.output == HOST else placement.output,
        output=output,
        taken_over=OFFLOAD_BATCH if over else _NEVER,
        picks=model.causal_attn,
        input_per_token=per_token,
        input_fixed=_rotations(job) + encoded * model.n_embd_inp * F32_SIZE,
        masks=tuple((number, mask) for number, _ in kv),
        rows=tuple((n, 8) for n, c in enumerate(job.caches) if c.kind != "kv"),
        square=(0 if job.caches else 2 * mask) + decays,
        looked_up=(_words(job) + model.n_embd * _tables(model) + of_layers) * F32_SIZE,
        everywhere=of_layers * F32_SIZE,
        bias=(2 * max(model.n_head) + 1) * F32_SIZE if model.has_encoder else 0,
        buckets=_buckets(model, n_gpu),
        staged=_staged(job) if n_gpu else 0,
        lent=(*_lent(job), *_kept(job)),
        chosen=_chosen(job),
        handed=_handed(model, widths) + _crossing(job),
        copies=placement.sched_copies,
    )


def _words(job: Job) -> int:
    """Elements per token of the vector input; newer builds have those of mixed batches too."""
    width = job.model.n_embd_inp
    mixed = job.context.since(builds.MIXED_BATCHES) and job.model.architecture not in ONE_KIND
    return width + MIXED * width * mixed


def _tables(model: Model) -> int:
    """Tables that tokens and their places are looked up in."""
    beside = ("position_embd.weight", "token_types.weight")
    return 1 + sum(name in model.header.by_name for name in beside)


def _rotations(job: Job) -> int:
    """Matrices that turn what quantized caches hold: for keys no wider than their widest head."""
    elements = 0
    for cache in job.caches:
        if cache.kind != "kv" or not QUANTIZED & {cache.type_k, cache.type_v}:
            continue
        heads = [job.model.n_embd_head_k(il) for il in cache.layers]
        elements += max((MIN_ROTATION, *heads)) ** 2 + MIN_ROTATION**2
    return elements * F32_SIZE


def _inputs_of_layers(model: Model) -> int:
    """Elements per token that are looked up for each layer by itself."""
    table = model.header.by_name.get("per_layer_token_embd.weight")
    whole = table.shape[0] if table is not None else 0
    return max(whole, model.n_embd_per_layer * model.n_layer)


def _handed(model: Model, widths: Widths) -> int:
    """The residual stream and what is half done at the border: a state's input, an indexer's."""
    state = max((width for (_, part, _), width in widths.items() if part == "state"), default=0)
    lanes = _lanes(model)
    streams = 2 + 2 * bool(model.indexer_n_head) + (2 * lanes if lanes > 1 else 0)
    return streams * model.n_embd * F32_SIZE + with_half(state)


def _fetches(job: Job) -> bool:
    """Whether GPUs read what lies on the host, in every layer or some."""
    away = not job.context.offload_kqv or HOST in job.placement.layers
    return away and bool(job.placement.n_gpu)


def _output_home(job: Job) -> int:
    """The backend that makes the logits: where their matrix is, which may be the embeddings'."""
    where, placement = job.weights.where, job.placement
    device = where.get("output.weight", where.get("token_embd.weight", placement.output))
    return placement.n_gpu if device == HOST else device


def _buckets(model: Model, n_gpu: int) -> int:
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


def _chosen(job: Job) -> tuple[int, ...]:
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


def _lent(job: Job) -> Iterator[tuple[int, int, int]]:
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


def _kept(job: Job) -> Iterator[tuple[int, int, int]]:
    """The caches of these layers on the host."""
    for il in _crossing_layers(job):
        for number, cache in enumerate(job.caches):
            if cache.kind == "kv" and il in cache.layers:
                yield job.placement.n_gpu, number, stored(cache, il)


def _crossing(job: Job) -> int:
    """Bytes per token of queries, keys, values and results that go over and back."""
    model = job.model
    return F32_SIZE * sum(
        model.n_embd_k_gqa(il)
        + model.n_embd_v_gqa(il)
        + model.n_head[il] * (model.n_embd_head_k(il) + model.n_embd_head_v(il))
        for il in _crossing_layers(job)
    )


def _logits(model: Model) -> int:
    """Elements per row; an output smaller than the vocabulary is filled up, which takes both."""
    table = model.header.by_name
    widths = [row.shape[1] for name in ("output.weight", "token_embd.weight")
              if (row := table.get(name)) is not None and len(row.shape) > 1]  # fmt: skip
    if not widths:
        return model.n_vocab
    return 2 * widths[-1] if widths[0] < widths[-1] else widths[0]


def _staged(job: Job) -> int:
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
