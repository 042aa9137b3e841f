"""How long a table of many models, GPUs and cache types takes, and how that grows.

    python benchmarks/table.py [MODELS GPUS]

Each line is a table from nothing: the longest context of every cell, and six contexts each. The
models are headers of the zoo, the GPUs those of the catalogue from small to large. A further GPU
of a kind costs only the way to its edge; a further model or pair of types costs its graphs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kvwise.catalogue import device_of, gpus
from kvwise.device import Device
from kvwise.launch import Launch
from kvwise.opening import open_model
from kvwise.plan.table import Entry, make_table, pairs_of, usual_contexts
from kvwise.plan.taken import Machine

ZOO = Path(__file__).parents[1] / "tests/zoo/models"
MODELS = (
    "qwen3-8b", "llama-3.1-8b", "gemma-3-4b", "mistral-7b-v0.3", "qwen2.5-7b", "phi-4-mini",
    "gpt-oss-20b", "qwen3-30b-a3b", "gemma-3-27b", "qwen3-32b", "deepseek-r1-distill-qwen-7b",
    "llama-3.2-1b", "qwen3-0.6b", "glm-4-9b-0414", "granite-3.3-8b", "gemma-2-9b",
    "deepseek-v2-lite", "falcon-h1-1.5b", "llama-3.3-70b", "mixtral-8x7b",
)  # fmt: skip
GROWTH = ((1, 1), (1, 40), (5, 10), (5, 40), (20, 10), (20, 40))


def cards(count: int, kind: str = "") -> list[Device]:
    """So many GPUs of the catalogue, evenly from the smallest to the largest."""
    known = [gpu for gpu in gpus() if not gpu.unified and (not kind or kind in gpu.backends)]
    known.sort(key=lambda gpu: (gpu.memory_mib_nominal, gpu.name))
    chosen = [known[number * len(known) // count] for number in range(count)]
    return [device_of(gpu, os="linux") for gpu in chosen]


def once(n_models: int, n_gpus: int, types: Sequence[str], kind: str) -> None:
    """Make one table and print its line."""
    models = [open_model(str(ZOO / f"{name}.json.gz")) for name in MODELS[:n_models]]
    machines = [Machine((card,)) for card in cards(n_gpus, kind)]
    launch = replace(Launch.parse([]), fit=False)
    begun, worked = time.perf_counter(), time.process_time()
    table = make_table(
        [Entry(model, launch) for model in models],
        machines,
        pairs_of(types),
        usual_contexts(models),
    )
    passed, worked = time.perf_counter() - begun, time.process_time() - worked
    kinds = len({card.kind for machine in machines for card in machine.devices})
    cells = len(table.cells)
    print(
        f"{n_models:>6} {n_gpus:>5} {len(table.pairs):>6} {kinds:>6} {cells:>7}"
        f" {passed:>9.2f} {worked:>9.2f} {table.ledgers:>9,} {1000 * worked / cells:>10.2f}",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) > 3:
        once(int(sys.argv[1]), int(sys.argv[2]), ["all"], sys.argv[3].strip("-"))
        return
    print("models  GPUs  types  kinds   cells   seconds  of a core  ledgers  ms a cell")
    rows = [tuple(map(int, sys.argv[1:3]))] if len(sys.argv) > 2 else GROWTH
    for kind in ("cuda", "-"):
        for row in rows:  # a process each: nothing is remembered from the one before
            subprocess.run([sys.executable, __file__, *map(str, row), kind], check=True)


if __name__ == "__main__":
    main()
