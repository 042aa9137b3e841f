"""The compute buffer, to the byte: graph -> scheduler -> allocator.

    result.py     compute(): the door for everybody else
    reserve.py    which batch is reserved; graph and bytes for one job
    families/     one row or short function per architecture, out of pieces/
    pieces/       embeddings, norms, Q/K/V, caches, attention, feed-forward, experts, output
    builder.py    the graph under construction: weights, inputs, caches, order
    ops.py        what each ggml operation returns; state_ops.py: those of recurrent layers
    fused.py      which fused operations are switched off
    homes.py      which backend holds a weight, a layer's cache, the output
    unused.py     loaded weights that the graph does not use: not exact then
    graph.py      tensors, leafs and nodes, as ggml has them
    backend.py    what scheduler and allocator ask about a device; devices/: the answers per kind
    assign.py     scheduler, passes 1 to 4: a backend for every tensor
    schedule.py   scheduler, pass 5: splits and copies, and the final order
    allocate.py   the walk: what a graph asks of the allocator, recorded on a tape
    tape.py       a tape played for so many cells: bytes per backend
    freelist.py   free blocks of one buffer
    affine.py     numbers of cells that vary: a layout's graph is built once for all contexts
    growing.py    reservations per layout, kept for any context
    curve.py      peaks between two runs of a tape, to the byte
    estimate.py   an upper estimate where no graph is known
    nearest.py    the known graphs that fit an unknown model's weights best
    ways.py       what no weight shows: a near graph in all the ways that are in use
    trial.py      what a near graph would take, kept per layout for any context
    closed.py     a closed form where none is near; closed_parts.py: what each layer adds to it
    bound.py      the same with room for what it misses: never less than the exact figure, at once
    uncollected.py  no search for garbage while a graph is made

How to add an architecture: find its graph in llama.cpp's src/models/NAME.cpp. If it is a plain
decoder, add a row to the nearest module of families/ with the options of pieces/decoder.py.
Otherwise write a function that takes a `Builder`: make tensors with `ops` and the pieces, and
call `builder.expand` exactly where llama.cpp adds nodes to its graph (build_attn, build_moe_ffn,
build_rs and the final result do it inside the pieces); the order of calls in between does not
matter, the order of sources does. `b.w(il, name)` is a weight of a layer or None, `b.need` one
that must be there, `b.top` one of no layer, `b.input` an input of the graph, `b.once` a tensor
that the whole graph shares, `b.outputs` what is handed out. List a new module in
families/__init__.py. `pytest tests/memory/compute` then compares it node by node with the
recorded graphs, and `python tests/memory/compute/report.py NAME` with the measured bytes.
"""

from __future__ import annotations

from kvwise.memory.compute.growing import Mode
from kvwise.memory.compute.result import ComputeResult, compute

__all__ = ["ComputeResult", "Mode", "compute"]
