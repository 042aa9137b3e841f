"""The ways to give a device less: from everything on the GPU to nothing, step by step.

A level is a set of changes to a launch; each further level keeps less on the GPUs and is slower.
Experts go first where there are any, because a token reads only a few of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kvwise.gguf.model import Model

Level = dict[str, Any]


def levels(model: Model, n_gpu: int, fixed: Collection[str]) -> Sequence[Level]:
    """All levels that respect the fields in `fixed`, fastest first; never empty.

    Without a GPU there is one: everything is on the host.
    """
    if not n_gpu:
        return [{} if "n_gpu_layers" in fixed else {"n_gpu_layers": 0}]
    everything = model.n_layer_all + 1  # -ngl counts the output layer
    steps: list[Level] = [{}]
    if model.n_expert and not {"n_cpu_moe", "override_tensor"} & set(fixed):
        steps += [{"n_cpu_moe": count} for count in range(1, model.n_layer_all + 1)]
    if "n_gpu_layers" not in fixed:
        last = steps[-1]
        fewer = range(everything - 1, -1, -1)
        steps = [{"n_gpu_layers": everything} | step for step in steps]
        steps += [last | {"n_gpu_layers": count} for count in fewer]
    return steps


def is_full(level: Level, model: Model) -> bool:
    """Whether a level keeps every layer, expert and cache on the GPUs."""
    everything = model.n_layer_all + 1
    layers = level.get("n_gpu_layers", everything) >= everything
    return layers and not level.get("n_cpu_moe") and level.get("offload_kqv", True)
