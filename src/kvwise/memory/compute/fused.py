"""Fused operations: on, or off for the whole model, as a small probe graph decides.

llama.cpp builds a graph of one token per sequence with the operation in it, lets the scheduler
assign it, and looks at each such node: one that is not on the device of its layer switches the
operation off everywhere. Flash attention and the delta net are answered in `memory/flash.py`,
before caches are laid out; the others here, from the graph itself.
Source: src/llama-context.cpp resolve_fused_ops, b10605.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import lru_cache

from kvwise import builds
from kvwise.gguf.model import Model
from kvwise.memory.compute.assign import assign
from kvwise.memory.compute.backend import Backend
from kvwise.memory.compute.builder import Batch, Builder
from kvwise.memory.context import Context
from kvwise.memory.placement import Placement

PROBED = ("LIGHTNING_INDEXER", "DSV4_HC_PRE", "DSV4_HC_COMB", "DSV4_HC_POST")
"""In llama.cpp's order: a later probe knows what the earlier ones switched off."""

Make = Callable[[Batch, Collection[str]], Builder]

KEPT = 256
"""Answers remembered."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What the answer depends on, and `make`, which builds a graph without given operations.

    Batch and lengths are not in it: the probe has one token per sequence whatever the batch, and no
    device looks at how many cells a cache has to say what it runs (they come in blocks of 256). But
    an operation may be there for long contexts alone: `ops` are the fused ones of the graph.
    """

    model: Model
    context: Context
    placement: Placement
    caches: tuple[tuple[object, ...], ...]
    where: tuple[tuple[str, int], ...]
    backends: tuple[Backend, ...]
    ops: tuple[str, ...]
    family: object
    make: Make = field(compare=False)


@lru_cache(maxsize=KEPT)
def unfused(of: Probed) -> frozenset[str]:
    """The operations that are switched off."""
    off: frozenset[str] = frozenset()
    astray = _astray(of, off)
    for op in PROBED if astray else ():
        if op in astray:
            off |= {op}
            astray = _astray(of, off)
    return off


def _astray(of: Probed, off: frozenset[str]) -> frozenset[str]:
    """Fused operations with a node that is not on its layer's device."""
    n_seqs = of.context.n_seq_max
    builder = of.make(Batch(n_seqs, n_seqs, n_seqs), off)
    where = assign(
        builder.graph,
        of.backends,
        op_offload=builder.context.op_offload,
        pins=builder.graph.pins,
    )
    stays = {"LIGHTNING_INDEXER"} if builder.since(builds.CHUNKED_STAYS_FUSED) else set()
    return frozenset(
        node.op
        for node, il in builder.fused_nodes
        if node.op not in stays and where[node.index] != builder.homes.of_layer(il)
    )
