"""Which device each layer, its cache and the output layer go to.

Device numbers: 0..n-1 are the GPUs in order, `HOST` is the machine's own memory.
Source: src/llama-model.cpp load_tensors (get_layer_buft_list, splits), b10605.
"""

from __future__ import annotations

from dataclasses import dataclass

HOST = -1


@dataclass(frozen=True, slots=True)
class Placement:
    """Device number per layer (length n_layer_all), and of the output layer."""

    layers: tuple[int, ...]
    output: int
    n_gpu: int
    gpu_layers: int
    pipeline_parallel: bool = False
    sched_copies: int = 1

    def of(self, layer: int) -> int:
        return self.layers[layer]
