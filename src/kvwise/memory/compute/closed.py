"""A closed form for models that no known graph is near to.

Adds up what stands side by side at the widest place: inputs, a few copies of the residual
stream, and either the results of all weights of a layer's widest part (attention, feed-forward,
state) or the logits. Real graphs reuse more than this, so the figure errs upwards.
Source: the rules of docs on the compute buffer (memory-rules, sections "Compute buffers"), b10605.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvwise.memory.compute.builder import Batch
from kvwise.memory.compute.closed_inputs import (
    buckets,
    chosen,
    crossing,
    fetches,
    handed,
    inputs_of_layers,
    kept,
    lent,
    logits,
    output_home,
    rotations,
    staged,
    tables,
    words,
)
from kvwise.memory.compute.closed_parts import F32_SIZE, Part, parts_of, takes_over, widths_of
from kvwise.memory.compute.devices.cuda import OFFLOAD_BATCH
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

DECAYED = 4
"""Tables of decay between all tokens, and what is made with them."""

_NEVER = 1 << 62


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
    output = output_home(job)
    over = output == n_gpu and takes_over(job)
    of_layers = inputs_of_layers(model)
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
        streams=STREAMS + FETCHED * fetches(job),
        logits=(logits(model) + 2 * model.n_embd) * F32_SIZE,
        last=n_gpu if placement.output == HOST else placement.output,
        output=output,
        taken_over=OFFLOAD_BATCH if over else _NEVER,
        picks=model.causal_attn,
        input_per_token=per_token,
        input_fixed=rotations(job) + encoded * model.n_embd_inp * F32_SIZE,
        masks=tuple((number, mask) for number, _ in kv),
        rows=tuple((n, 8) for n, c in enumerate(job.caches) if c.kind != "kv"),
        square=(0 if job.caches else 2 * mask) + decays,
        looked_up=(words(job) + model.n_embd * tables(model) + of_layers) * F32_SIZE,
        everywhere=of_layers * F32_SIZE,
        bias=(2 * max(model.n_head) + 1) * F32_SIZE if model.has_encoder else 0,
        buckets=buckets(model, n_gpu),
        staged=staged(job) if n_gpu else 0,
        lent=(*lent(job), *kept(job)),
        chosen=chosen(job),
        handed=handed(model, widths) + crossing(job),
        copies=placement.sched_copies,
    )
