"""Sampling on the device: the ten best scores of each row that a draft guesses from.

Source: src/llama-graph.cpp build_sampling, src/llama-sampler.cpp
llama_sampler_top_k_backend_apply, src/llama-context.cpp ubatch_prepare_reserve, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvwise import builds
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable

BEST = 10
"""Candidates that a draft looks at (common/speculative.cpp)."""


def sampling(b: Builder) -> None:
    """Candidates of every sequence's rows, when the draft samples on its device."""
    if not b.context.paired.samplers:
        return
    if b.scores is None:
        raise Unbuildable("nothing to sample from")
    words, stride = b.scores.ne[0], b.scores.nb[1]
    padded = ops.pad(b.scores, 0, 1)
    for row, counts in _rows(b):
        flat = ops.reshape(ops.view_1d(padded, words, row * stride), words)
        best = ops.top_k(flat, BEST)
        picked = ops.get_rows(ops.reshape(flat, 1, words), best)
        if counts:
            b.outputs += (picked, best)
        b.expand(picked, best)


def _rows(b: Builder) -> Iterator[tuple[int, bool]]:
    """The row that each sampler reads, and whether its result is handed out: a sampler without a
    row of its own reads the first one. Older builds make one such at most for each sequence."""
    each = b.context.paired.samplers
    left, row = b.n_outputs, 0
    for _ in range(b.n_seqs):
        mine = min(b.n_tokens // b.n_seqs, each, left)
        left -= mine
        for _ in range(mine):
            yield row, True
            row += 1
        idle = each - mine if b.since(builds.SAMPLERS_ALWAYS) else not mine
        for _ in range(idle):
            yield 0, False
