"""Walk a scheduled graph: what it asks of the allocator, and how large each buffer becomes.

Source: ggml/src/ggml-alloc.c (ggml_gallocr_reserve_n, ggml_gallocr_alloc_graph_impl,
ggml_gallocr_allocate_node), b10605. Bytes are never touched: only offsets are handed out.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.memory.compute.backend import Backend
from kvwise.memory.compute.graph import FLAG_INPUT, FLAG_OUTPUT, Tensor
from kvwise.memory.compute.schedule import Schedule
from kvwise.memory.compute.tape import Tape

IN_PLACE = frozenset(
    {
        "FILL", "SCALE", "DIAG_MASK_ZERO", "DIAG_MASK_INF", "ADD", "ADD_ID", "ADD1", "SUB", "MUL",
        "DIV", "SQR", "SQRT", "LOG", "ROPE", "ROPE_BACK", "SILU_BACK", "RMS_NORM", "RMS_NORM_BACK",
        "CLAMP", "SOFT_MAX", "SOFT_MAX_BACK",
    }
)  # fmt: skip
"""Operations whose result may take over a source's bytes (ggml_op_can_inplace), beside UNARY."""

_FREE, _HELD, _ELSEWHERE = 0, 1, 2


def in_place(op: str) -> bool:
    """Whether the operation may write over one of its sources."""
    return op in IN_PLACE or op.startswith("UNARY")


class _Walk:
    """State of one walk: per tensor uses left, views left, and the slot it lies in."""

    __slots__ = ("backends", "children", "home", "size", "slot", "state", "tape", "views")

    def __init__(self, tensors: Sequence[Tensor], backends: Sequence[Backend]) -> None:
        count = len(tensors)
        self.backends = backends
        self.tape = Tape(tuple(backend.alignment for backend in backends))
        self.children = [0] * count
        self.views = [0] * count
        self.home = [0] * count
        self.slot = [0] * count
        self.size = [0] * count
        # weights, caches and views never own bytes of a compute buffer
        self.state = [_ELSEWHERE if t.buffer >= 0 or t.base is not None else _FREE for t in tensors]

    def allocate(
        self, tensor: Tensor, sources: Sequence[int], all_: Sequence[Tensor], b: int
    ) -> None:
        """Give a tensor that is not held yet its place on backend `b`."""
        index = tensor.index
        self.state[index] = _HELD
        size = self.backends[b].alloc_size(tensor, [all_[s] if s >= 0 else None for s in sources])
        self.size[index] = size
        if tensor.type.block > 1 and not tensor.weight:
            self.tape.typed = True
        if in_place(tensor.op) and self._take_over(tensor, sources, all_, size):
            return
        self.home[index] = b
        self.slot[index] = self.tape.alloc(b, size)

    def _take_over(
        self, tensor: Tensor, sources: Sequence[int], all_: Sequence[Tensor], size: int
    ) -> bool:
        """Take the bytes of the first source that nobody else needs and that looks the same."""
        state, children, views = self.state, self.children, self.views
        for source in sources:
            if source < 0 or state[source] != _HELD:
                continue
            if children[source] != 1 or views[source] != 0:
                continue
            other = all_[source]
            if (
                other.flags & FLAG_OUTPUT
                or other.ne != tensor.ne
                or other.nb != tensor.nb
                or other.type is not tensor.type
            ):
                continue
            index, home, slot = tensor.index, self.home[source], self.slot[source]
            self.home[index], self.slot[index] = home, slot
            state[source] = _FREE
            if self.size[source] != size:
                self.tape.resize(slot, home, size)
            return True
        return False

    def release(self, index: int, tensor: Tensor) -> None:
        """Give a tensor's bytes back, unless it is an output of the graph."""
        if not tensor.flags & FLAG_OUTPUT:
            self.state[index] = _FREE
            self.tape.free(self.slot[index])


def peaks(schedule: Schedule, backends: Sequence[Backend]) -> list[int]:
    """Size in bytes of each backend's compute buffer for one scheduled graph."""
    return list(record(schedule, backends).play(0).peaks)


def record(schedule: Schedule, backends: Sequence[Backend]) -> Tape:
    """All that a scheduled graph asks of the allocators of its backends."""
    tensors, sources = schedule.tensors, schedule.sources
    walk = _Walk(tensors, backends)
    state = walk.state
    for tensor, backend in schedule.leafs:
        if state[tensor.index] == _FREE:
            walk.allocate(tensor, (), tensors, backend)
    _count(walk, schedule)
    for node, backend in schedule.nodes:
        index = node.index
        mine = sources[index]
        for source in mine:
            if source >= 0 and state[source] == _FREE:
                walk.allocate(tensors[source], sources[source], tensors, backend)
        if state[index] == _FREE:
            walk.allocate(node, mine, tensors, backend)
        for source in mine:
            if source >= 0:
                _use(walk, tensors, source)
    return walk.tape


def _count(walk: _Walk, schedule: Schedule) -> None:
    """Count uses and views; inputs that are not leafs get their place now."""
    tensors, sources = schedule.tensors, schedule.sources
    state, children, views = walk.state, walk.children, walk.views
    for node, backend in schedule.nodes:
        index = node.index
        if node.base is not None and node.op != "NONE":
            views[node.base.index] += 1
        if node.flags & FLAG_INPUT and state[index] == _FREE:
            walk.allocate(node, sources[index], tensors, backend)
        for source in sources[index]:
            if source < 0:
                continue
            children[source] += 1
            if tensors[source].flags & FLAG_INPUT and state[source] == _FREE:
                walk.allocate(tensors[source], sources[source], tensors, backend)


def _use(walk: _Walk, tensors: Sequence[Tensor], source: int) -> None:
    """One use of `source` is over: give back what nobody needs any more."""
    state, children, views = walk.state, walk.children, walk.views
    left = children[source] = children[source] - 1
    if left or views[source]:
        return
    tensor = tensors[source]
    base = tensor.base
    if base is not None:
        root = base.index
        views[root] -= 1
        if not views[root] and not children[root] and state[root] == _HELD:
            walk.release(root, base)
    elif state[source] == _HELD:
        walk.release(source, tensor)
