"""The single allocations behind a device's buffers, and the largest that must succeed at once.

A backend without a largest buffer (CUDA, HIP) puts all weights of a device into one allocation,
each cache into another, the compute buffer into a third. Vulkan and Metal give llama.cpp a largest
size: weights and caches are then cut between tensors, and the compute buffer into at most 16
chunks, so that only a single tensor can need more.

Source: ggml/src/ggml-alloc.c (ggml_backend_alloc_ctx_tensors_from_buft,
ggml_dyn_tallocr_new_chunk), src/llama-model.cpp load_tensors, src/llama-kv-cache.cpp, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvwise.device import Device
from kvwise.gguf.types import by_name
from kvwise.memory.backends import BackendKind, kind_of, tensor_size
from kvwise.memory.ledger import Cache, Extra
from kvwise.memory.made import Made
from kvwise.memory.placement import buffer_name

CHUNKS = 16
"""Chunks of a compute buffer (GGML_VBUFFER_MAX_CHUNKS); the last takes all that is left."""


@dataclass(frozen=True, slots=True)
class Block:
    """One allocation: what it holds and the least size it can have in one piece."""

    what: str
    nbytes: int


def blocks(made: Made, number: int) -> Iterator[Block]:
    """The largest piece of each buffer that a context takes on a device."""
    device = made.devices[number]
    kind, chunk = kind_of(device), chunk_bytes(device)
    for spot, size in made.weights.by_spot.items():
        if spot.device == number and spot not in made.weights.mapped:
            yield Block("weights", _piece(size, chunk, made.weights.largest.get(number, 0)))
    for cache in made.caches:
        size = cache.by_device.get(number, 0)
        if size:
            side = 0 if chunk is None else _largest_side(cache, kind)
            yield Block("context", _piece(size, chunk, side))
    work = made.compute.by_buffer.get(number, 0)
    if work:
        yield Block("compute", work if chunk is None else _last_chunk(work, chunk))


def chunk_bytes(device: Device) -> int | None:
    """The size at which the backend cuts, None = it never does."""
    kind = kind_of(device)
    if not kind.chunk_bytes:
        return None
    limit = device.max_block_bytes
    return kind.chunk_bytes if limit is None else min(kind.chunk_bytes, limit)


def largest(contexts: Sequence[Made], extras: Sequence[Extra], device: Device) -> Block | None:
    """The largest allocation on a device of all contexts (target and draft) and other extras."""
    name, chunk = buffer_name(device), chunk_bytes(device)
    found = [
        block
        for made in contexts
        for number, each in enumerate(made.devices)
        if buffer_name(each) == name
        for block in blocks(made, number)
    ]
    for extra in extras:
        if extra.of in {"mmproj", "lora"} and not extra.up_to:
            size = extra.total_bytes
            found.append(Block(extra.of, size if chunk is None else min(size, chunk)))
    return max(found, key=lambda block: block.nbytes, default=None)


def unplaced(contexts: Sequence[Made], extras: Sequence[Extra], device: Device) -> int:
    """Bytes of the allocations for which a card whose memory lies in pieces has none left.

    The largest are placed first, each in the smallest piece that holds it; a driver may do worse,
    because it is asked for weights, caches and compute buffer in this order.
    """
    left, missing = sorted(device.pieces), 0
    if not left:
        return 0
    for size in sorted(_sizes(contexts, extras, device), reverse=True):
        place = next((number for number, room in enumerate(left) if room >= size), None)
        if place is None:
            missing += size
        else:
            left[place] -= size
            left.sort()
    return missing


def _sizes(contexts: Sequence[Made], extras: Sequence[Extra], device: Device) -> Iterator[int]:
    """Every allocation of all contexts and extras on a device."""
    name, chunk = buffer_name(device), chunk_bytes(device)
    for made in contexts:
        for number, each in enumerate(made.devices):
            if buffer_name(each) != name:
                continue
            for size, piece in _buffers(made, number):
                yield from _chunks(size, max(1, piece))
    for extra in extras:
        if not extra.up_to:
            size = extra.total_bytes if extra.of in {"mmproj", "lora"} else 0
            yield from (size,) if chunk is None else _chunks(size, chunk)


def _buffers(made: Made, number: int) -> Iterator[tuple[int, int]]:
    """(bytes, bytes of its pieces) of each buffer on a device, in the order of `blocks`."""
    sizes = [
        size
        for spot, size in made.weights.by_spot.items()
        if spot.device == number and spot not in made.weights.mapped
    ]
    sizes += [size for cache in made.caches if (size := cache.by_device.get(number, 0))]
    work = made.compute.by_buffer.get(number, 0)
    sizes += [work] if work else []
    for size, block in zip(sizes, blocks(made, number), strict=True):
        yield size, block.nbytes


def _chunks(size: int, chunk: int) -> list[int]:
    whole, rest = divmod(size, chunk)
    return [chunk] * whole + ([rest] if rest else [])


def _piece(size: int, chunk: int | None, largest: int) -> int:
    """A cut buffer's largest piece is a chunk, or a tensor that is larger than one."""
    return size if chunk is None else min(size, max(chunk, largest))


def _last_chunk(size: int, chunk: int) -> int:
    return min(size, max(chunk, size - (CHUNKS - 1) * chunk))


def _largest_side(cache: Cache, kind: BackendKind) -> int:
    """The largest tensor of a cache: one side of one layer, all its streams."""
    rows = cache.cells * cache.streams
    largest = 0
    for name, widths in ((cache.type_k, cache.k_row), (cache.type_v, cache.v_row)):
        element = by_name(name)
        if element is None:
            continue
        for width in set(widths):
            size = element.row_bytes(width) * rows
            largest = max(largest, tensor_size(kind, element, width, size))
    return largest or -(-cache.nbytes // max(1, len(cache.layers)))
