"""The end of a graph: final norm, logits, pooling.

Source: src/llama-graph.cpp build_pooling, build_dense_out; src/llama-model.cpp build_graph, b10605.
"""

from __future__ import annotations

from kvwise import builds
from kvwise.gguf.types import F32, I32
from kvwise.memory.compute import ops
from kvwise.memory.compute.builder import Builder, Unbuildable
from kvwise.memory.compute.graph import Tensor
from kvwise.memory.compute.pieces.linear import scaled
from kvwise.memory.compute.pieces.norm import Norm, norm

MEAN = 1
"""`classifier.pooling_type` of the mean."""


def final_norm(b: Builder, x: Tensor, *, kind: Norm = "rms", name: str = "output_norm") -> Tensor:
    """The last norm, handed out as embeddings."""
    cur = norm(b, x, b.top(name + ".weight"), b.top(name + ".bias"), kind=kind)
    b.embd = cur
    return cur


def logits(b: Builder, x: Tensor, *, bias: bool = True) -> Tensor:
    """Product with the output matrix, or with the token embeddings when they are tied."""
    cur = ops.mul_mat(output_matrix(b), x)
    cur = scaled(cur, b.top("output.scale"))
    extra = b.top("output.bias") if bias else None
    return cur if extra is None else ops.add(cur, extra)


def output_matrix(b: Builder) -> Tensor:
    """`output.weight`, else a second `token_embd.weight` where the output layer is."""
    own = b.top("output.weight")
    return b.tied_output() if own is None else own


def filled(b: Builder, cur: Tensor) -> Tensor:
    """Logits of an output smaller than the vocabulary, filled up with minus infinity."""
    table, like = b.top("token_embd.weight"), b.top("output_norm.weight")
    missing = 0 if table is None else table.ne[1] - cur.ne[0]
    if missing <= 0 or like is None:
        return cur
    filler = ops.scale(ops.view_1d(like, 1))
    return ops.concat(ops.repeat(filler, missing, cur.ne[1]), cur, 0)


def hand_out(b: Builder, x: Tensor) -> None:
    """`x` are the logits: the end of a graph."""
    b.scores = x
    b.outputs.append(x)
    b.expand(x)


def pooling(b: Builder) -> None:
    """One vector per sequence, when embeddings are asked for."""
    if not b.context.embeddings:
        return
    if b.embd is None:
        raise Unbuildable("nothing to pool")
    kind = b.context.pooling
    cur = b.embd
    if kind == "mean" or (kind == "rank" and _ranks_by_mean(b)):
        weights = b.input("mean", F32, b.n_tokens, b.n_seqs)
        cur = ops.mul_mat(ops.cont(ops.transpose(cur)), weights)
    elif kind in ("cls", "last", "rank"):
        cur = ops.get_rows(cur, b.input("cls", I32, b.n_seqs))
    if kind == "rank":
        cur = _classify(b, cur)
    b.outputs.append(cur)
    b.expand(cur)
    _dense(b, cur)


def _ranks_by_mean(b: Builder) -> bool:
    """Rerankers that average the tokens before the classifier, as ModernBERT's do."""
    modern = b.model.architecture == "modern-bert"
    said = b.model.header.get(".classifier.pooling_type")
    if said is None or not b.since(builds.CLASSIFIER_POOLING):
        return modern
    return bool(said == MEAN)


def _classify(b: Builder, cur: Tensor) -> Tensor:
    modern = b.model.architecture == "modern-bert"
    head = b.top("cls.weight")
    if head is not None:
        cur = ops.mul_mat(head, cur)
        bias = b.top("cls.bias")
        cur = cur if bias is None else ops.add(cur, bias)
        cur = ops.unary("GELU" if modern else "TANH", cur)
        weight = b.top("cls.norm.weight")
        if weight is not None:
            cur = norm(b, cur, weight, kind="layer")
    out = b.top("cls.output.weight")
    if out is not None:
        cur = ops.mul_mat(out, cur)
        bias = b.top("cls.output.bias")
        cur = cur if bias is None else ops.add(cur, bias)
    return ops.soft_max(cur) if b.model.architecture in ("qwen3", "qwen3vl") else cur


def _dense(b: Builder, cur: Tensor) -> None:
    """The two dense layers of sentence-transformers models."""
    second, third = b.top("dense_2.weight"), b.top("dense_3.weight")
    bias = b.top("dense_2.bias")
    if second is None and third is None and bias is None:
        return
    if second is not None:
        cur = ops.mul_mat(second, cur)
    if bias is not None:
        cur = ops.add(cur, bias)
    if third is not None:
        cur = ops.mul_mat(third, cur)
    b.outputs.append(cur)
    b.expand(cur)
