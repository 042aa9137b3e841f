"""What draft heads share: rows of tokens, and scores of few or all of the target's tokens.

Source: src/models/eagle3.cpp and dflash.cpp, b10605.
"""

from __future__ import annotations

from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces.linear import scaled as with_scale

WORDS, SCORES = "token_embd.weight", "output.weight"


def token_rows(b: Builder) -> Tensor:
    """Embeddings of the drafted tokens, without the twin that other models have."""
    return ops.get_rows(found(b.shared(WORDS)), b.input("tokens", I32, b.n_tokens))


def found(weight: Tensor | None) -> Tensor:
    """A weight that is the draft's or its target's. Raises Unbuildable where it is neither's, or
    on a device that the draft does not have."""
    if weight is None:
        raise Unbuildable("the target's weights are out of reach")
    return weight


def leave_encoder(b: Builder) -> None:
    """The encoder has a graph of its own, which is smaller."""
    for prefix in ("fc.", "enc."):
        b.leave_all(prefix)


def product(b: Builder, x: Tensor, *, scaled: bool) -> Tensor:
    """With the output matrix, the target's if the draft has none."""
    cur = ops.mul_mat(found(b.shared(SCORES)), x)
    return with_scale(cur, b.shared("output.scale")) if scaled else cur


def scores(b: Builder, x: Tensor, *, scaled: bool) -> Tensor:
    """Of all the target's tokens."""
    return scattered(b, product(b, x, scaled=scaled))


def scattered(b: Builder, x: Tensor) -> Tensor:
    """Scores of the draft's vocabulary in the rows of the target's, where they differ."""
    table = b.top("d2t")
    if table is None:
        return x
    few, rows, many = x.ne[0], x.ne[1], b.model.n_vocab
    empty = ops.fill(ops.new("NONE", F32, (1, many, rows, 1)))
    cur = ops.set_rows(empty, ops.reshape(x, 1, few, rows), ops.reshape(table, few, 1, 1))
    return ops.reshape(cur, many, rows)
