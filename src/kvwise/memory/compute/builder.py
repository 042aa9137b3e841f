"""The graph under construction: sizes, weights, inputs, caches, and the order of nodes.

`families/` compose graphs out of `pieces/`; pieces make tensors with `ops` and put them in
with `Builder.expand`, at the moments llama.cpp does (src/llama-graph.cpp, b10605): those
moments decide the order, and the order decides the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kvwise.arch import n_pos_per_embd
from kvwise.builds import Change
from kvwise.gguf.header import Tensor as Weight
from kvwise.gguf.model import Model
from kvwise.gguf.types import I32, GGMLType, by_name
from kvwise.memory.compute.graph import (
    FLAG_INPUT,
    FLAG_OUTPUT,
    Graph,
    Shape,
    Tensor,
    contiguous_strides,
)
from kvwise.memory.compute.homes import Homes
from kvwise.memory.compute.ops import Unbuildable
from kvwise.memory.context import Context
from kvwise.memory.ledger import Cache
from kvwise.memory.placement import Placement

PIN_BELOW = 32
"""Tokens under which norms are pinned even with some layers on the host."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Sizes of the worst-case batch that a graph is built for."""

    n_tokens: int
    n_seqs: int
    n_outputs: int


class Builder:
    """What a family needs to build its graph. One builder makes one graph."""

    def __init__(
        self,
        *,
        model: Model,
        context: Context,
        placement: Placement,
        caches: Sequence[Cache],
        batch: Batch,
        homes: Homes,
        unfused: Collection[str] = (),
    ) -> None:
        self.model = model
        self.context = context
        self.placement = placement
        self.caches = caches
        self.homes = homes
        self.n_tokens = batch.n_tokens
        self.n_seqs = batch.n_seqs
        self.n_outputs = batch.n_outputs
        self.flash_attn = context.flash_attn
        self.unfused = unfused  # fused operations (ggml's names) that are switched off
        self.fused_nodes: list[tuple[Tensor, int]] = []  # with their layer: fused.py asks where
        self.n_layer = model.n_layer
        self.period = 0  # if set, layer i has the weights of layer i modulo this
        self.n_embd = model.n_embd
        self.graph = Graph()
        self.embd: Tensor | None = None  # what pooling looks at: the final norm's result
        self.scores: Tensor | None = None  # what is sampled from: the logits
        self.outputs: list[Tensor] = []  # what is handed out, and so never freed
        # for estimates alone, see ways.py
        self.borrowed = False  # all RoPE factors are used, and no weight is left aside
        self.weighed_first = False
        self.before_visit: Callable[[Tensor], None] | None = None
        self._layer_inputs: dict[int, Tensor] = {}
        self._weights: dict[tuple[str, int], Tensor] = {}
        self._table = model.header.by_name
        self._left: list[str] = []  # beginnings of names
        self._inputs: dict[object, Tensor] = {}
        self._cache_tensors: dict[tuple[str, int], Tensor] = {}
        self._cache_of: dict[int, Cache] = {
            # the first cache of a layer holds its KV, a second one what its indexer looks at
            layer: cache
            for cache in reversed(caches)
            if cache.kind == "kv"
            for layer in cache.layers
        }
        full = placement.gpu_layers > model.n_layer_all
        self._pins_norms = self.n_tokens < PIN_BELOW or full
        self._pinned: list[tuple[Tensor, int]] = []

    def since(self, change: Change) -> bool:
        """Whether the engine's build has a change of llama.cpp."""
        return self.context.since(change)

    # -- order ------------------------------------------------------------------------------

    def expand(self, *tensors: Tensor) -> None:
        """Add tensors and all that they need, sources first (ggml_build_forward_expand)."""
        for tensor in tensors:
            if tensor.index < 0:
                self._visit(tensor)

    def _visit(self, tensor: Tensor) -> None:
        tensor.index = 0
        if self.before_visit is not None:
            self.before_visit(tensor)
        for source in tensor.src:
            if source is not None and source.index < 0:
                self._visit(source)
        (self.graph.leafs if tensor.op == "NONE" else self.graph.nodes).append(tensor)

    def pin_norm(self, tensor: Tensor, il: int) -> None:
        """llama.cpp keeps every `norm` of a layer on the layer's device (graph_get_cb)."""
        if self._pins_norms and il >= 0:
            self._pinned.append((tensor, self.homes.of_layer(il)))

    def pin(self, tensor: Tensor, backend: int) -> None:
        self._pinned.append((tensor, backend))

    def layer_input(self, il: int, x: Tensor) -> None:
        """What layer `il` reads, or the last one leaves: a draft may ask for it."""
        self._layer_inputs[il] = x

    def input_of_layer(self, il: int) -> Tensor | None:
        """What layer `il` reads, if the family told of it."""
        return self._layer_inputs.get(il)

    def finish(self) -> Graph:
        """Number the tensors and mark the outputs. Raises Unbuildable if a draft reads a layer's
        input that the family did not tell of."""
        handed = self.context.paired.embeddings_layer_inp
        for il in handed:
            if il not in self._layer_inputs:
                raise Unbuildable(f"the input of layer {il} is not known")
        asked = (self._layer_inputs[il] for il in handed)
        for tensor in (self.embd, *self.outputs, *asked):
            if tensor is not None:
                tensor.flags |= FLAG_OUTPUT
        graph = self.graph
        graph.number()
        graph.pins = {tensor.index: backend for tensor, backend in self._pinned}
        graph.weights = {name for name, _ in self._weights}
        graph.left = tuple(self._left)
        return graph

    # -- weights ----------------------------------------------------------------------------

    def top(self, name: str, il: int | None = None) -> Tensor | None:
        """A weight that belongs to no layer, if the file has it and llama.cpp loads it.

        `il` picks the copy of RoPE factors on that layer's device.
        """
        row = self._table.get(name)
        home = None if row is None else self.homes.of(name, None if il is None else self._block(il))
        if row is None or home is None:
            return None
        return self._made(row, home)

    def _block(self, il: int) -> int:
        """The layer whose weights layer `il` has."""
        return il % self.period if self.period else il

    def _made(self, row: Weight, home: int) -> Tensor:
        key = (row.name, home)
        made = self._weights.get(key)
        if made is None:
            made = self._weights[key] = _weight(row, home)
        return made

    def w(self, il: int, name: str) -> Tensor | None:
        """Weight `blk.IL.NAME`, if the file has it."""
        return self.top(f"blk.{self._block(il)}.{name}")

    def has(self, il: int, name: str) -> bool:
        """Whether the file has `blk.IL.NAME`; does not count as a use."""
        return f"blk.{self._block(il)}.{name}" in self._table

    def leave(self, il: int, start: str) -> None:
        """llama.cpp's own graph leaves the weights `blk.IL.START...` of this model unused."""
        self.leave_all(f"blk.{self._block(il)}.{start}")

    def leave_all(self, prefix: str) -> None:
        """llama.cpp's own graph leaves the weights `PREFIX...` of this model unused."""
        if not self.borrowed:
            self._left.append(prefix)

    def tied_output(self) -> Tensor:
        """The token embeddings a second time, where the output layer is."""
        row = self._table.get("token_embd.weight")
        home = self.homes.of("output.weight")
        if home is None:  # the same buffer holds both: there is no second copy
            home = self.homes.of("token_embd.weight")
        if row is None or home is None:
            raise Unbuildable("neither output.weight nor token_embd.weight is there")
        return self._made(row, home)

    def need(self, il: int, name: str) -> Tensor:
        """Weight `blk.IL.NAME`; without it the architecture's graph does not exist."""
        made = self.w(il, name)
        if made is None:
            raise Unbuildable(f"blk.{il}.{name} is missing")
        return made

    def need_top(self, name: str) -> Tensor:
        """A weight of no layer that must be there."""
        made = self.top(name)
        if made is None:
            raise Unbuildable(f"{name} is missing")
        return made

    def shared(self, name: str) -> Tensor | None:
        """A weight of no layer, the target's where a draft has none."""
        own = self.top(name)
        return self.of_target(name) if own is None else own

    def of_target(self, name: str) -> Tensor | None:
        """The target's weight of that name."""
        lent = self.context.paired.lends(name)
        if lent is None:
            return None
        home = self.homes.backend(lent.device)
        return self.once(("lent", name), lambda: _weight(lent.tensor, home))

    # -- inputs and caches ------------------------------------------------------------------

    def input(self, key: object, kind: GGMLType, *ne: int) -> Tensor:
        """An input of the graph; the same tensor whenever the same key is asked for."""
        made = self._inputs.get(key)
        if made is None:
            shape: Shape = (*ne, 1, 1, 1)[:4]  # type: ignore[assignment]
            made = Tensor("NONE", kind, shape, contiguous_strides(kind, shape))
            made.flags = FLAG_INPUT
            made.name = str(key)
            self._inputs[key] = made
        return made

    def once(self, key: object, make: Callable[[], Tensor]) -> Tensor:
        """A tensor that the whole graph shares, made at the first call."""
        made = self._inputs.get(key)
        if made is None:
            made = self._inputs[key] = make()
        return made

    def positions(self) -> Tensor:
        """Positions, four per token for M-RoPE."""
        each = n_pos_per_embd(self.model, self.context.build)
        return self.input("pos", I32, self.n_tokens * each)

    def out_rows(self) -> Tensor:
        """Which rows are asked for."""
        return self.input("out_ids", I32, self.n_outputs)

    def cache_of(self, il: int) -> Cache:
        """The KV cache that layer `il` owns storage in."""
        cache = self._cache_of.get(il)
        if cache is None:
            raise Unbuildable(f"layer {il} has no cache")
        return cache

    def cache_named(self, role: str) -> Cache:
        """The cache of a role, where a layer has several (`mla` and `indexer`)."""
        for cache in self.caches:
            if cache.role == role:
                return cache
        raise Unbuildable(f"there is no {role} cache")

    def cache_backend(self, il: int) -> int:
        """Backend whose memory holds the caches of layer `il`."""
        cache = self._cache_of.get(il)
        lent = None if cache is None else self.context.paired.home_of(cache.role)
        if lent is not None:
            return self.homes.backend(lent)
        if not self.context.offload_kqv:
            return self.placement.n_gpu
        return self.homes.of_layer(il)

    def cache_tensor(self, side: str, il: int, kind: GGMLType, ne: Shape) -> Tensor:
        """Storage of one cache side of one layer: `k`, `v`, `r`, `s`..."""
        made = self._cache_tensors.get((side, il))
        if made is None:
            made = Tensor("NONE", kind, ne, contiguous_strides(kind, ne))
            made.buffer = self.cache_backend(il)
            made.name = f"cache_{side}_l{il}"
            self._cache_tensors[side, il] = made
        return made


def kind_named(name: str) -> GGMLType:
    """The ggml type of a cache type's name."""
    kind = by_name(name)
    if kind is None:
        raise Unbuildable(f"unknown type {name}")
    return kind


def _weight(row: Weight, backend: int) -> Tensor:
    ne: Shape = (*row.shape, 1, 1, 1, 1)[:4]  # type: ignore[assignment]
    made = Tensor("NONE", row.type, ne, contiguous_strides(row.type, ne))
    made.buffer, made.weight, made.name = backend, True, row.name
    return made


__all__ = ["Batch", "Builder", "Unbuildable", "kind_named"]
