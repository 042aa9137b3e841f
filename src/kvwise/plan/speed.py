"""How fast a launch can be at most: bytes read per token over bandwidth (the roofline).

Generating one token reads every weight that takes part once, and the cache up to its depth.
The result is a bound, not a promise; nothing is said where a bandwidth is not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger

_EXPERTS = re.compile(r"_(?:up|gate|down|gate_up)_(?:ch)?exps\.")
_LAYER = re.compile(r"^blk\.(\d+)\.")
_ONE_ROW_PER_TOKEN = ("token_embd.", "position_embd.", "token_types.", "per_layer_token_embd.")


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes that one token reads: per layer without experts, of its experts, and of the rest."""

    dense: tuple[int, ...]
    experts: tuple[int, ...]
    output: int


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second with `depth` tokens in the context; None = not known.

    `basis` says where the figure comes from; `read_bytes_...` is what one token reads.
    """

    decode_tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    basis: str = "unknown"
    read_bytes_gpu: int = 0
    read_bytes_host: int = 0
    depth: int = 0


def weights_read(model: Model) -> Weights:
    """What a token reads of each layer, from the tensor table."""
    dense, experts, output = [0] * model.n_layer_all, [0] * model.n_layer_all, 0
    share = model.n_expert_used / model.n_expert if model.n_expert else 1.0
    for tensor in model.header.tensors:
        match = _LAYER.match(tensor.name)
        layer = int(match[1]) if match else -1
        if 0 <= layer < model.n_layer_all:
            if _EXPERTS.search(tensor.name):
                experts[layer] += round(tensor.nbytes * share)
            else:
                dense[layer] += tensor.nbytes
        elif not tensor.name.startswith(_ONE_ROW_PER_TOKEN):
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


def estimate(weights: Weights, ledger: Ledger, depth: int) -> Speed:
    """The bound for generating at `depth` tokens of context."""
    launch = ledger.launch
    host = host_reads(weights, launch, len(ledger.devices))
    everything = sum(weights.dense) + sum(weights.experts) + weights.output
    share = min(1.0, depth / ledger.context.n_ctx) if ledger.context.n_ctx else 0.0
    caches = [round(line.context_bytes * share) for line in ledger.lines if not line.host]
    host_cache = sum(round(line.context_bytes * share) for line in ledger.lines if line.host)
    gpu = everything - host + sum(caches)
    host += host_cache
    speeds = [device.bandwidth_bytes_per_s for device in ledger.devices]
    known = [speed for speed in speeds if speed]
    generates = ledger.model.causal_attn
    if host or not generates or not known or len(known) != len(speeds):
        return Speed(read_bytes_gpu=gpu, read_bytes_host=host, depth=depth)
    on_gpu = [line.weights_bytes for line in ledger.lines if not line.host]
    parts = [gpu * weight / max(1, sum(on_gpu)) for weight in on_gpu]
    seconds = sum(part / speed for part, speed in zip(parts, known, strict=False))
    per_s = round(1 / seconds, 1) if seconds else None
    return Speed(per_s, None, "roofline", gpu, host, depth)
