"""One row per GGUF metadata type: id, name, struct code, bytes; and what a Python value becomes.

Source: the GGUF specification (ggml, docs/gguf.md) and ggml/include/gguf.h of llama.cpp b10605.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ValueType:
    """A metadata type; `code` is its `struct` letter, `size` its bytes."""

    id: int
    name: str
    code: str
    size: int


_ROWS = (
    (0, "uint8", "B", 1), (1, "int8", "b", 1), (2, "uint16", "H", 2), (3, "int16", "h", 2),
    (4, "uint32", "I", 4), (5, "int32", "i", 4), (6, "float32", "f", 4), (7, "bool", "B", 1),
    (10, "uint64", "Q", 8), (11, "int64", "q", 8), (12, "float64", "d", 8),
)  # fmt: skip

SCALARS: dict[int, ValueType] = {row[0]: ValueType(*row) for row in _ROWS}
SCALAR_BY_NAME: dict[str, ValueType] = {kind.name: kind for kind in SCALARS.values()}

STRING, ARRAY = 8, 9
BOOL = SCALARS[7]


def float32(value: float) -> float:
    """The nearest float32, as a file would hold it; inf when it is out of range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def type_of(value: object) -> str:
    """The GGUF type of one Python value: the narrowest of uint32, int32, uint64, int64 for an int.

    A float is float32 (zoo/README.md). Raises ValueError for what GGUF cannot hold.
    """
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, float):
        return "float32"
    if isinstance(value, int):
        bounds = (
            ("uint32", 0, 2**32), ("int32", -(2**31), 0),
            ("uint64", 0, 2**64), ("int64", -(2**63), 0),
        )  # fmt: skip
        for name, low, high in bounds:
            if low <= value < high:
                return name
    raise ValueError(value)


def element_type(values: tuple[object, ...] | list[object]) -> str:
    """The GGUF type that holds every element: int32 for ints that fit (zoo/README.md).

    Raises ValueError for a mixture that no single type holds.
    """
    names = {type_of(value) for value in values}
    if len(names) <= 1 and not names & {"uint32", "int32"}:
        return names.pop() if names else "int32"
    ints = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(ints) == len(values):
        low, high = min(ints), max(ints)
        fits = (("int32", 31), ("int64", 63))
        for name, bits in fits:
            if -(2**bits) <= low and high < 2**bits:
                return name
        if low >= 0:
            return "uint64"
    elif names <= {"uint32", "int32", "uint64", "int64", "float32"}:
        return "float32"
    raise ValueError(values)
