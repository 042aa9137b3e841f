"""`simulate` with llama.cpp's own tools against zoo/golden: the same figures to the MiB.

The GPUs are virtual devices and the models sparse twins, so this proves the virtual device, the
twins and the reading of tables and logs at once. Run as a script, with a number of configurations
per kind, it prints a summary; `all` tries every one that the tools can be asked about.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from kvwise.engine import fit, noalloc_server
from kvwise.engine.find import Engine
from kvwise.errors import EngineError, KvwiseError, Refused
from kvwise.memory.zoo_config import read_config
from kvwise.simulate import Simulation, simulation
from kvwise.units import MIB
from oracle.tools import MARKS, folder
from zoo_files import ZOO, load_json

Row = dict[str, Any]
pytestmark = [*MARKS, pytest.mark.xdist_group("engine")]
SAMPLE = 24


@dataclass(frozen=True)
class Cell:
    """One configuration of the zoo and what llama.cpp did with it."""

    name: str
    config: Row
    result: Row

    def __str__(self) -> str:
        return f"{self.name} {self.config}"


def _ok(cell: Cell) -> bool:
    return bool(cell.result["ok"])


def _fit(cell: Cell) -> bool:
    return fit.expressible(read_config(cell.config).launch)


KINDS: dict[str, Callable[[Cell], bool]] = {
    "one GPU, all layers": lambda c: c.config["n_gpu"] == 1 and c.config["ngl"] == 999,
    "two GPUs": lambda c: c.config["n_gpu"] == 2,
    "three and four GPUs": lambda c: c.config["n_gpu"] > 2,
    "partial offload": lambda c: c.config["ngl"] < 999,
    "experts on the host": lambda c: c.config["n_cpu_moe"] > 0,
    "quantized cache": lambda c: c.config["type_k"] not in ("f16", "bf16", "f32"),
    "several sequences": lambda c: c.config["n_seq_max"] > 1,
    "no flash attention": lambda c: c.config["flash_attn"] == "off",
    "whole windows": lambda c: bool(c.config["swa_full"]),
    "cache on the host": lambda c: not c.config["offload_kqv"],
    "tensor split": lambda c: c.config["tensor_split"] is not None,
}
"""What llama-fit-params can be asked about."""


@cache
def cells(device: str = "generic") -> tuple[Cell, ...]:
    """Everything on devices of that kind."""
    found = []
    for path in sorted((ZOO / "golden").glob("*.gz")):
        golden = load_json(path)
        for row in golden["results"]:
            config = golden["defaults"] | row["config"]
            # Repacked weights depend on the processor.
            if config["device"] == device and not config["extra_bufts"]:
                found.append(Cell(path.name.removesuffix(".json.gz"), config, row["result"]))
    return tuple(found)


def sample(kind: str, count: int) -> list[Cell]:
    """The same cells each time, of as many models as there are."""
    fitting = [cell for cell in cells() if _ok(cell) and _fit(cell) and KINDS[kind](cell)]
    return spread(fitting, count, kind)


def spread(found: list[Cell], count: int, seed: str) -> list[Cell]:
    shuffled = random.Random(seed).sample(found, len(found))
    seen: Counter[str] = Counter()
    ranked = []
    for cell in shuffled:
        ranked.append((seen[cell.name], cell))
        seen[cell.name] += 1
    return [cell for _, cell in sorted(ranked, key=lambda pair: pair[0])[:count]]


def engine() -> Engine:
    """The tools as the user's engine; asking its flags would only cost time."""
    return Engine("binary", str(folder() / "llama-server"), "b10605")


def simulated(cell: Cell) -> Simulation:
    zoo = read_config(cell.config)
    ref = str(ZOO / "models" / f"{cell.name}.json.gz")
    return simulation(ref, zoo.launch, zoo.devices, engine=engine())


