"""One backend of the scheduler: a device, or the processor (always the last).

What a kind of device supports, wants and needs is in `devices/`; here is only what the
scheduler and the allocator ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvwise.memory.compute.graph import Tensor, nbytes

Kept = dict[int, list[int]]
"""Index of a node -> indices of tensors that are not given back before it."""


@dataclass(frozen=True, slots=True)
class Reader:
    """What a backend sees of a split beside its nodes.

    `sources` per tensor as indices (-1 = none), copies put in; `uses`: how often nodes of the
    whole graph read a tensor; `after`: the node that follows the split.
    """

    sources: Sequence[Sequence[int]]
    uses: Sequence[int]
    after: Tensor | None


AllocSize = Callable[[Tensor, Sequence[Tensor | None]], int]
Answer = Callable[[Tensor], bool]
Arrange = Callable[[list[Tensor], Reader], Kept]


def plain_size(tensor: Tensor, sources: Sequence[Tensor | None]) -> int:  # noqa: ARG001
    """A tensor's own bytes, whatever its sources."""
    return nbytes(tensor)


def always(tensor: Tensor) -> bool:  # noqa: ARG001
    """Every operation runs here."""
    return True


def never(tensor: Tensor) -> bool:  # noqa: ARG001
    """No operation is taken over from the processor."""
    return False


@dataclass(frozen=True, slots=True)
class Backend:
    """Rules of one backend.

    `alignment` in bytes; `alloc_size` bytes asked for a tensor, given its sources as they are
    after copies were put in; `supports` whether a node can run here; `wants` whether the device
    takes a node whose weight is in host memory (op_offload); `asynchronous`: copies and events
    that pipeline parallelism needs; `arrange` puts the nodes of a split into the order that the
    device wants (in place) and says what is kept until when.
    """

    name: str
    alignment: int
    alloc_size: AllocSize = plain_size
    supports: Answer = always
    wants: Answer = never
    asynchronous: bool = False
    arrange: Arrange | None = None
