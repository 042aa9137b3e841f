"""Fused operations: on, or off for the whole model, as a small probe graph decides.

llama.cpp builds a graph of one token per sequence with the operation in it, lets the scheduler
assign it, and looks at each such node: one that is not on the device of its layer switches the
operation off everywhere. Flash attention and the delta net are answered in `memory/flash.py`,
before caches are laid out; the others here, from the graph itself.
Source: src/llama-context.cpp resolve_fused_ops, b10605.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kvwise import builds
from kvwise.memory.compute.assign import assign
from kvwise.memory.compute.backend import Backend
from kvwise.memory.compute.builder import Batch, Builder

PROBED = ("LIGHTNING_INDEXER", "DSV4_HC_PRE", "DSV4_HC_COMB", "DSV4_HC_POST")
"""In llama.cpp's order: a later probe knows what the earlier ones switched off."""

Make = Callable[[Batch, Collection[str]], Builder]


def unfused(make: Make, backends: Sequence[Backend], n_seqs: int) -> frozenset[str]:
    """The operations that are switched off; `make` builds a graph without given ones."""
    off: frozenset[str] = frozenset()
    astray = _astray(make, backends, n_seqs, off)
    for op in PROBED if astray else ():
        if op in astray:
            off |= {op}
            astray = _astray(make, backends, n_seqs, off)
    return off


def _astray(
    make: Make, backends: Sequence[Backend], n_seqs: int, off: frozenset[str]
) -> frozenset[str]:
    """Fused operations with a node that is not on its layer's device."""
    builder = make(Batch(n_seqs, n_seqs, n_seqs), off)
    where = assign(
        builder.graph,
        backends,
        op_offload=builder.context.op_offload,
        pins=builder.graph.pins,
    )
    stays = {"LIGHTNING_INDEXER"} if builder.since(builds.CHUNKED_STAYS_FUSED) else set()
    return frozenset(
        node.op
        for node, il in builder.fused_nodes
        if node.op not in stays and where[node.index] != builder.homes.of_layer(il)
    )
