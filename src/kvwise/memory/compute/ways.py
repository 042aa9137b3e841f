"""What no weight shows of a graph, and so may be different in an architecture that is not known.

A sum takes over the bytes of what stands first: whether an architecture adds a layer's part to the
residual stream or the stream to the part decides where the stream lies afterwards, and so into
which gaps the next large tensors fit. Both orders are in use (Phi-3 turns the second sum of a
layer, Jamba both). The feed-forward part may read the layer's input beside attention (GPT-NeoX),
so that both stand at once. In a mixture of experts the router may do so, and its small results then
lie below those of attention (SmallThinker); and weights may be put in before the experts, which
then read a copy each (Llama 4). Used for estimates alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvwise.memory.compute.builder import Builder
from kvwise.memory.compute.families import Build
from kvwise.memory.compute.graph import Tensor

_ROUTER = re.compile(r"^blk\.(\d+)\.ffn_gate_inp\.weight$")
_SECOND_NORM = re.compile(r"^blk\.(\d+)\.ffn_norm\.weight$")

_NO_PART = frozenset({"NONE", "VIEW"})
"""What is not added as a whole: inputs, weights, and views, which own no bytes."""


@dataclass(frozen=True, slots=True)
class Way:
    """`turned`: sums of a layer with the stream first, 0 the one after the feed-forward part, 1
    the one after attention; `parallel`: the norm before the feed-forward part reads the layer's
    input; `early`: the router does; `weighed_first`: experts' weights go in before the experts."""

    turned: tuple[int, ...] = ()
    parallel: bool = False
    early: bool = False
    weighed_first: bool = False


USUAL = Way()
OTHERS = (Way((0, 1)), Way((0,)))
AWAY = (Way(parallel=True),)
OF_EXPERTS = (Way(early=True), Way(weighed_first=True))
"""Those in use beside the usual one: in all models; where layers or their caches lie on the host
and what they read is copied, so that a stream more counts; and in mixtures of experts."""


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Another architecture's graph, in some way. RoPE factors of the file are used in any case, and
    weights that this architecture would leave aside count as unused.

    `layers`: no more than the first ones of the model, to compare graphs with each other.
    """

    build: Build
    way: Way = USUAL
    layers: int | None = None

    def __call__(self, b: Builder) -> None:
        b.borrowed = True
        b.weighed_first = self.way.weighed_first
        if self.layers is not None:
            b.n_layer = min(b.n_layer, self.layers)
        if self.way.turned or self.way.parallel or self.way.early:
            b.before_visit = _Changes(b, self.way).change
        self.build(b)


class _Changes:
    """Changes sources of tensors on their way into the graph, last ones of an expansion first."""

    def __init__(self, b: Builder, way: Way) -> None:
        self._b = b
        self._way = way
        self._sums = 0

    def change(self, tensor: Tensor) -> None:
        if tensor.op == "ADD":
            self._turn(tensor)
        elif self._way.early and tensor.op == "MUL_MAT":
            x = self._input(_ROUTER, tensor.src[0], tensor.src[1])
            tensor.src = tensor.src if x is None else (tensor.src[0], x)
        elif self._way.parallel and tensor.op == "MUL" and (normed := tensor.src[0]) is not None:
            x = self._input(_SECOND_NORM, tensor.src[1], normed)
            normed.src = normed.src if x is None else (x,)

    def _turn(self, tensor: Tensor) -> None:
        """Every second sum of the stream is the one after attention."""
        first, second = tensor.src[:2]
        if first is None or second is None or first.ne != second.ne:
            return
        if first.ne[0] != self._b.n_embd or first.op in _NO_PART or second.op in _NO_PART:
            return
        if self._sums % 2 in self._way.turned:
            tensor.src = (second, first)
        self._sums += 1

    def _input(
        self, weight: re.Pattern[str], found: Tensor | None, read: Tensor | None
    ) -> Tensor | None:
        """The layer's input, if `found` is such a weight and what is read is of the same shape (it
        is not where rows are picked)."""
        layer = weight.match(found.name) if found is not None else None
        x = self._b.input_of_layer(int(layer[1])) if layer else None
        return x if x is not None and read is not None and x.ne == read.ne else None
