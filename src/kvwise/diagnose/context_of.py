"""The context's length, from nothing but the size of a cache that was refused.

A log may hold no more than the allocation that failed. With the model and the cache's types its
size is that of one length: a cache grows with it, and only that length gives this many bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvwise.device import Device
from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account

_STEPS = (256, 32)
"""Tokens that builds round a context up to: the coarser first, of which a finer one is padded."""
_MOST = 1 << 24
_SLACK = 4096
"""Bytes by which a buffer may be larger than its tensors: alignment, and what ggml adds."""


def length_of(
    size: int, buffer: str | None, model: Model, launch: Launch, devices: Sequence[Device] = ()
) -> int | None:
    """The n_ctx with which the cache takes `size` bytes, in this buffer or in all; None if none."""
    for step in _STEPS:
        found = _search(size, step, lambda n_ctx: _taken(n_ctx, buffer, model, launch, devices))
        if found:
            return found
    return None


def _search(size: int, step: int, taken: Callable[[int], int | None]) -> int | None:
    """The least multiple of `step` with which this many bytes are taken, to the slack."""
    low, high = 1, _MOST // step
    while low < high:
        middle = (low + high) // 2
        bytes_ = taken(middle * step)
        if bytes_ is None:
            return None
        if bytes_ < size - _SLACK:
            low = middle + 1
        else:
            high = middle
    bytes_ = taken(low * step)
    return low * step if bytes_ is not None and abs(bytes_ - size) <= _SLACK else None


def _taken(
    n_ctx: int, buffer: str | None, model: Model, launch: Launch, devices: Sequence[Device]
) -> int | None:
    try:
        ledger = account(model, replace(launch, n_ctx=n_ctx), devices, compute_mode="none")
    except KvwiseError:
        return None
    lines = [line for line in ledger.lines if line.context_bytes]
    named = [line for line in lines if line.buffer == buffer]
    return sum(line.context_bytes for line in named or lines)
