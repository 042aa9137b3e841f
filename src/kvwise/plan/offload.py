"""The ways to give a device less: from everything on the GPU to nothing, step by step.

A level is a set of changes to a launch; each further level keeps less on the GPUs and is slower.
Experts go first where there are any, because a token reads only a few of them: the matrices of
one layer after the other (`-ncmoe`), and of the layer in between some of its three (`-ot`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kvwise.gguf.model import Model
from kvwise.launch import Launch

Level = Mapping[str, Any]

FIELDS = ("n_gpu_layers", "n_cpu_moe", "override_tensor", "offload_kqv")
"""Fields of a launch that a level may set."""

_EXPERT = re.compile(r"^blk\.(\d+)\.ffn_(up|gate|gate_up|down)_exps\.weight$")
_LEAVING = ("down", "gate", "gate_up", "up")  # the order in which a layer's matrices leave


def levels(model: Model, n_gpu: int, fixed: Collection[str]) -> Sequence[Level]:
    """All levels that respect the fields in `fixed`, fastest first; never empty.

    Without a GPU there is one: everything is on the host.
    """
    if not n_gpu:
        return [{} if "n_gpu_layers" in fixed else {"n_gpu_layers": 0}]
    everything = model.n_layer_all + 1  # -ngl counts the output layer
    steps: list[Level] = [{}]
    if model.n_expert and not {"n_cpu_moe", "override_tensor"} & set(fixed):
        steps += _experts(model)
    if "n_gpu_layers" not in fixed:
        last = steps[-1]
        fewer = range(everything - 1, -1, -1)
        steps = [{"n_gpu_layers": everything, **step} for step in steps]
        steps += [{**last, "n_gpu_layers": count} for count in fewer]
    return steps


def _experts(model: Model) -> list[Level]:
    """One expert matrix more on the host with every step, from the first layer on."""
    parts: dict[int, set[str]] = {}
    for tensor in model.header.tensors:
        match = _EXPERT.match(tensor.name)
        if match and int(match[1]) < model.n_layer_all:
            parts.setdefault(int(match[1]), set()).add(match[2])
    steps: list[Level] = []
    before = 0
    for layer in sorted(parts):
        leaving = [part for part in _LEAVING if part in parts[layer]]
        for count in range(1, len(leaving)):
            names = "|".join(leaving[:count])
            pattern = rf"blk\.{layer}\.ffn_({names})_exps"
            whole: Level = {"n_cpu_moe": before} if before else {}
            steps.append({**whole, "override_tensor": ((pattern, "CPU"),)})
        before = layer + 1
        steps.append({"n_cpu_moe": before})
    return steps


def is_host(buffer: str) -> bool:
    """Whether `-ot` keeps what it hits in the host's memory."""
    return buffer.upper().startswith("CPU")


def is_full(level: Level, model: Model) -> bool:
    """Whether a level keeps every layer, expert and cache on the GPUs."""
    everything = model.n_layer_all + 1
    layers = level.get("n_gpu_layers", everything) >= everything
    moved = level.get("n_cpu_moe") or level.get("override_tensor")
    return layers and not moved and level.get("offload_kqv", True)


def all_on_gpus(launch: Launch, model: Model) -> bool:
    """The same of a launch, with what the user fixed."""
    kept = launch.n_gpu_layers < 0 or launch.n_gpu_layers > model.n_layer_all
    moved = launch.n_cpu_moe or any(is_host(buffer) for _, buffer in launch.override_tensor)
    return kept and not moved and launch.offload_kqv
