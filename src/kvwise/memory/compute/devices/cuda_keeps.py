"""What newer CUDA backends keep alive, and move together, so that they can run it in one kernel.

Before a split is allocated the backend looks for three shapes in it: the weighted sum of the
chosen experts, the choice of experts, and a shared expert beside the routed ones. What it finds
is not given back before its last node, which costs bytes.
Source: ggml/src/ggml-cuda/ggml-cuda.cu (ggml_backend_cuda_graph_optimize and what it calls),
ggml/src/ggml.c (ggml_can_fuse_subgraph_ext), b11549.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.gguf.types import F32
from kvwise.memory.compute.backend import Kept, Reader
from kvwise.memory.compute.graph import FLAG_OUTPUT, Tensor, is_contiguous

MOST_EXPERTS = 15
"""Experts per token up to which the sum is one kernel (MOE_WEIGHTED_REDUCTION_MAX_EXPERTS)."""

_GLUS = frozenset({"GLU:SWIGLU", "GLU:GEGLU", "GLU:SWIGLU_OAI", "GLU:SWIGLU_CLAMP"})
_GATES = frozenset({"UNARY:SIGMOID", "UNARY:SOFTPLUS", "SOFT_MAX"})


def kept(nodes: list[Tensor], reader: Reader) -> Kept:
    """Put the nodes of a split into their order (in place); what to keep until which node."""
    return _Look(nodes, reader).run()


class _Look:
    def __init__(self, nodes: list[Tensor], reader: Reader) -> None:
        self.nodes = nodes
        self.reader = reader
        self.found: Kept = {}

    def run(self) -> Kept:
        self._shared_experts()
        place = 0
        while place < len(self.nodes):
            place += max(1, self._weighted_sum(place) or self._choice(place))
        return self.found

    def _keep(self, index: int, until: Tensor) -> None:
        held = self.found.setdefault(until.index, [])
        if index >= 0 and index not in held:
            held.append(index)

    def _sources(self, node: Tensor) -> Sequence[int]:
        return self.reader.sources[node.index]

    def _closed(self, places: Sequence[int], outputs: Sequence[int]) -> bool:
        """Nobody else reads the nodes at `places`, `outputs` aside."""
        nodes = [self.nodes[place] for place in places]
        inside = {node.index for node in nodes}
        for at, place in enumerate(places):
            node = nodes[at]
            if place in outputs:
                continue
            if node.flags & FLAG_OUTPUT:
                return False
            uses = sum(
                source == node.index for later in nodes[at + 1 :] for source in self._sources(later)
            )
            if uses != self.reader.uses[node.index]:
                return False
            if node.base is not None and node.base.index not in inside and not node.base.weight:
                return False
        return True

    # --- the weighted sum of the chosen experts ---

    def _weighted_sum(self, start: int) -> int:
        """Nodes of the sum that begins here, 0 if none does."""
        nodes = self.nodes
        first = nodes[start]
        if first.op != "MUL" or not _plain(first):
            return 0
        weighted, pair, scale, products = first, _halves(first), None, 1
        if start + 1 < len(nodes):
            second = nodes[start + 1]
            outer = _halves(second) if second.op == "MUL" and _plain(second) else None
            if outer and pair and outer[0] is first:
                weighted, scale, products = second, pair[1], 2
                pair = (pair[0], outer[1])
        if pair is None:
            return 0
        count = weighted.ne[1]
        length = 2 * count + products - 1
        if not 2 <= count <= MOST_EXPERTS or start + length > len(nodes):
            return 0
        last = self._adds_up(weighted, nodes[start + products : start + length])
        places = range(start, start + length)
        if last is None or not self._closed(places, (places[-1],)):
            return 0
        for tensor in (*pair, scale):
            if tensor is not None:
                self._keep(self._read(weighted, first, tensor), last)
        return length

    def _read(self, weighted: Tensor, first: Tensor, tensor: Tensor) -> int:
        """The index under which the products read a tensor: a copy's, if it was copied here."""
        for node in (weighted, first):
            for place, source in enumerate(node.src):
                if source is tensor:
                    return self._sources(node)[place]
        return tensor.index

    @staticmethod
    def _adds_up(weighted: Tensor, nodes: Sequence[Tensor]) -> Tensor | None:
        """The last of the additions, if these are a view per expert and their sum."""
        count = weighted.ne[1]
        shape = (weighted.ne[0], weighted.ne[2] * weighted.ne[3], 1, 1)
        views: list[Tensor] = []
        last: Tensor | None = None
        added = 0
        for node in nodes:
            if node.op == "VIEW":
                if (
                    len(views) >= count
                    or node.src[0] is not weighted
                    or node.ne != shape
                    or node.nb[1] != weighted.nb[2]
                    or node.offset != len(views) * weighted.nb[1]
                ):
                    return None
                views.append(node)
                continue
            if node.op != "ADD" or len(views) < 2 or added + 1 >= len(views):
                return None
            left = views[0] if last is None else last
            if node.src[0] is not left or node.src[1] is not views[added + 1]:
                return None
            last = node
            added += 1
        if len(views) != count or added != count - 1 or last is None:
            return None
        return last if is_contiguous(last) and last.ne == shape else None

    # --- the choice of experts ---

    def _choice(self, start: int) -> int:
        """Nodes of the choice that begins here, 0 if none does."""
        nodes = self.nodes
        chosen = self._chosen(start)
        if not chosen:
            return 0
        end = self._normed(chosen + 2)
        if self._follow(end, "SCALE"):
            end += 1
        places = range(start, end)
        if not self._closed(places, (chosen, end - 1)):
            return 0
        if not self._has_kernel(nodes[start], nodes[chosen], nodes[end - 1]):
            return 0
        self._keep_all(start, end)
        return end - start

    def _chosen(self, start: int) -> int:
        """Place of the chosen experts' numbers, which their scores follow; 0 if it is no choice."""
        nodes = self.nodes
        gate = nodes[start]
        at = start + (gate.op == "UNARY:SOFTPLUS")  # its root comes next
        if gate.op not in _GATES or (at > start and not self._follow(at, "SQRT")):
            return 0
        biased = at + 2 < len(nodes) and nodes[at + 2].op == "ADD"
        ranked = nodes[at + 2] if biased else nodes[at]
        view = at + 3 + biased
        if view + 1 >= len(nodes) or (biased and ranked.src[0] is not nodes[at]):
            return 0
        order, rows = nodes[view - 1], nodes[view + 1]
        fits = (
            self._follow(at + 1, "RESHAPE")
            and order.op == "ARGSORT"
            and order.src[0] is ranked
            and self._follow(view, "VIEW")
            and rows.op == "GET_ROWS"
            and rows.src[:2] == (nodes[at + 1], nodes[view])
        )
        return view if fits else 0

    def _normed(self, at: int) -> int:
        """Past the division by the sum of what was chosen, if it follows."""
        for step, op in enumerate(("RESHAPE", "SUM_ROWS", "CLAMP")):
            if not self._follow(at + step, op):
                return at
        nodes = self.nodes
        if at + 4 >= len(nodes):
            return at
        divided = nodes[at + 3]
        if (
            divided.op != "DIV"
            or divided.src[1] is not nodes[at + 2]
            or divided.src[0] is not nodes[at]
        ):
            return at
        return at + 5 if self._follow(at + 4, "RESHAPE") else at

    def _follow(self, at: int, op: str) -> bool:
        """The node at `at` is `op` of the node before."""
        nodes = self.nodes
        return at < len(nodes) and nodes[at].op == op and nodes[at].src[0] is nodes[at - 1]

    @staticmethod
    def _has_kernel(gate: Tensor, chosen: Tensor, weights: Tensor) -> bool:
        experts = chosen.nb[1] // chosen.nb[0]
        if (experts & (experts - 1) or experts > 512) and experts not in (288, 576):
            return False
        logits = gate.src[0]
        if logits is None or not is_contiguous(logits) or not is_contiguous(weights):
            return False
        return gate.op != "SOFT_MAX" or all(source is None for source in gate.src[1:])

    def _keep_all(self, start: int, end: int) -> None:
        """Nodes and what they read, until the node after them is through."""
        until = self.nodes[end] if end < len(self.nodes) else self.reader.after
        if until is None:
            return
        for node in self.nodes[start:end]:
            self._keep(node.index, until)
            for source in self._sources(node):
                self._keep(source, until)

    # --- a shared expert beside the routed ones ---

    def _shared_experts(self) -> None:
        nodes = self.nodes
        place = 0
        while place + 5 < len(nodes):
            if nodes[place].op == "MUL_MAT_ID" and self._regroup(place):
                place += 5
            place += 1

    def _regroup(self, start: int) -> bool:
        """Move the shared expert's three nodes next to the routed ones'."""
        nodes = self.nodes
        for at in range(start + 3, len(nodes) - 2):
            if nodes[at].op == nodes[at + 1].op == "MUL_MAT_ID":
                return False
            if nodes[at].op == "MUL_MAT" and self._twins(start, at):
                moved = nodes[at : at + 3]
                nodes[start + 3 : at + 3] = [*moved, *nodes[start + 3 : at]]
                up = nodes[start + 2].src[1]
                if up is not None:
                    for source in self._sources(up)[1:3]:
                        self._keep(source, nodes[start + 5])
                return True
        return False

    def _twins(self, routed: int, shared: int) -> bool:
        nodes = self.nodes
        ours, theirs = nodes[routed : routed + 3], nodes[shared : shared + 3]
        if ours[1].op != "MUL_MAT_ID" or theirs[1].op != "MUL_MAT":
            return False
        if ours[2].op not in _GLUS or theirs[2].op != ours[2].op:
            return False
        places = (routed, routed + 1, routed + 2, shared, shared + 1, shared + 2)
        if not self._closed(places, (routed + 2, shared + 2)):
            return False
        if not self._gated(ours) or not self._gated(theirs):
            return False
        up, shared_up = ours[2].src[1], theirs[2].src[1]
        if up is None or shared_up is None:
            return False
        return self._same_weights(up, shared_up) and self._same_input(up, shared_up)

    def _gated(self, three: Sequence[Tensor]) -> bool:
        """Two products of the same input with weights alike, and their gated unit."""
        one, two, made = three
        if {id(s) for s in made.src if s is not None} != {id(one), id(two)}:
            return False
        a, b = one.src[0], two.src[0]
        if a is None or b is None or a.type is not b.type or a.ne != b.ne or a.nb != b.nb:
            return False
        return list(self._sources(one)[1:]) == list(self._sources(two)[1:])

    @staticmethod
    def _same_weights(up: Tensor, shared_up: Tensor) -> bool:
        ours, theirs = up.src[0], shared_up.src[0]
        if ours is None or theirs is None or ours.buffer < 0 or ours.type.block == 1:
            return False
        return (
            ours.type is theirs.type
            and ours.ne[:2] == theirs.ne[:2]
            and ours.nb[1] == theirs.nb[1]
            and ours.ne[3] == 1
            and theirs.ne[2:] == (1, 1)
            and theirs.op == "NONE"
        )

    def _same_input(self, up: Tensor, shared_up: Tensor) -> bool:
        x, plain = up.src[1], shared_up.src[1]
        if x is None or plain is None or x.op != "RESHAPE" or x.ne[1] != 1 or x.ne[3] != 1:
            return False
        if self._sources(x)[0] != self._sources(shared_up)[1]:
            return False
        return is_contiguous(x) and is_contiguous(plain) and plain.ne[2:] == (1, 1)


def _plain(tensor: Tensor) -> bool:
    return tensor.type is F32 and is_contiguous(tensor)


def _halves(product: Tensor) -> tuple[Tensor, Tensor] | None:
    """(what the experts made, one number per expert and token) of a product of the two."""
    a, b = product.src[:2]
    for full, weights in ((a, b), (b, a)):
        if full is None or weights is None or not _plain(full) or not _plain(weights):
            continue
        if full.ne == product.ne and weights.ne == (1, *product.ne[1:]):
            return full, weights
    return None
