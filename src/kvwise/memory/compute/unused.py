"""Loaded weights that a graph does not use: a reason not to call it exact.

A few weights are loaded and used by no prompt graph of llama.cpp either; they are named here.
"""

from __future__ import annotations

import re

from kvwise.gguf.model import Model
from kvwise.memory.compute.graph import Graph
from kvwise.memory.loader import EMBEDDINGS, looks_up_output
from kvwise.memory.weights import Weights

_BESIDE = re.compile(
    r"^(cls|dense_2|dense_3|rope_freqs|rope_factors)|\.(nextn|visexp_)|attn_rot_embd|input_scale$"
)
"""Heads of embedding models, RoPE factors for another context, MTP and vision parts."""


def unused(
    model: Model,
    weights: Weights,
    graph: Graph,
    *,
    mtp: bool = False,
    logits: bool = False,
    own: bool = False,
) -> list[str]:
    """Names of loaded weights that the graph neither uses nor leaves as llama.cpp's own does.

    `mtp`: the graph is that of the first MTP layer, which leaves all others alone; `logits`: an
    output matrix must be used, too; `own`: the graph is the architecture's own, which says by
    itself whether the bias and the scale beside a matrix take part: llama.cpp loads both for any
    architecture, and several graphs pass them over.
    """
    known = graph.weights
    over = [
        name
        for name in weights.where
        if name not in known
        and not name.startswith(graph.left)
        and not (own and _stands_beside(name, graph))
    ]
    if mtp:
        start = f"blk.{model.n_layer}."
        return [name for name in over if name.startswith(start)]
    trunk = model.n_layer
    left = []
    for name in over:
        if _BESIDE.search(name):
            continue
        if name == EMBEDDINGS and looks_up_output(model):
            continue
        tied = not logits or name not in model.header.by_name
        if name == "output.weight" and "token_embd.weight" in known and tied:
            continue
        match = re.match(r"^blk\.(\d+)\.", name)
        if match and int(match[1]) >= trunk:
            continue
        left.append(name)
    return left


def _stands_beside(name: str, graph: Graph) -> bool:
    """A bias or a scale whose matrix is used."""
    stem, _, end = name.rpartition(".")
    matrix = f"{stem}.weight"
    return end in {"bias", "scale"} and (matrix in graph.weights or matrix.startswith(graph.left))
