"""Accuracy over tests/zoo/golden in no-alloc mode: exact, within, under; per architecture and all.

python tests/memory/compute/report.py [--worst] [ARCHITECTURE or MODEL ...]
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import gzip
import json

from kvwise.arch import describe
from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.memory.cache import caches
from kvwise.memory.compute import ComputeResult, compute
from kvwise.memory.context import resolve
from kvwise.memory.placement import HOST, place, select
from kvwise.memory.zoo_config import read_config

ZOO = Path(__file__).parents[2] / "zoo"
MIB = 1024 * 1024


def golden(names: list[str]) -> Iterator[tuple[str, Model, dict[str, Any], dict[str, Any]]]:
    """(model name, model, configuration, result) of every measured cell asked for."""
    for path in sorted((ZOO / "golden").glob("*.gz")):
        name = path.name.removesuffix(".json.gz")
        model = None
        data = json.loads(gzip.decompress(path.read_bytes()))
        for entry in data["results"]:
            if model is None:
                model = describe(open_header(str(ZOO / "models" / path.name)))
                if names and model.architecture not in names and name not in names:
                    break
            config = {**data["defaults"], **entry["config"]}
            if entry["result"]["ok"] and not config["extra_bufts"]:
                yield name, model, config, entry["result"]


def predict(model: Model, config: dict[str, Any]) -> ComputeResult:
    zoo = read_config({**config, "compute_mode": "no-alloc"})
    devices = select(zoo.launch, zoo.devices)
    placement = place(model, zoo.launch, devices)
    context = resolve(model, zoo.launch, placement, devices)
    kept = caches(model, context, placement, devices)
    return compute(model, context, placement, kept, zoo.launch, devices, mode="no-alloc")


def measured(result: dict[str, Any]) -> dict[int, int]:
    """Bytes per device number; all host buffers together."""
    found: dict[int, int] = defaultdict(int)
    for row in result["buffers"]:
        number = HOST if row["host"] else int(row["buffer"].removeprefix("VGPU"))
        found[number] += row["compute"]
    return found


def main(names: list[str], *, worst: bool) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    bad: list[tuple[float, str]] = []
    for name, model, config, result in golden(names):
        count = counts[model.architecture]
        try:
            made = predict(model, config)
        except (KvwiseError, ArithmeticError, LookupError, TypeError) as error:
            count["errors"] += 1
            bad.append((9e9, f"{name} {type(error).__name__} {error} {config}"))
            continue
        for number, truth in measured(result).items():
            mine = made.by_buffer.get(number, 0)
            count["cells"] += 1
            count["exact"] += mine == truth
            near = abs(mine - truth) <= max(truth * 0.02, 4 * MIB)
            count["within"] += near
            count["under"] += truth - mine > max(truth * 0.01, 2 * MIB)
            count["claimed"] += made.basis == "computed"
            count["wrong"] += made.basis == "computed" and mine != truth
            if mine != truth:
                short = {k: v for k, v in config.items() if v != DEFAULTS.get(k)}
                off = abs(mine - truth) / MIB
                bad.append((off, f"{name} {number} {mine} {truth} {made.basis} {short}"))
    total: Counter[str] = Counter()
    for architecture, count in sorted(counts.items()):
        total.update(count)
        print(f"{architecture:20}", *(f"{key} {count[key]}" for key in KEYS))
    print("TOTAL", *(f"{key} {total[key]}" for key in KEYS))
    cells = total["cells"] or 1
    print(*(f"{key} {100 * total[key] / cells:.2f} %" for key in KEYS[1:4]))
    if worst:
        for _, line in sorted(bad, reverse=True)[:40]:
            print(line)


KEYS = ("cells", "exact", "within", "under", "claimed", "wrong", "errors")
DEFAULTS = {
    "device": "generic", "n_gpu": 1, "ngl": 999, "n_cpu_moe": 0, "n_ctx": 8192, "n_batch": 2048,
    "n_ubatch": 512, "n_seq_max": 1, "kv_unified": False, "flash_attn": "auto", "type_k": "f16",
    "type_v": "f16", "swa_full": False, "offload_kqv": True, "op_offload": True,
    "n_outputs_max": 0, "embeddings": False, "n_rs_seq": 0, "load_mtp": False, "mtp": False,
    "extra_bufts": False, "tensor_split": None, "gpu_mem_mib": [24576] * 4,
    "split_mode": "layer", "mmap": False,
}  # fmt: skip

if __name__ == "__main__":
    arguments = sys.argv[1:]
    main([a for a in arguments if not a.startswith("-")], worst="--worst" in arguments)
