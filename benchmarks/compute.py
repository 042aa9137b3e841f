"""Milliseconds for the compute buffers of one setting: built anew, and remembered.

python benchmarks/compute.py [MODEL ...]      (zoo JSON or GGUF; default: three of the zoo)
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

from kvwise.arch import describe
from kvwise.gguf.open import open_header
from kvwise.memory.cache import caches
from kvwise.memory.compute import compute
from kvwise.memory.compute.reserve import build, job, sizes
from kvwise.memory.context import resolve
from kvwise.memory.placement import place, select
from kvwise.memory.zoo_config import read_config

ZOO = Path(__file__).parents[1] / "tests" / "zoo" / "models"
DEFAULT = [str(ZOO / f"{name}.json.gz") for name in ("llama-2-7b", "qwen3-8b", "qwen3-30b-a3b")]
ROUNDS = 20


def measure(path: str) -> None:
    model = describe(open_header(path))
    zoo = read_config({"device": "cuda"})
    devices = select(zoo.launch, zoo.devices)
    placement = place(model, zoo.launch, devices)
    parts: dict[str, list[float]] = {"build": [], "simulate": [], "remembered": []}
    nodes = 0
    for extra in range(ROUNDS):
        launch = replace(zoo.launch, n_ctx=8192 + 256 * extra)
        context = resolve(model, launch, placement, devices)
        kept = caches(model, context, placement, devices)
        work = job(model, context, placement, kept, launch, devices)
        start = time.perf_counter()
        graph = build(work)
        built = time.perf_counter()
        sizes(work, graph, pinned=True)
        done = time.perf_counter()
        compute(model, context, placement, kept, launch, devices)
        again = time.perf_counter()
        compute(model, context, placement, kept, launch, devices)
        end = time.perf_counter()
        nodes = len(graph.nodes)
        for name, span in zip(parts, (built - start, done - built, end - again), strict=True):
            parts[name].append(1000 * span)
    shown = ", ".join(f"{name} {statistics.median(times):.3f} ms" for name, times in parts.items())
    print(f"{model.name or Path(path).name}: {model.n_layer} layers, {nodes} nodes: {shown}")


if __name__ == "__main__":
    for name in sys.argv[1:] or DEFAULT:
        measure(name)
