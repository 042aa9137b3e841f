"""The header of a GGUF file as plain values; knows no file and no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TypeAlias

from kvwise.gguf.types import GGMLType


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An array that was walked and counted but not kept: its element type and length."""

    element: str
    count: int

    def __len__(self) -> int:
        return self.count


Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | tuple[Scalar, ...] | ArrayInfo


@dataclass(frozen=True, slots=True)
class Tensor:
    """One row of the tensor table. `shape` is in ggml order, fastest dimension first;
    `offset` counts from the start of the data of its shard; `shard` from 0; `nbytes` are the
    bytes without padding (ggml_nbytes of a contiguous tensor)."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    offset: int = 0
    shard: int = 0
    nbytes: int = field(init=False, repr=False, compare=False)  # asked for all the time

    def __post_init__(self) -> None:
        shape = self.shape
        size = self.type.row_bytes(shape[0]) * prod(shape[1:]) if shape else 0
        object.__setattr__(self, "nbytes", size)

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Header:
    """What a GGUF file (or a whole set of split files) says about itself.

    `value_types` has the GGUF type of each key (`uint32`, `string`, `[int32]` for an array).
    """

    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    byte_order: str = "little"
    alignment: int = 32
    data_offset: int = 0
    path: str = ""
    shards: tuple[str, ...] = ()
    value_types: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> dict[str, Tensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    @property
    def architecture(self) -> str:
        value = self.metadata.get("general.architecture", "")
        return value if isinstance(value, str) else ""

    @property
    def n_params(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def tensor_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def get(self, key: str, default: Value | None = None) -> Value | None:
        """`key` as it stands, or with the architecture put before it (`.block_count`)."""
        name = self.architecture + key if key.startswith(".") else key
        return self.metadata.get(name, default)
