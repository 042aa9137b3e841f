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

from kvwise.gguf.model import Model
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.families import Build
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces.norm import one_norm
from kvwise.memory.compute.reserve import Job
from kvwise.memory.placement import HOST

_ROUTER = re.compile(r"^blk\.(\d+)\.ffn_gate_inp\.weight$")
_SECOND_NORM = re.compile(r"^blk\.(\d+)\.ffn_norm\.weight$")

_OLDER = re.compile(r"\.attn_qkv\.weight$|_norm\.bias$")
"""What layers of the older forms have: Q, K and V in one, or norms with a bias."""

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
TURNED = (Way((0, 1)), Way((0,)))
PARALLEL, EARLY, WEIGHED_FIRST = Way(parallel=True), Way(early=True), Way(weighed_first=True)


def away(job: Job) -> bool:
    """Whether GPUs read what lies on the host (layers, some of their weights such as experts, or
    caches), so that copies of all sizes come and go."""
    if not job.placement.n_gpu:
        return False
    return not job.context.offload_kqv or any(
        device == HOST and name.startswith("blk.") for name, device in job.weights.where.items()
    )


def converted(job: Job) -> bool:
    """Whether attention reads caches in another type than they have, or turned."""
    return {job.context.type_k, job.context.type_v} != {"f16"}


def ways_of(model: Model, *, gaps: bool) -> tuple[Way, ...]:
    """Those in which a model's graph may be made beside the usual one; `gaps`: as in `away` or
    `converted`.

    No known architecture of a single stream turns sums or reads beside attention whose layers have
    Q, K and V apart, norms without a bias, one for each part, and no state. Yet where copies of
    caches come and go, in other types or from the host, gaps are many, and other things that no
    weight shows (layers without positions, scales) cost as much as a turned sum. Weights go in
    before the experts only where one is used at a time.
    """
    older = any(map(_OLDER.search, model.header.by_name))
    return (
        *(TURNED if older or gaps or _joins_otherwise(model) else ()),
        *((PARALLEL,) if older and gaps else ()),
        *((EARLY,) if model.n_expert else ()),
        *((WEIGHED_FIRST,) if model.n_expert and model.n_expert_used == 1 else ()),
    )


def _joins_otherwise(model: Model) -> bool:
    """Whether layers have a state, or one norm for both parts."""
    if model.is_recurrent or model.is_hybrid:
        return True
    return any(one_norm(model.header.by_name, il) for il in range(model.n_layer))


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
        if not (self.way.turned or self.way.parallel or self.way.early):
            self.build(b)
            return
        changes = _Changes(b, self.way)
        b.before_visit = changes.change
        self.build(b)
        if not changes.made:
            raise Unchanged("the graph is made the same in this way")


class Unchanged(Unbuildable):
    """A way makes the very graph that is made without it."""


class _Changes:
    """Changes sources of tensors on their way into the graph, last ones of an expansion first."""

    def __init__(self, b: Builder, way: Way) -> None:
        self._b = b
        self._way = way
        self._sums = 0
        self.made = False

    def change(self, tensor: Tensor) -> None:
        if tensor.op == "ADD":
            self._turn(tensor)
        elif self._way.early and tensor.op == "MUL_MAT":
            x = self._input(_ROUTER, tensor.src[0], tensor.src[1])
            if x is not None:
                self._put(tensor, (tensor.src[0], x))
        elif self._way.parallel and tensor.op == "MUL" and (normed := tensor.src[0]) is not None:
            x = self._input(_SECOND_NORM, tensor.src[1], normed)
            if x is not None:
                self._put(normed, (x,))

    def _put(self, tensor: Tensor, sources: tuple[Tensor | None, ...]) -> None:
        tensor.src = sources
        self.made = True

    def _turn(self, tensor: Tensor) -> None:
        """Every second sum of the stream is the one after attention."""
        first, second = tensor.src[:2]
        if first is None or second is None or first.ne != second.ne:
            return
        if first.ne[0] != self._b.n_embd or first.op in _NO_PART or second.op in _NO_PART:
            return
        if self._sums % 2 in self._way.turned:
            self._put(tensor, (second, first))
        self._sums += 1

    def _input(
        self, weight: re.Pattern[str], found: Tensor | None, read: Tensor | None
    ) -> Tensor | None:
        """The layer's input, if `found` is such a weight and what is read is of the same shape (it
        is not where rows are picked)."""
        layer = weight.match(found.name) if found is not None else None
        x = self._b.input_of_layer(int(layer[1])) if layer else None
        return x if x is not None and read is not None and x.ne == read.ne else None
