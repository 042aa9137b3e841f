"""Which backend runs what, and what is copied: ggml's scheduler, without its data.

Backends are numbered in priority order, the processor last; a backend reads the buffers of
its own number only (a GPU cannot read another's, and all host buffers count as the last).
Source: ggml/src/ggml-backend.cpp (ggml_backend_sched_split_graph), b10605.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvwise import builds
from kvwise.memory.compute.assign import assign
from kvwise.memory.compute.backend import Backend, Kept, Reader
from kvwise.memory.compute.graph import (
    FLAG_INPUT,
    FLAG_OUTPUT,
    NO_BUFFER,
    VIEW_OPS,
    Graph,
    Tensor,
)

MAX_SOURCES = 10
"""Sources of a node (GGML_MAX_SRC)."""

SPLIT_INPUTS = 30
"""Inputs after which a split is full (GGML_SCHED_MAX_SPLIT_INPUTS), in older builds."""


@dataclass(slots=True)
class Split:
    """Nodes `start` to `end` run on `backend`; `inputs` are copied there first."""

    backend: int
    start: int
    end: int = 0
    inputs: list[Tensor] = field(default_factory=list)
    capacity: int = SPLIT_INPUTS


@dataclass(slots=True)
class Schedule:
    """What the allocator walks: leafs and nodes with their backends, copies included.

    `tensors` by index (the graph's, then copies and keep-alive views); `sources` per tensor
    as indices, with copies put in (-1 = empty); `backend_of` per tensor of the graph.
    """

    tensors: list[Tensor]
    sources: list[Sequence[int]]
    backend_of: list[int]
    splits: list[Split]
    leafs: list[tuple[Tensor, int]] = field(default_factory=list)
    nodes: list[tuple[Tensor, int]] = field(default_factory=list)


def schedule(
    graph: Graph,
    backends: Sequence[Backend],
    *,
    n_copies: int = 1,
    op_offload: bool = True,
    pinned: bool = False,
    build: int = builds.OLDEST,
) -> Schedule:
    """Assign, split and copy. `pinned`: keep the assignments made while building the graph.

    `build` of llama.cpp, whose rules apply.
    """
    backend_of = assign(graph, backends, op_offload=op_offload, pins=graph.pins if pinned else {})
    return _Splitter(graph, backends, backend_of, n_copies, build).run()


class _Splitter:
    """Pass 5: cut the node list into runs of one backend and copy what they cannot read."""

    def __init__(
        self,
        graph: Graph,
        backends: Sequence[Backend],
        backend_of: list[int],
        n_copies: int,
        build: int,
    ) -> None:
        self.graph = graph
        self.arrange = [backend.arrange for backend in backends]
        self.n_copies = n_copies
        self.limited = not builds.has(build, builds.SPLITS_UNLIMITED)
        self.inputs_apart = builds.has(build, builds.INPUTS_FROM_LEAFS)
        tensors = list(graph.tensors)
        sources: list[Sequence[int]] = [
            [-1 if s is None else s.index for s in tensor.src] for tensor in tensors
        ]
        self.out = Schedule(tensors, sources, backend_of, [])
        self.copies: dict[tuple[int, int], list[Tensor]] = {}
        self.graph_inputs: list[Tensor] = []
        # what each tensor's bytes lie in: its buffer, or the buffer of its backend
        self.memory = [
            t.root.buffer if t.root.buffer != NO_BUFFER else backend_of[t.index] for t in tensors
        ]

    def run(self) -> Schedule:
        self._split()
        if self.n_copies > 1 and self.inputs_apart:
            for leaf in self.graph.leafs:
                if leaf.flags & FLAG_INPUT:
                    self._multiply_input(leaf, self.out.backend_of[leaf.index])
        self._emit()
        return self.out

    def _split(self) -> None:
        nodes, backend_of = self.graph.nodes, self.out.backend_of
        first = next((i for i, n in enumerate(nodes) if n.op not in VIEW_OPS), len(nodes))
        if first == len(nodes):
            return
        split = Split(backend_of[nodes[first].index], 0)
        self.out.splits.append(split)
        memory, multiplied = self.memory, self.n_copies > 1 and not self.inputs_apart
        for place in range(first, len(nodes)):
            node = nodes[place]
            if node.op in VIEW_OPS:
                continue
            backend = backend_of[node.index]
            if backend == split.backend and not multiplied:
                for source in node.src:
                    if source is None or memory[source.index] == backend:
                        continue
                    if backend_of[source.index] != backend:
                        break
                else:  # most nodes: nothing to copy, no reason for a new split
                    continue
            if backend != split.backend or (split.inputs and self._starts_anew(node, split)):
                split.end = place
                split = Split(backend, place)
                self.out.splits.append(split)
            self._copy_sources(node, split)
        split.end = len(nodes)

    def _starts_anew(self, node: Tensor, split: Split) -> bool:
        """A weight from elsewhere, or an input too many, begins a new split."""
        here = split.backend
        full = self.limited and len(split.inputs) >= split.capacity
        for source in node.src:
            if source is None or self.memory[source.index] == here:
                continue
            if self.out.backend_of[source.index] == here:
                continue
            if source.weight and source.buffer != NO_BUFFER:
                return True
            if full and (source.index, here) not in self.copies:
                return True
        return False

    def _copy_sources(self, node: Tensor, split: Split) -> None:
        here = split.backend
        mine = self.out.sources[node.index]
        for place, source in enumerate(node.src):
            if source is None:
                continue
            index = source.index
            there = self.out.backend_of[index]
            if self.n_copies > 1 and source.flags & FLAG_INPUT and not self.inputs_apart:
                self._multiply_input(source, there)
            if there == here or self.memory[index] == here:
                continue
            if (index, here) not in self.copies:
                flags = FLAG_INPUT | FLAG_OUTPUT if self.n_copies > 1 else 0
                self.copies[index, here] = [
                    self._copy_of(source, flags) for _ in range(self.n_copies)
                ]
                if len(split.inputs) == split.capacity:
                    split.capacity *= 2
                split.inputs.append(source)
            mine[place] = self.copies[index, here][0].index  # type: ignore[index]

    def _multiply_input(self, source: Tensor, there: int) -> None:
        """Pipeline parallelism: every graph input exists once per copy, on its own backend."""
        if (source.index, there) in self.copies:
            return
        both = FLAG_INPUT | FLAG_OUTPUT
        source.flags |= both
        extra = [self._copy_of(source, both) for _ in range(self.n_copies - 1)]
        self.copies[source.index, there] = [source, *extra]
        self.graph_inputs.append(source)

    def _copy_of(self, source: Tensor, flags: int) -> Tensor:
        """A plain tensor with the type and the strides of the source."""
        copy = Tensor("NONE", source.type, source.ne, source.nb)
        copy.flags = flags
        copy.weight = source.root.weight
        return self._add(copy, ())

    def _add(self, tensor: Tensor, sources: Sequence[int]) -> Tensor:
        tensor.index = len(self.out.tensors)
        self.out.tensors.append(tensor)
        self.out.sources.append(sources)
        return tensor

    def _emit(self) -> None:
        """The final order: before each split its keep-alive views and copies."""
        out = self.out
        orders, kept = self._arranged()
        for number, split in enumerate(out.splits):
            for source in split.inputs:
                keep = Tensor("NONE", source.type, source.ne, source.nb, (), source.root)
                self._add(keep, (source.index,))
                out.nodes.append((keep, out.backend_of[source.index]))
                out.nodes.append((self.copies[source.index, split.backend][0], split.backend))
            for node in orders[number]:
                out.nodes.append((node, out.backend_of[node.index]))
                if node.index in kept:
                    self._keep(kept[node.index], split.backend)
        if self.n_copies > 1:
            for source in self.graph_inputs:
                there = out.backend_of[source.index]
                out.leafs.extend((copy, there) for copy in self.copies[source.index, there])
            for split in out.splits:
                for source in split.inputs:
                    copies = self.copies[source.index, split.backend]
                    out.leafs.extend((copy, split.backend) for copy in copies)
        out.leafs.extend((leaf, out.backend_of[leaf.index]) for leaf in self.graph.leafs)

    def _arranged(self) -> tuple[list[list[Tensor]], Kept]:
        """The nodes of each split as its device wants them, and what is kept until which."""
        out, nodes = self.out, self.graph.nodes
        orders = [nodes[split.start : split.end] for split in out.splits]
        kept: Kept = {}
        if not any(self.arrange):
            return orders, kept
        uses = _uses(out.sources)
        for number, split in enumerate(out.splits):
            arrange = self.arrange[split.backend]
            if arrange is None:
                continue
            after = nodes[split.end] if split.end < len(nodes) else None
            for index, held in arrange(orders[number], Reader(out.sources, uses, after)).items():
                kept[index] = list(dict.fromkeys(kept.get(index, []) + held))
        return orders, kept

    def _keep(self, held: Sequence[int], backend: int) -> None:
        """Views that read what must not be given back yet."""
        for first in range(0, len(held), MAX_SOURCES):
            some = held[first : first + MAX_SOURCES]
            like = self.out.tensors[some[0]]
            keep = Tensor("NONE", like.type, like.ne, like.nb, (), like.root)
            self._add(keep, some)
            self.out.nodes.append((keep, backend))


def _uses(sources: Sequence[Sequence[int]]) -> list[int]:
    """How often each tensor is read."""
    uses = [0] * len(sources)
    for each in sources:
        for source in each:
            if source >= 0:
                uses[source] += 1
    return uses
