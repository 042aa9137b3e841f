"""The graph: tensors with ggml's shapes and strides, leafs and nodes in llama.cpp's order.

A tensor is what `ggml_tensor` is, without data: operation, type, `ne` (elements per
dimension), `nb` (bytes from one element to the next, per dimension), sources in order,
the root that a view looks into, flags, and the buffer of weights and caches.
Source: ggml/include/ggml.h, ggml/src/ggml.c (ggml_nbytes, ggml_new_tensor_impl), b10605.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvwise.gguf.types import GGMLType

FLAG_INPUT = 1
FLAG_OUTPUT = 2

NO_BUFFER = -1
"""`Tensor.buffer` of everything that lives in the compute buffers."""

VIEW_OPS = frozenset({"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})
"""Nodes the scheduler skips (ggml_is_view_op)."""

Shape = tuple[int, int, int, int]


class Tensor:
    """One tensor of a graph. `index` is its place in `Graph.tensors` (leafs, then nodes).

    `buffer`: backend number whose memory holds it from before (weights and caches), else
    `NO_BUFFER`; `weight` says which of the two. `base` is the root of a view, never a view.
    `params`: numbers that rules look at (ALiBi bias of FLASH_ATTN_EXT, dimension of CONCAT).
    """

    __slots__ = (
        "base",
        "buffer",
        "flags",
        "index",
        "name",
        "nb",
        "ne",
        "offset",
        "op",
        "params",
        "src",
        "type",
        "weight",
    )

    def __init__(  # noqa: PLR0917  (made by the thousand; keywords would cost a third more)
        self,
        op: str,
        kind: GGMLType,
        ne: Shape,
        nb: Shape,
        src: tuple[Tensor | None, ...] = (),
        base: Tensor | None = None,
        offset: int = 0,
    ) -> None:
        self.op = op
        self.type = kind
        self.ne = ne
        self.nb = nb
        self.src = src
        self.base = base
        self.offset = offset
        self.name = ""
        self.flags = 0
        self.buffer = NO_BUFFER
        self.weight = False
        self.index = -1
        self.params: float = 0

    def __repr__(self) -> str:
        return f"<{self.index} {self.op} {self.name} {self.type.name} {self.ne}>"

    @property
    def root(self) -> Tensor:
        """Whose storage this is: the view's base, or itself."""
        return self if self.base is None else self.base

    @property
    def elements(self) -> int:
        ne = self.ne
        return ne[0] * ne[1] * ne[2] * ne[3]

    @property
    def rows(self) -> int:
        ne = self.ne
        return ne[1] * ne[2] * ne[3]


def contiguous_strides(kind: GGMLType, ne: Shape) -> Shape:
    """Byte strides of a tensor without gaps."""
    row = ne[0] // kind.block * kind.size
    plane = row * ne[1]
    return (kind.size, row, plane, plane * ne[2])


def nbytes(tensor: Tensor) -> int:
    """Bytes from the first to the last element (ggml_nbytes); strides count, so views too."""
    ne0, ne1, ne2, ne3 = tensor.ne
    if ne0 <= 0 or ne1 <= 0 or ne2 <= 0 or ne3 <= 0:
        return 0
    nb = tensor.nb
    kind = tensor.type
    first = kind.size + (ne0 - 1) * nb[0] if kind.block == 1 else ne0 * nb[0] // kind.block
    return first + (ne1 - 1) * nb[1] + (ne2 - 1) * nb[2] + (ne3 - 1) * nb[3]


def is_contiguous(tensor: Tensor, above: int = 0) -> bool:
    """No gaps between elements in the dimensions above `above` (ggml_is_contiguous_N).

    With `above` = 0 the first row may not have gaps either; dimensions of one element never
    count. Source: ggml.c ggml_is_contiguous_n.
    """
    ne, nb, kind = tensor.ne, tensor.nb, tensor.type
    step = kind.size
    if ne[0] != kind.block and nb[0] != step:
        return False
    step *= ne[0] // kind.block
    for dim in (1, 2, 3):
        if dim > above:
            if ne[dim] != 1 and nb[dim] != step:
                return False
            step *= ne[dim]
        else:
            step = ne[dim] * nb[dim]
    return True


@dataclass(slots=True)
class Graph:
    """Leafs and nodes in llama.cpp's order, and the assignments made while building.

    `pins`: tensor index -> backend, set by llama.cpp itself while it builds the graph
    (kept when buffers are really reserved, lost in the no-alloc pass).
    `weights`: names of the weights that the graph uses; `left`: how names of weights begin that
    llama.cpp's own graph leaves unused.
    """

    leafs: list[Tensor] = field(default_factory=list)
    nodes: list[Tensor] = field(default_factory=list)
    pins: dict[int, int] = field(default_factory=dict)
    weights: set[str] = field(default_factory=set)
    left: tuple[str, ...] = ()

    @property
    def tensors(self) -> Sequence[Tensor]:
        return [*self.leafs, *self.nodes]

    def number(self) -> None:
        """Give every tensor its index: leafs first, then nodes."""
        for index, tensor in enumerate(self.leafs):
            tensor.index = index
        for index, tensor in enumerate(self.nodes, len(self.leafs)):
            tensor.index = index
