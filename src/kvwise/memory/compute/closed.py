"""A closed form for models that no known graph is near to.

Adds up what stands side by side at the widest place: inputs, a few copies of the residual
stream, and either the results of all weights of a layer's widest part (attention, feed-forward,
state) or the logits. Real graphs reuse more than this, so the figure errs upwards.
Source: the rules of docs on the compute buffer (memory-rules, sections "Compute buffers"), b10605.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvwise.gguf.model import Model
from kvwise.memory.compute.builder import Batch, kind_named
from kvwise.memory.compute.devices.cuda import OFFLOAD_BATCH, ROW_PADDING
from kvwise.memory.compute.nearest import result_width
from kvwise.memory.compute.reserve import Job
from kvwise.memory.ledger import Cache
from kvwise.memory.legality import DECAYING
from kvwise.memory.placement import HOST

F32_SIZE = 4
INDEXED = 4
"""Copies of an indexer's scores that are alive at once."""

BIASED = 5
"""The same of scores with a bias by position."""

JOINED = 3
"""Copies of the inputs of all layers: looked up, projected, and both together in another order."""

STREAMS = 3
"""Copies of the residual stream that are alive at once, at most, in most graphs."""

MIN_ROTATION = 64
_PLAIN = frozenset({"f32", "f16", "bf16"})
_COMMON = frozenset({64, 80, 96, 112, 128, 256})
"""Head sizes that flash attention of every kind of GPU knows."""

_NEVER = 1 << 62

_LAYER = re.compile(r"^(?:blk|enc\.blk|dec\.blk|convnext|posnet)\.(\d+)\.(.+)$")
_LOOKED_UP = frozenset({"token_embd.weight", "per_layer_token_embd.weight"})
_ATTENTION = re.compile(r"attn|indexer|cross")
_STATE = re.compile(r"ssm|time_mix|shortconv|channel_mix|linear|conv")


Seen = tuple[tuple[int, int, int], ...]


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


@dataclass(frozen=True, slots=True)
class Closed:
    """The form for one layout: a function of the batch and of the caches' cells.

    `at` costs microseconds: parts that are alike are one, and what weights say is summed up before.
    """

    n_gpu: int
    parts: tuple[Part, ...]
    stream: int  # bytes per token of the residual stream
    logits: int  # bytes per row
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
    staged: int
    copies: int

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
        found = [size + STREAMS * stream if size else 0 for size in found]
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
            most = max((one for one, _ in cells), default=0)
            found[n_gpu] += self.bias * max(most, tokens) * tokens
        if n_gpu and found[0]:
            found[0] += self.staged
        if self.copies > 1:  # every input, and what one GPU hands to the next
            inputs = (inputs + 2 * stream) * self.copies
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
    output = n_gpu if placement.output == HOST else placement.output
    over = output == n_gpu and _takes_over(job)
    of_layers = _inputs_of_layers(model)
    mask = 2 if job.context.flash_attn else 4
    kv = [(number, c) for number, c in enumerate(job.caches) if c.kind == "kv"]
    per_token = 4 * model.n_pos_per_embd + 64 + 16 * len(kv)
    if not job.context.flash_attn:
        per_token += sum(8 * max(cache.v_row, default=0) for _, cache in kv)
    # tables of decay between all tokens, on the host and wherever they are used
    decays = 2 * max(model.n_head) * F32_SIZE if model.architecture in DECAYING else 0
    return Closed(
        n_gpu=n_gpu,
        parts=tuple(dict.fromkeys(_parts(job))),
        stream=model.n_embd * F32_SIZE,
        logits=(_n_vocab(model) + 2 * model.n_embd) * F32_SIZE,
        output=output,
        taken_over=OFFLOAD_BATCH if over else _NEVER,
        picks=model.causal_attn,
        input_per_token=per_token,
        input_fixed=_rotations(job),
        masks=tuple((number, mask) for number, _ in kv),
        rows=tuple((n, 8) for n, c in enumerate(job.caches) if c.kind != "kv"),
        square=(0 if job.caches else 2 * mask) + decays,
        looked_up=(model.n_embd_inp + model.n_embd * _tables(model) + of_layers) * F32_SIZE,
        everywhere=of_layers * F32_SIZE,
        bias=2 * max(model.n_head) * F32_SIZE if model.has_encoder else 0,
        staged=_staged(job) if n_gpu else 0,
        copies=placement.sched_copies,
    )


def _tables(model: Model) -> int:
    """Tables that tokens and their places are looked up in."""
    beside = ("position_embd.weight", "token_types.weight")
    return 1 + sum(name in model.header.by_name for name in beside)


