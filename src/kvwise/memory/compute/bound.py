"""The most that the compute buffers take, in microseconds: a closed form, no graph.

One form holds for all contexts, micro-batches and numbers of outputs of a layout; it is put
together once, out of the weights' shapes. No architecture has a factor of its own: what each kind
of layer keeps side by side is a rule (closed.py, closed_parts.py). That the form is never below the
exact figure is no theorem: tests/memory/compute/test_bound.py compares every golden cell, and
contexts, micro-batches and outputs beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.compute.closed import Closed, cells_of, form
from kvwise.memory.compute.families import BUILDERS
from kvwise.memory.compute.key import Key
from kvwise.memory.compute.reserve import batch, without_lengths
from kvwise.memory.context import Context
from kvwise.memory.ledger import Cache
from kvwise.memory.placement import Placement
from kvwise.units import MIB

ROOM = MIB
"""Bytes that small parts may take beside what the form adds up, and one more residual stream, for
each copy of the inputs."""

ODDS = 32
"""One part of so many for gaps between blocks that no later tensor fits into."""


def bound(  # noqa: PLR0917  (the order of `compute`)
    model: Model,
    context: Context,
    placement: Placement,
    caches: tuple[Cache, ...],
    launch: Launch,
    devices: Sequence[Device],
) -> list[int] | None:
    """Bytes per device, the host last, that `compute` does not exceed; None where there is no form.

    There is none for contexts of MTP layers, for models with a router layer (Granite Switch), and
    for architectures without a graph of their own.
    """
    if context.mtp or model.router_layer >= 0 or model.architecture not in BUILDERS:
        return None
    found = _form(Key.of(model, without_lengths(context), placement, caches, launch, devices))
    size = batch(model, context)
    room = (ROOM + found.stream * size.n_tokens) * found.copies
    made = found.at(size, cells_of(caches))
    return [each + each // ODDS + room if each else 0 for each in made]


@lru_cache(maxsize=256)
def _form(key: Key) -> Closed:
    return form(key.job())
