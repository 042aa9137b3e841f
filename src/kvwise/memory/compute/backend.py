"""One backend of the scheduler: a device, or the processor (always the last).

What a kind of device supports, wants and needs is in `devices/`; here is only what the
scheduler and the allocator ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvwise.memory.compute.graph import Tensor, nbytes

AllocSize = Callable[[Tensor, Sequence[Tensor | None]], int]
Answer = Callable[[Tensor], bool]


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
    that pipeline parallelism needs.
    """

    name: str
    alignment: int
    alloc_size: AllocSize = plain_size
    supports: Answer = always
    wants: Answer = never
    asynchronous: bool = False