def _rotations(job: Job) -> int:
    """Matrices that turn what quantized caches hold: as wide as a power of two in the head."""
    head = max(job.model.n_embd_head_k(), MIN_ROTATION)
    turned = sum(c.kind == "kv" and c.type_k not in _PLAIN for c in job.caches)
    return turned * (head * head + MIN_ROTATION * MIN_ROTATION) * F32_SIZE


def _inputs_of_layers(model: Model) -> int:
    """Elements per token that are looked up for each layer by itself."""
    table = model.header.by_name.get("per_layer_token_embd.weight")
    whole = table.shape[0] if table is not None else 0
    return max(whole, model.n_embd_per_layer * model.n_layer)


def _takes_over(job: Job) -> bool:
    """The first GPU takes work of host weights when the batch is large."""
    return job.context.op_offload and bool(job.placement.n_gpu) and job.backends[0].asynchronous


def _parts(job: Job) -> Iterator[Part]:
    """Each part (attention, feed-forward, state) of each layer, wherever it may be made."""
    model, n_gpu = job.model, job.placement.n_gpu
    widths: dict[tuple[int, str, int], int] = defaultdict(int)
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
        widths[int(match[1]), part, home] += result_width(row, model)
    for (layer, part, home), width in widths.items():
        made = Part(home, width * F32_SIZE + width * F32_SIZE // 2)
        if part == "attention":
            made = _attention(job, layer, home, width * F32_SIZE)
        elif part == "state":
            states = 4 * (model.n_embd_r + model.n_embd_s) * job.context.n_seq_max * F32_SIZE
            made = replace(made, fixed=states)
        yield from _placed(job, layer, part, made)


def _placed(job: Job, layer: int, part: str, made: Part) -> Iterator[Part]:
    """The part where its weights are, and wherever else it may be made."""
    n_gpu, home = job.placement.n_gpu, made.home
    yield made
    if not n_gpu:
        return
    if home == n_gpu and _takes_over(job):  # the next layer's copies come before these go
        twice = tuple((cache, 2 * size, each) for cache, size, each in made.seen)
        yield replace(made, home=0, seen=twice)
    elif home == n_gpu:  # what has no weights may stand on the GPU beside it
        yield replace(made, home=0, seen=())
    elif HOST in job.placement.layers:
        yield replace(made, home=n_gpu, seen=())
    if part == "attention" and home != n_gpu and _attends_on_host(job, layer, home):
        yield replace(made, home=n_gpu)


def _attends_on_host(job: Job, layer: int, home: int) -> bool:
    """The cache is there, or the GPU cannot do flash attention on such heads."""
    if not job.context.offload_kqv:
        return True
    model = job.model
    sizes = {model.n_embd_head_k(layer), model.n_embd_head_v(layer)}
    common = len(sizes) == 1 and sizes <= _COMMON
    return job.context.flash_attn and job.backends[home].asynchronous and not common


def _attention(job: Job, layer: int, home: int, per_token: int) -> Part:
    """With attention scores where there is no flash attention, and copies of K and V."""
    model, context = job.model, job.context
    kept = [(n, c) for n, c in enumerate(job.caches) if c.kind == "kv" and layer in c.layers]
    heads = model.n_head[layer] if layer < len(model.n_head) else 1
    flash = context.flash_attn and not model.has_encoder
    per_pair = 0 if flash else heads * F32_SIZE
    if model.indexer_n_head:  # it looks at every cell before attention does
        per_pair += INDEXED * F32_SIZE
    if model.has_encoder:
        # T5 adds a bias to the scores and attends to the encoder's whole output
        per_pair = BIASED * heads * F32_SIZE
        per_token += per_pair * model.n_ctx_train
    if flash:
        per_token += heads * model.n_embd_head_v(layer) * F32_SIZE
    if model.is_mla:  # queries in the space of the compressed keys
        per_token += heads * (model.n_lora_kv + model.n_rot()) * F32_SIZE
    seen = []
    for number, cache in kept:
        copied = 0 if not flash and context.offload_kqv else _copies(job, cache, layer)
        values = 0 if flash else model.n_embd_v_gqa(layer) * F32_SIZE
        seen.append((number, copied + values, per_pair))
    square = 0 if kept or model.has_encoder else per_pair  # within the batch
    return Part(home, per_token, square=square, seen=tuple(seen))


def _copies(job: Job, cache: Cache, layer: int) -> int:
    """Bytes per cell of a layer's K and V once more: in f16 for flash attention, as they are from
    the host."""
    context = job.context
    place = cache.layers.index(layer)
    rows = (cache.k_row[place], cache.v_row[place])
    copied = 0
    for row, kind in zip(rows, (cache.type_k, cache.type_v), strict=True):
        if not row:
            continue
        if kind != "f16" and context.flash_attn:
            copied += 2 * row
        if not context.offload_kqv or job.placement.layers[layer] == HOST:
            copied += kind_named(kind).row_bytes(row)
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
