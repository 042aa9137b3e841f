"""The tensor table of a GGUF header: rows, and whether their claims about the data agree.

Follows ggml/src/gguf.cpp and src/llama-model-loader.cpp of llama.cpp b10605.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Final

from kvwise.errors import HeaderError
from kvwise.gguf import lies
from kvwise.gguf.cursor import Cursor
from kvwise.gguf.header import Tensor
from kvwise.gguf.lies import clip
from kvwise.gguf.types import BY_ID, GGMLType
from kvwise.text import phrase
from kvwise.units import pad

MAX_DIMENSIONS: Final = 4
MAX_NAME_BYTES: Final = 63
MAX_TENSORS: Final = 262_144
"""Rows of one file. A model of 64 layers with 512 experts, each in a tensor of its own, has
about 100,000."""

_SMALLEST_ROW = 8 + 1 + 4 + 4 + 8
_INT64_MAX = 2**63 - 1
_LARGEST_BLOCK = max(kind.size for kind in BY_ID.values())


def read_tensors(cursor: Cursor, count: int, alignment: int) -> tuple[tuple[Tensor, ...], int]:
    """The rows and the offset of the data in the file."""
    possible = min(cursor.left // _SMALLEST_ROW, MAX_TENSORS)
    if count > possible:
        raise lies.TooManyTensors(
            "the header claims {count} tensors, {possible} are possible",
            count=count, possible=possible,
            hint="the file is cut short or damaged: download it again",
        )  # fmt: skip
    names: set[str] = set()
    rows = []
    for index in range(count):
        row = _plain_row(cursor) or _read_row(cursor, index)
        if row.name in names:
            raise lies.DuplicateTensor("the tensor {name} is there twice", name=clip(row.name))
        names.add(row.name)
        rows.append(row)
    start = pad(cursor.tell, alignment) if rows else cursor.tell
    check_offsets(rows, alignment, cursor.source.size - start)
    return tuple(rows), start


def check_shape(name: str, shape: Sequence[int], kind: GGMLType) -> None:
    """What ggml can hold: one to four dimensions of at least one element, in whole blocks."""
    if len(shape) > MAX_DIMENSIONS:
        raise lies.TooManyDimensions(
            "the tensor {name} has {count} dimensions, ggml has {ceiling}",
            name=clip(name), count=len(shape), ceiling=MAX_DIMENSIONS,
        )  # fmt: skip
    if min(shape) <= 0:
        raise lies.ZeroDimension(
            "the tensor {name} has a dimension of {size}", name=clip(name), size=min(shape)
        )
    elements = prod(shape)
    if elements > _INT64_MAX or elements // kind.block * kind.size > _INT64_MAX:
        raise lies.TensorTooLarge(
            "the tensor {name} has {count} elements, more than an int64 can count in bytes",
            name=clip(name), count=elements,
        )  # fmt: skip
    if shape[0] % kind.block:
        raise lies.PartialBlock(
            "the tensor {name} has rows of {count} elements, {kind} comes in blocks of {block}",
            name=clip(name), count=shape[0], kind=kind.name, block=kind.block,
        )  # fmt: skip


def known_type(name: str, number: int) -> GGMLType:
    """The row of a ggml type id; raises UnknownTensorType."""
    kind = BY_ID.get(number)
    if kind is None:
        raise lies.UnknownTensorType(
            "the tensor {name} has ggml type {number}, which this kvwise does not know",
            name=clip(name), number=number,
            hint="the file is newer than this kvwise, or damaged: update kvwise",
        )  # fmt: skip
    return kind


def check_offsets(rows: Sequence[Tensor], alignment: int, available: int) -> None:
    """Each tensor follows the one before it and ends inside the `available` bytes of data."""
    expected = 0
    for index, row in enumerate(rows):
        if row.offset != expected:
            raise _wrong_offset(rows, index, expected, alignment)
        if expected + row.nbytes > available:
            raise lies.TensorBeyondFile(
                "the tensor {name} needs data up to byte {end}, the file has {size}",
                name=clip(row.name), end=row.offset + row.nbytes, size=max(available, 0),
                hint="the file is cut short: download it again",
            )  # fmt: skip
        expected = pad(expected + row.nbytes, alignment)


def _wrong_offset(rows: Sequence[Tensor], index: int, expected: int, alignment: int) -> HeaderError:
    row = rows[index]
    if row.offset % alignment:
        return lies.MisalignedOffset(
            "the tensor {name} starts at {offset}, not a multiple of {alignment}",
            name=clip(row.name), offset=row.offset, alignment=alignment,
        )  # fmt: skip
    other = next((r for r in rows if r is not row and _overlap(r, row)), None)
    if other is not None:
        return lies.OverlappingTensors(
            "the tensors {name} and {other} claim the same bytes (at {offset})",
            name=clip(row.name), other=clip(other.name), offset=row.offset,
        )  # fmt: skip
    return lies.UnexpectedOffset(
        "the tensor {name} starts at {offset}, {expected} is expected: llama.cpp would refuse it",
        name=clip(row.name), offset=row.offset, expected=expected,
    )  # fmt: skip


def _overlap(a: Tensor, b: Tensor) -> bool:
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


@cache
def _forms(order: str) -> tuple[struct.Struct, struct.Struct, tuple[struct.Struct, ...]]:
    """The length of a name, the count of dimensions, and what follows for each count."""
    rest = (struct.Struct(f"{order}{count}QIQ") for count in range(MAX_DIMENSIONS + 1))
    return struct.Struct(order + "Q"), struct.Struct(order + "I"), tuple(rest)


def _plain_row(cursor: Cursor) -> Tensor | None:
    """A row of which nothing is wrong and all is in the window; else None, and nothing is read:
    `_read_row` says what is wrong. A third of the time."""
    buffer, at = cursor.window
    length, number, rest = _forms(cursor.order)
    try:
        (size,) = length.unpack_from(buffer, at)
        end = at + 8 + size
        raw = buffer[at + 8 : end]
        (dimensions,) = number.unpack_from(buffer, end)
        if not 0 < size <= MAX_NAME_BYTES or not 0 < dimensions <= MAX_DIMENSIONS:
            return None
        *shape, type_id, offset = rest[dimensions].unpack_from(buffer, end + 4)
        name = raw.decode("utf-8")
    except (struct.error, OverflowError, UnicodeDecodeError):
        return None
    kind = BY_ID.get(type_id)
    if kind is None or "\0" in name or not all(shape) or shape[0] % kind.block:
        return None
    if prod(shape) > _INT64_MAX // _LARGEST_BLOCK:
        return None
    cursor.stand(end + 4 + rest[dimensions].size)
    return Tensor(name, tuple(shape), kind, offset)


def _read_row(cursor: Cursor, index: int) -> Tensor:
    what = phrase("tensor {index}", index=index)
    name = cursor.name(
        phrase("the name of {what}", what=what), MAX_NAME_BYTES, lies.TensorNameTooLong
    )
    if not name:
        raise lies.EmptyTensorName("tensor {index} has no name", index=index)
    dimensions = cursor.number("I", what)
    if dimensions > MAX_DIMENSIONS:
        raise lies.TooManyDimensions(
            "the tensor {name} has {count} dimensions, ggml has {ceiling}",
            name=clip(name), count=dimensions, ceiling=MAX_DIMENSIONS,
        )  # fmt: skip
    # A tensor of no dimensions is one element to ggml (every ne starts as 1).
    shape = tuple(cursor.number("Q", what) for _ in range(dimensions)) or (1,)
    kind = known_type(name, cursor.number("I", what))
    check_shape(name, shape, kind)
    return Tensor(name, shape, kind, cursor.number("Q", what))
