"""Asks the tools of one build of llama.cpp about every model of the zoo: tests/zoo/BUILD.json.gz.

    python tests/oracle/measure_build.py BUILD FOLDER [MODEL ...]

FOLDER holds the build's llama-fit-params. Models are sparse twins, GPUs our virtual devices, so it
runs anywhere, one process at a time, in about half an hour. Figures are kept as printed: compute
and output rounded to 0.01 MiB, weights and contexts whole MiB, cut off. Models that were measured
already are skipped, so a run can be taken up again; MODEL measures only those, anew.
docs/builds.md says what to do with the result.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.engine import fit
from kvwise.engine.noalloc import HOST, Pass
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.errors import EngineError, Refused
from kvwise.gguf.model import Model
from kvwise.gguf.open import open_header
from kvwise.gguf.writer import write_twin
from kvwise.launch import Launch
from kvwise.memory.zoo_config import read_config

ZOO = Path(__file__).parents[1] / "zoo"

Row = dict[str, Any]


def recorded(build: str) -> Row:
    """What was measured of a build."""
    found: Row = json.loads(gzip.decompress((ZOO / f"{build}.json.gz").read_bytes()))
    return found


def described(name: str) -> Path:
    """Where the zoo describes a model; `newer` has those of architectures after b10605."""
    newer = ZOO / "newer" / f"{name}.json"
    return newer if newer.exists() else ZOO / "models" / f"{name}.json.gz"


def configs(model: Model) -> list[Row]:
    """What every model is asked: fields of zoo/README.md, whose `generic` GPUs are RPC devices."""
    half = max(1, model.n_layer_all // 2)
    return [
        {"device": "cpu", "n_ctx": 4096},
        {"device": "cpu", "n_ctx": 2048, "flash_attn": "off", "n_ubatch": 256, "n_seq_max": 2},
        {},
        {"ngl": half, "n_ctx": 4096},
        {"n_gpu": 2},
        {"n_gpu": 2, "ngl": half, "n_ctx": 4096, "n_ubatch": 128},
        {"type_k": "q8_0", "type_v": "q8_0", "n_ctx": 4096},
        {"n_seq_max": 3, "n_ctx": 6000},
        {"flash_attn": "off", "n_ctx": 4096},
        {"offload_kqv": False, "n_ctx": 4096},
    ]


def asked(config: Row, build: str) -> tuple[Launch, tuple[Device, ...]]:
    """The launch and the devices of a configuration."""
    zoo = read_config({**config, "engine_build": build, "compute_mode": "no-alloc"})
    devices = tuple(replace(device, kind="rpc", source="") for device in zoo.devices)
    return zoo.launch, devices


TRIES = 4


def measure(tool: Path, twin: Path, config: Row, build: str) -> Row:
    """What the tool says about one configuration, or why it does not.

    Now and then it ends before its log is written, so what is not whole is asked again.
    """
    said: Row = {}
    for _ in range(TRIES):
        said = ask(tool, twin, config, build)
        if said.get("compute") or "refused" in said:
            break
    return said


def ask(tool: Path, twin: Path, config: Row, build: str) -> Row:
    launch, devices = asked(config, build)
    try:
        if not devices:
            return printed(fit.measure(tool, twin, replace(launch, devices=("none",))))
        with VirtualDevices(map(VirtualGPU.of, devices)) as gpus:
            return printed(fit.measure(tool, twin, launch, gpus))
    except Refused as why:
        return {"refused": why.code}
    except EngineError as why:
        return {"failed": str(why)[:120]}


def printed(said: Pass) -> Row:
    """The figures of a pass, by device (`RPC0`, `Host`)."""
    context = said.context
    if context is None:
        return {"failed": "no context"}
    names = {row.device for row in said.rows if row.device != HOST}
    compute: dict[str, list[str]] = {}
    for name, total in context.compute.items():
        device = name.partition("[")[0]
        compute.setdefault(device if device in names else HOST, []).extend(map(str, total.parts))
    output = [str(part) for total in context.output.values() for part in total.parts]
    return {
        "flash_attn": context.flash_attn,
        "compute": compute,
        "output": output,
        "weights": {row.device: row.model.units for row in said.rows},
        "context": {row.device: row.context.units for row in said.rows},
    }


def main(build: str, folder: str, *names: str) -> None:
    """Measure, and write after each model."""
    tool, path = Path(folder) / "llama-fit-params", ZOO / f"{build}.json.gz"
    found: Row = recorded(build) if path.exists() else {"build": build, "models": {}}
    folders = [*(ZOO / "models").glob("*.gz"), *(ZOO / "newer").glob("*.json")]
    every = sorted(path.name.partition(".json")[0] for path in folders)
    for name in names or [each for each in every if each not in found["models"]]:
        header = open_header(str(described(name)))
        with tempfile.TemporaryDirectory(prefix="kvwise-measure-") as place:
            twin = Path(place) / "twin.gguf"
            write_twin(header, twin)
            found["models"][name] = [
                {"config": config, "said": measure(tool, twin, config, build)}
                for config in configs(describe(header))
            ]
        save(path, found)
        print(name, flush=True)


def save(path: Path, found: Row) -> None:
    """One line per model, so that the next build's differences can be read; stable bytes."""
    models = sorted(found["models"].items())
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in models)
    text = f'{{"build": {json.dumps(found["build"])}, "models": {{\n{lines}\n}}}}\n'
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
