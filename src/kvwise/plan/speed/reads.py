"""Bytes of weights that one token reads, layer by layer: a quick figure for comparing placements.

`work.py` counts the same exactly, tensor by tensor, for a launch that was chosen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvwise.gguf.header import Tensor
from kvwise.gguf.model import Model
from kvwise.launch import Launch

EXPERTS = re.compile(r"_(?:up|gate|down|gate_up)_(?:ch)?exps\.")
"""Tensors that hold all experts of a layer; a token uses a few."""

ONE_ROW_PER_TOKEN = ("token_embd.", "position_embd.", "token_types.", "per_layer_token_embd.")
"""Tables from which a token reads its own row only."""

LAYER = re.compile(r"^blk\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes that one token reads: per layer without experts, of its experts, and of the rest."""

    dense: tuple[int, ...]
    experts: tuple[int, ...]
    output: int


def share_used(model: Model, tensor: Tensor) -> float:
    """The share of a tensor that one token reads: its experts', or all of it."""
    if not model.n_expert or not EXPERTS.search(tensor.name):
        return 1.0
    return model.n_expert_used / model.n_expert


def weights_read(model: Model) -> Weights:
    """What a token reads of each layer, from the tensor table."""
    dense, experts, output = [0] * model.n_layer_all, [0] * model.n_layer_all, 0
    for tensor in model.header.tensors:
        match = LAYER.match(tensor.name)
        layer = int(match[1]) if match else -1
        if 0 <= layer < model.n_layer_all:
            if EXPERTS.search(tensor.name):
                experts[layer] += round(tensor.nbytes * share_used(model, tensor))
            else:
                dense[layer] += tensor.nbytes
        elif not tensor.name.startswith(ONE_ROW_PER_TOKEN):
            output += tensor.nbytes
        elif tensor.name == "token_embd.weight" and model.tied_embeddings:
            output += tensor.nbytes  # read whole, as the output matrix
    return Weights(tuple(dense), tuple(experts), output)


def host_reads(weights: Weights, launch: Launch, n_gpu: int) -> int:
    """Bytes of weights that one token reads from the host's memory."""
    everything = len(weights.dense) + 1
    if not n_gpu:
        return sum(weights.dense) + sum(weights.experts) + weights.output
    on_gpu = launch.n_gpu_layers if launch.n_gpu_layers >= 0 else everything
    first = max(everything - on_gpu, 0)
    read = sum(weights.dense[:first]) + sum(weights.experts[: max(first, launch.n_cpu_moe)])
    return read + (weights.output if on_gpu == 0 else 0)
