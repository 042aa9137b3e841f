"""Recurrent states: reading the rows of this batch, and writing new ones back.

While buffers are reserved every state is in use and the first one counts as fresh.
Source: src/llama-graph.cpp build_rs, build_rs_inp; src/llama-memory-recurrent.cpp, b10605.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kvwise import builds
from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.ledger import Cache

Side = Literal["r", "s"]
"""The rolling state (convolution, token shift) and the recurrent one."""

Rows = Callable[[Tensor, Tensor], Tensor]
"""Makes a result out of all states and the numbers of those that the batch uses."""


def state_cache(b: Builder) -> Cache:
    """The cache of recurrent states."""
    for cache in b.caches:
        if cache.kind == "recurrent":
            return cache
    raise Unbuildable("there is no recurrent state")


def sequence_tokens(b: Builder) -> int:
    """Tokens of each sequence of the batch."""
    return b.n_tokens // b.n_seqs


def storage(b: Builder, side: Side, il: int) -> Tensor:
    """One side of a layer's states: a row per sequence and snapshot."""
    cache = state_cache(b)
    if il not in cache.layers:
        raise Unbuildable(f"layer {il} has no recurrent state")
    rows = cache.cells * (1 + cache.n_rs_seq)
    row = cache.r_row if side == "r" else cache.s_row
    return b.cache_tensor(side, il, F32, (row, rows, 1, 1))


def _numbers(b: Builder, first: int = 0, count: int | None = None) -> Tensor:
    """Numbers of `count` states from `first` on; the batch uses the first ones."""
    cells = state_cache(b).cells
    whole = b.input("state_rows", I32, cells)
    rest = cells - first if count is None else count
    return b.once(("state_rows", first, rest), lambda: ops.view_1d(whole, rest, first * 4))


def read(b: Builder, side: Side, il: int, rows: Rows | None = None) -> Tensor:
    """States of this batch's sequences: [row, sequences] (or what `rows` makes of them)."""
    return read_from(b, storage(b, side, il), rows)


def read_from(b: Builder, store: Tensor, rows: Rows | None = None) -> Tensor:
    """The same out of any storage that has a row per state."""
    width, count, _, _ = store.ne
    states = ops.reshape(store, width, count)
    b.expand(ops.scale_inplace(ops.view_1d(states, width)))
    if b.since(builds.STATES_AT_ONCE):
        made, others = _at_once(b, states, rows)
    else:
        made = (rows or ops.get_rows)(states, _numbers(b, 0, b.n_seqs))
        b.expand(made)
        others = ops.get_rows(states, _numbers(b, b.n_seqs))
    unused, step = state_cache(b).cells - b.n_seqs, store.nb[1]
    b.expand(ops.cpy(others, ops.view_2d(store, width, unused, step, b.n_seqs * step)))
    return made


def _at_once(b: Builder, states: Tensor, rows: Rows | None) -> tuple[Tensor, Tensor]:
    """One look-up for the batch's states and all others; `rows` reads its own from the cache.

    The look-up leaves out the first state then, so that it copies nothing for one sequence.
    """
    width, cells, used = states.ne[0], state_cache(b).cells, b.n_seqs
    if rows is None:
        whole = b.input("state_rows", I32, cells)
        found = ops.get_rows(states, whole)
        made = ops.view_2d(found, width, used, found.nb[1])
    else:
        found = ops.get_rows(states, _numbers(b, 1))
        made = rows(states, _numbers(b, 0, used))
    b.expand(made)
    first = used if rows is None else used - 1
    return made, ops.view_2d(found, width, cells - used, found.nb[1], first * found.nb[1])


def write(b: Builder, side: Side, il: int, state: Tensor, *, flat: bool = True) -> None:
    """Put the new states of the batch into the first rows, as one run of elements or as rows."""
    store = storage(b, side, il)
    width, step = store.ne[0], store.nb[1]
    if flat:
        b.expand(ops.cpy(state, ops.view_1d(store, width * b.n_seqs)))
    else:
        b.expand(ops.cpy(state, ops.view_2d(store, width, b.n_seqs, step)))


def roll(b: Builder, il: int, x: Tensor, taps: int, *, newest_first: bool = False) -> Tensor:
    """The convolution's input: kept steps before `x` [channels, tokens, sequences].

    Keeps the last steps, and with snapshots those before each of the last tokens.
    """
    kept = ops.reshape(read(b, "r", il), taps - 1, x.ne[0], b.n_seqs)
    cur = ops.concat(kept, ops.transpose(x), 0)
    keep(b, il, cur, taps, newest_first=newest_first)
    return cur


def keep(
    b: Builder, il: int, cur: Tensor, taps: int, *, newest_first: bool, snapshots: int | None = None
) -> None:
    """Write the last steps of `cur` back, for each snapshot (None: all that the cache has)."""
    store, cache = storage(b, "r", il), state_cache(b)
    width, row = cur.ne[1], (taps - 1) * cur.ne[1]
    ages = range(cache.n_rs_seq + 1 if snapshots is None else snapshots)
    if newest_first:  # not more than there are tokens; the delta net writes all, oldest first
        ages = ages[: sequence_tokens(b)]
    for age in ages if newest_first else reversed(ages):
        first = max(0, cur.ne[0] - (taps - 1) - age)
        last = ops.view_3d(cur, (taps - 1, width, b.n_seqs), cur.nb[1:3], first * cur.nb[0])
        place = age * cache.cells * row * store.type.size
        b.expand(ops.cpy(last, ops.view_2d(store, row, b.n_seqs, store.nb[1], place)))
