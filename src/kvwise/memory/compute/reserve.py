"""From a model and a launch to the graph that llama.cpp reserves, and its bytes per backend.

Source: src/llama-context.cpp (reserve, graph_reserve, graph_get_cb), b10605.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kvwise import builds
from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.compute.allocate import record
from kvwise.memory.compute.backend import Backend, never
from kvwise.memory.compute.builder import Batch, Builder, Unbuildable
from kvwise.memory.compute.devices import backends_for
from kvwise.memory.compute.families import BUILDERS, DRAFTS, MTP, Build
from kvwise.memory.compute.fused import Probed, unfused
from kvwise.memory.compute.graph import Graph
from kvwise.memory.compute.homes import Homes
from kvwise.memory.compute.pieces.output import pooling
from kvwise.memory.compute.pieces.sampling import sampling
from kvwise.memory.compute.schedule import schedule
from kvwise.memory.compute.tape import Tape
from kvwise.memory.compute.unused import unused
from kvwise.memory.context import Context
from kvwise.memory.ledger import Cache
from kvwise.memory.legality import DECAYING
from kvwise.memory.placement import Placement
from kvwise.memory.weights import Weights, weigh

COPIES = frozenset({"CONT", "CPY", "CONCAT"})
"""Operations whose result is as large as what they read."""


@dataclass(frozen=True, slots=True)
class Job:
    """All that decides the size of the compute buffers."""

    model: Model
    context: Context
    placement: Placement
    caches: tuple[Cache, ...]
    weights: Weights
    backends: tuple[Backend, ...]


def job(  # noqa: PLR0917  (the order of `compute`)
    model: Model,
    context: Context,
    placement: Placement,
    caches: tuple[Cache, ...],
    launch: Launch,
    devices: Sequence[Device],
) -> Job:
    """Gather what was resolved; `devices` are those that `placement.select` chose."""
    weights = weigh(model, launch, placement, devices)
    return Job(model, context, placement, caches, weights, backends_for(devices, context.build))


def batch(model: Model, context: Context) -> Batch:
    """The worst-case prompt batch: whole sequences, as many rows of logits as allowed."""
    n_seqs = context.n_seq_max
    n_tokens = min(context.n_ctx, context.n_ubatch)
    n_outputs = min(n_tokens, context.n_outputs_max) if not model.has_encoder else n_tokens
    whole = -(-n_tokens // n_seqs) * n_seqs
    return Batch(whole, n_seqs, n_outputs)


def build(job: Job, size: Batch | None = None) -> Graph:
    """The graph of a batch (None: the worst-case prompt); raises Unbuildable."""
    model, draft = job.model, job.context.mtp
    family = (DRAFTS if draft else BUILDERS).get(model.architecture)
    if family is None:
        whose = "the MTP layers of " if draft else ""
        raise Unbuildable(f"no graph for {whose}{model.architecture}")
    graph = graph_of(job, family, size or batch(model, job.context))
    mtp = draft and model.architecture in MTP
    left = unused(model, job.weights, graph, mtp=mtp, own=True)
    if left:
        raise Unbuildable(f"the graph does not use {left[0]}")
    return graph


def graph_of(job: Job, family: Build, size: Batch) -> Graph:
    """The graph that `family` makes, with those fused operations that stay on; or Unbuildable."""
    builder = assemble(job, family, size)
    if builder.fused_nodes and len(job.backends) > 1:
        off = unfused(_probed(job, family, builder))
        if off:
            builder = assemble(job, family, size, off)
    return builder.graph


def _probed(job: Job, family: Build, builder: Builder) -> Probed:
    """What decides which fused operations stay on."""
    return Probed(
        job.model,
        without_lengths(job.context),
        job.placement,
        tuple((c.role, c.kind, c.type_k, c.type_v, c.layers) for c in job.caches),
        tuple(job.weights.where.items()),
        job.backends,
        tuple(node.op for node, _ in builder.fused_nodes),
        family,
        partial(assemble, job, family),
    )


def without_lengths(context: Context) -> Context:
    """The context, whatever its cells and its batches."""
    paired = context.paired.without_lengths
    same = replace(context, n_batch=0, n_ubatch=0, n_outputs_max=0, notes=(), paired=paired)
    return replace(same, n_ctx=0, n_ctx_seq=0)


def assemble(job: Job, family: Build, size: Batch, off: Collection[str] = ()) -> Builder:
    """The builder that `family` has put its graph into; raises Unbuildable."""
    builder = Builder(
        model=job.model,
        context=job.context,
        placement=job.placement,
        caches=job.caches,
        batch=size,
        homes=Homes(job.placement, job.weights.where),
        unfused=off,
    )
    family(builder)
    pooling(builder)
    sampling(builder)
    builder.finish()
    return builder


def taped(job: Job, graph: Graph, *, pinned: bool) -> Tape:
    """All that a graph asks of the allocators, the processor's last."""
    made = schedule(
        graph,
        job.backends,
        n_copies=job.placement.sched_copies,
        op_offload=job.context.op_offload,
        pinned=pinned,
        build=job.context.build,
    )
    return record(made, job.backends)


def sizes(job: Job, graph: Graph, *, pinned: bool) -> list[int]:
    """Bytes per backend, the processor last."""
    return list(taped(job, graph, pinned=pinned).play(0).peaks)


def reserved(job: Job, graph: Graph) -> tuple[Tape, ...]:
    """Tapes of all graphs that are really reserved; each buffer is as large as the largest needs.

    Pins are kept, and one token per sequence is sized too, which is the larger graph only where
    `_copies_host_cache`. Newer builds size one for a single sequence too where tables of decay
    are large.
    """
    context = job.context
    others = []
    if _copies_host_cache(job, graph):
        others.append(Batch(context.n_seq_max, context.n_seq_max, context.n_seq_max))
    if job.model.architecture in DECAYING and context.since(builds.ONE_SEQUENCE_TOO):
        n_tokens = min(context.n_ctx, context.n_ubatch)
        others.append(Batch(n_tokens, 1, min(n_tokens, context.n_outputs_max)))
    more = [taped(job, build(job, other), pinned=True) for other in others]
    return (taped(job, graph, pinned=True), *more)


def _copies_host_cache(job: Job, graph: Graph) -> bool:
    """Layers on the host that copy their whole cache.

    A GPU takes over a prompt's work for such a layer, copies included; one token stays at home.
    """
    processor = len(job.backends) - 1
    if not job.context.op_offload or all(backend.wants is never for backend in job.backends):
        return False
    return any(
        node.op in COPIES
        and any(
            s is not None and s.root.buffer == processor and not s.root.weight for s in node.src
        )
        for node in graph.nodes
    )