def differences(cell: Cell) -> Iterator[str]:
    """What the tool's table says otherwise than the zoo, in whole MiB."""
    try:
        got = simulated(cell)
    except KvwiseError as error:
        yield f"{type(error).__name__}: {error}"
        return
    buffers = cell.result["buffers"]
    wanted = [[b[part] for part in PARTS] for b in buffers if not b["host"]]
    host = [b for b in buffers if b["host"]]
    wanted.append([sum(b[part] for b in host) for part in PARTS])
    rows = [(row.model.units, row.context.units, row.compute.units) for row in got.rows]
    whole = [tuple(size // MIB for size in sizes) for sizes in wanted]
    if rows != whole:
        yield f"{rows} != {whole}"
    # The log's figures have two decimals: half a hundredth of a MiB is the most they are off.
    for line, sizes in zip(got.ledger.lines, wanted, strict=True):
        if abs(line.compute_bytes - sizes[2]) > len(line.parts) * (MIB // 200 + 1):
            yield f"{line.buffer}: {line.compute_bytes} of compute, not {sizes[2]}"
    output = cell.result["output_buffer_bytes"]
    if abs(got.ledger.host.output_bytes - output) > MIB // 200 + 1:
        yield f"{got.ledger.host.output_bytes} of output, not {output}"
    context = got.ledger.context
    for name in ("n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "flash_attn"):
        if getattr(context, name) != cell.result[name]:
            yield f"{name}: {getattr(context, name)} != {cell.result[name]}"


PARTS = ("model", "context", "compute")


def check(chosen: list[Cell]) -> list[str]:
    return [f"{cell}: {what}" for cell in chosen for what in differences(cell)]


@pytest.mark.parametrize("kind", KINDS)
def test_llama_fit_params_on_virtual_gpus_gives_the_golden_figures(kind: str) -> None:
    chosen = sample(kind, SAMPLE)
    assert len(chosen) == SAMPLE
    assert check(chosen) == []


def asked_of_server(cell: Cell) -> bool:
    launch = read_config(cell.config).launch
    return (
        not fit.expressible(launch)
        and noalloc_server.expressible(launch)
        # A server that embeds cuts the batch to the micro-batch; the zoo's context did not.
        and not (launch.embeddings or launch.n_rs_seq or launch.load_mtp or launch.mtp)
    )


def test_llama_server_is_asked_where_llama_fit_params_has_no_flag() -> None:
    fitting = [cell for cell in cells() if _ok(cell) and asked_of_server(cell)]
    assert check(spread(fitting, SAMPLE, "server")) == []


def test_what_the_engine_refuses_is_refused_with_its_code() -> None:
    refused = [cell for cell in cells() if not _ok(cell) and _fit(cell)]
    wrong = []
    for cell in spread(refused, SAMPLE, "refused"):
        try:
            simulated(cell)
            wrong.append(f"{cell}: ran")
        except Refused as error:
            # An assertion names no reason; the zoo's authors did (t5 with several sequences).
            if error.code not in (cell.result["error_code"], "internal_abort"):
                wrong.append(f"{cell}: {error.code}")
        except EngineError as error:
            wrong.append(f"{cell}: {error}")
    assert wrong == []


def test_a_card_with_the_rules_of_cuda_gives_the_golden_figures() -> None:
    alone = [
        cell
        for cell in cells("cuda")
        if _ok(cell) and _fit(cell) and KINDS["one GPU, all layers"](cell)
        if not cell.config["n_cpu_moe"] and cell.config["offload_kqv"]
    ]
    wrong = []
    for cell in spread(alone, SAMPLE, "cuda"):
        got = simulated(cell)
        assert not got.ledger.verified
        card = next(b for b in cell.result["buffers"] if not b["host"])
        row = got.rows[0]
        told = (row.model.units, row.context.units, row.compute.units)
        # An RPC device takes what CUDA's flash attention cannot do.
        parts = PARTS if got.ledger.context.flash_attn == cell.result["flash_attn"] else PARTS[:2]
        wanted = tuple(card[part] // MIB for part in parts)
        if told[: len(parts)] != wanted:
            wrong.append(f"{cell}: {told} != {wanted}")
    assert wrong == []


def main(count: str) -> None:
    """A summary, kind by kind."""
    every = [cell for cell in cells() if _ok(cell)]
    groups = {kind: sample(kind, int(count)) for kind in KINDS} if count != "all" else {}
    if count == "all":
        groups["llama-fit-params"] = [cell for cell in every if _fit(cell)]
        groups["llama-server"] = [cell for cell in every if asked_of_server(cell)]
    for kind, chosen in groups.items():
        start, wrong = time.monotonic(), 0
        for cell in chosen:
            found = list(differences(cell))
            wrong += bool(found)
            for what in found:
                print(f"  {cell}: {what}", flush=True)
        seconds = time.monotonic() - start
        print(f"{kind}: {len(chosen) - wrong} of {len(chosen)}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "24")
