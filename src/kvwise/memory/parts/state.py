"""Bytes of one sequence's state as the engine writes it out, for its caches in host memory.

Source: src/llama-kv-cache*.cpp, src/llama-memory-*.cpp state_write, src/llama-context.cpp
state_seq_get_size, b10605.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from kvwise.gguf.types import F32, by_name
from kvwise.memory.ledger import Cache
from kvwise.memory.made import Made

HEAD = 8  # magic and sequence number
COUNT = 4  # streams, or cells of one stream
CELL = 12  # position, number of sequences, the sequence
GRID = 8  # two more positions per cell of models with M-RoPE
SIDES = 8  # how V lies, and the number of layers
LAYER = 12  # type and row size of one side of one layer
STATE_CELL = 8  # position and number of sequences of a recurrent state
DSV4_HEAD = 12
DSV4_STATE = 24

Extent = Literal["whole", "partial"]


def sequence_bytes(made: Made, tokens: int, extent: Extent = "whole") -> int:
    """One sequence of `tokens` tokens; `partial` is only what cannot be cut back (a checkpoint).

    Windowed caches hold at most their window.
    """
    kept = [cache for cache in made.caches if extent == "whole" or _in_checkpoint(cache, made)]
    grid = GRID if made.model.n_pos_per_embd > 1 else 0
    head = HEAD + (DSV4_HEAD if any(cache.kind == "dsv4_state" for cache in made.caches) else 0)
    return head + sum(_cache_bytes(cache, tokens, grid, made) for cache in kept)


def _in_checkpoint(cache: Cache, made: Made) -> bool:
    """Windows and states; a cache without either only where there is nothing else to write."""
    if cache.kind != "kv" or cache.n_swa:
        return True
    return not (has_window(made.caches) or has_state(made.caches))


def _cache_bytes(cache: Cache, tokens: int, grid: int, made: Made) -> int:
    if cache.kind == "kv":
        return _kv_bytes(cache, tokens, grid, made)
    if cache.kind == "recurrent":
        rows = (cache.r_row, cache.s_row)
        sides = sum(LAYER + F32.row_bytes(row) for row in rows)
        return COUNT + STATE_CELL + SIDES + len(cache.layers) * sides
    plane = F32.row_bytes(cache.n_embd_state) * cache.state_size
    return DSV4_STATE + len(cache.layers) * (4 + 2 * (LAYER + plane))


def _kv_bytes(cache: Cache, tokens: int, grid: int, made: Made) -> int:
    window = cache.n_swa if cache.n_swa and not made.context.swa_full else tokens
    cells = min(tokens, window, cache.cells)
    size = COUNT + COUNT * cache.streams
    if not cells:
        return size
    size += cells * (CELL + grid) + SIDES
    for element, rows in ((cache.type_k, cache.k_row), (cache.type_v, cache.v_row)):
        for row, layers in Counter(rows).items():
            if row:
                size += layers * (LAYER + _row_bytes(element, row) * cells)
    return size


def _row_bytes(name: str, elements: int) -> int:
    element = by_name(name)
    return element.row_bytes(elements) if element else 0


def has_window(caches: Sequence[Cache]) -> bool:
    return any(cache.n_swa for cache in caches)


def has_state(caches: Sequence[Cache]) -> bool:
    return any(cache.kind != "kv" for cache in caches)
