"""A real llama-server with a draft on a GPU that is not there: every allocation is the ledger's,
from the first batch on, and a long prompt takes no more."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from kvwise.engine.find import binary
from kvwise.engine.noalloc import on_virtual
from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.gguf.writer import write_twin
from kvwise.memory.account import account
from kvwise.memory.parts.companions import Companions
from oracle.measure_drafts import PAIRS, launch_of, model_of, whole
from oracle.measure_mtp import devices_of
from oracle.tools import MARKS, folder

pytestmark = [*MARKS, pytest.mark.engine, pytest.mark.xdist_group("engine")]
FIELDS = {
    "n_ctx": 4096, "n_ubatch": 512, "n_seq_max": 1, "kv_unified": True, "flash_attn": "on",
    "n_gpu_layers": 999, "draft_gpu_layers": 999,
}  # fmt: skip


@pytest.mark.parametrize("name", ["eagle3", "assistant", "mtp-mimo2"])
def test_every_allocation_is_the_ledgers(name: str) -> None:
    make, head, kind = PAIRS[name]
    target = make()
    draft = None if head is None else head(target)
    gpus = devices_of(1)
    with tempfile.TemporaryDirectory() as place, VirtualDevices(map(VirtualGPU.of, gpus)) as gpu:
        paths = [Path(place) / f"{which}.gguf" for which in ("target", "draft")]
        write_twin(whole(target), paths[0])
        if draft is not None:
            write_twin(whole(draft), paths[1])
        launch = launch_of("b10605", kind, FIELDS, str(paths[1]) if draft else "")
        run = Run(warmup=False, special=tuple(on_virtual(gpu)))
        engine = binary(folder() / "llama-server")
        with Server.start(paths[0], launch, engine=engine, run=run, ready_s=60.0) as server:
            server.complete([300 + word % 400 for word in range(40)], 4)
            first = [each.size for each in gpu.allocations]
            server.complete([300 + word % 400 for word in range(1100)], 4)
            assert [each.size for each in gpu.allocations] == first
    beside = Companions(draft=None if draft is None else model_of(draft))
    line = account(model_of(target), launch, gpus, companions=beside).lines[0]
    (extra,) = line.extras
    caches = [line.context_bytes, extra.context_bytes]
    wanted = {line.weights_bytes, extra.weights_bytes, line.compute_bytes, extra.compute_bytes}
    assert wanted - {0} <= set(first)
    assert sum(caches) <= sum(first)
