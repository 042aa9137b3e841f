"""Real loads of zoo models onto virtual GPUs: what llama-server allocates is the ledger.

The models are sparse twins without a vocabulary, so any of them loads in a fraction of a second,
and the GPUs count every buffer to the byte: weights, caches and the compute buffer that is really
reserved, not the one that the no-alloc pass expects. Run as a script it tries all small models.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.engine.find import Engine
from kvwise.engine.noalloc import on_virtual, run
from kvwise.engine.settings import Run, server_argv
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.errors import Refused
from kvwise.gguf.open import open_header
from kvwise.gguf.writer import write_twin
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.units import GIB
from oracle.tools import MARKS, folder
from zoo_files import ZOO, zoo_names

pytestmark = [*MARKS, pytest.mark.engine, pytest.mark.xdist_group("engine")]
CARD = Device("card", "generic", 24 * GIB, 20 * GIB)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two GPUs": {"gpus": 2},
    "cache on the host": {"offload_kqv": False, "n_ubatch": 128},
    "partial": {"n_gpu_layers": 2},
    "four slots": {"n_seq_max": 4, "n_outputs_max": 4, "kv_unified": True},
}
SMALL = [name for name in zoo_names() if name.startswith("tiny-")]


def launched(change: dict[str, Any]) -> tuple[Launch, list[Device]]:
    fields = {name: value for name, value in change.items() if name != "gpus"}
    launch = replace(Launch(n_ctx=2048, n_outputs_max=1, fit=False, mmap=False), **fields)
    return launch, [replace(CARD, index=number) for number in range(change.get("gpus", 1))]


def differences(name: str, change: dict[str, Any], folder_: Path) -> Iterator[str]:
    """What the real load allocates otherwise than the ledger says, GPU by GPU."""
    launch, gpus = launched(change)
    header = open_header(str(ZOO / "models" / f"{name}.json.gz"))
    try:
        ledger = account(describe(header), launch, gpus)
    except Refused:
        return
    twin = folder_ / "twin.gguf"
    write_twin(header, twin)
    with VirtualDevices(map(VirtualGPU.of, gpus)) as server:
        start = Run(warmup=False, special=tuple(on_virtual(server)))
        engine = Engine("binary", str(folder() / "llama-server"), "b10605")
        argv = server_argv(engine, str(twin), launch, start)
        got = run(argv, limit_s=60, enough=lambda loaded: loaded.ready)
        sizes = [[a.size for a in server.allocations if a.device == n] for n in range(len(gpus))]
    # Some die right after everything is allocated (t5: the server decodes before it encodes).
    found = list(compare(ledger, sizes))
    if found and not got.loaded.ready:
        found.append(str(got.outcome.sentence))
    yield from (f"{name}: {what}" for what in found)


def compare(ledger: Ledger, allocated: list[list[int]]) -> Iterator[str]:
    """Weights come first, the compute buffer last, caches between."""
    for line, sizes in zip(ledger.lines, allocated, strict=False):
        exact = line.basis["compute"] == "computed"
        ours = [line.weights_bytes, line.context_bytes, line.compute_bytes]
        if exact and sum(sizes) != sum(ours):
            yield f"{line.buffer}: {sizes} are not {ours}"
        kept = line.weights_bytes + line.context_bytes
        parts = {sum(sizes[:count]) for count in range(len(sizes) + 1)}
        if kept not in parts:
            yield f"{line.buffer}: no first part of {sizes} is {kept} of weights and caches"


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_real_load_allocates_what_the_ledger_says(kind: str, tmp_path: Path) -> None:
    chosen = random.Random(kind).sample(SMALL, 12)
    found = [what for name in chosen for what in differences(name, SETTINGS[kind], tmp_path)]
    assert found == []


def main(folder_: Path) -> None:
    """Every small model under every setting."""
    for kind, change in SETTINGS.items():
        count: Counter[bool] = Counter()
        for name in SMALL:
            found = list(differences(name, change, folder_))
            count[not found] += 1
            for what in found:
                print(f"  {what}", flush=True)
        print(f"{kind}: {count[True]} of {count.total()}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
