"""A card whose memory lies in pieces: what is planned must find its places there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvwise.cli._main import run
from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.opening import open_model
from kvwise.plan.table import Entry, make_table, pairs_of
from kvwise.plan.taken import Machine
from kvwise.probe.advice import advise, planned
from kvwise.probe.document import document
from kvwise.probe.report import DeviceReport, Report

MIB = 1 << 20
ZOO = Path(__file__).parents[1] / "zoo/models"
START = replace(Launch.parse(["-np", "1"]), fit=False)


@pytest.fixture(scope="module")
def model() -> Model:
    """Qwen3-8B: 4,455 MiB of weights on the card, 144 KiB a token."""
    return open_model(str(ZOO / "qwen3-8b.json.gz"))


def _device(*pieces: int, kind: str = "cuda") -> Device:
    sizes = tuple(size * MIB for size in pieces)
    total = sum(sizes)
    return Device("A", kind, total + 400 * MIB, total, max_block_bytes=sizes[0], pieces=sizes,
                  reserve_bytes=0)  # fmt: skip


def test_a_sum_that_fits_is_not_enough(model: Model) -> None:
    """4,455 MiB of weights take the large piece; 2,304 MiB of cache fit neither of the rest."""
    launch = replace(START, n_ctx=16384)
    whole = Device("A", "cuda", 9000 * MIB, 8600 * MIB, reserve_bytes=0)
    assert account(model, launch, [whole]).fits
    for pieces, missing in (((4600, 2000, 2000), 2304), ((4600, 2304, 1696), 0), ((8600,), 0),
                            ((4456, 2304, 304, 304), 0)):  # fmt: skip
        ledger = account(model, launch, [_device(*pieces)])
        assert ledger.lines[0].unplaced_bytes == missing * MIB
        assert ledger.fits is (missing == 0)
        codes = {note.code for note in ledger.notes}
        assert ("memory_in_pieces" in codes) is (missing > 0)
    smaller = replace(START, n_ctx=12288)  # 1,728 MiB of cache
    assert account(model, smaller, [_device(4600, 2000, 2000)]).fits


def test_a_backend_that_cuts_its_buffers_fills_pieces(model: Model) -> None:
    """Vulkan: chunks of 1 GiB, and an output tensor of its own size."""
    launch = replace(START, n_ctx=16384)
    pieces = (2100, 2100, 2100, 1100, 1100, 400)
    assert account(model, launch, [_device(*pieces, kind="vulkan")]).fits
    assert not account(model, launch, [_device(*pieces)]).fits


def test_tables_know_pieces(model: Model) -> None:
    devices = [_device(8600), _device(4600, 2000, 2000), _device(4400, 4200)]
    table = make_table([Entry(model, START)], [Machine((each,)) for each in devices],
                       pairs_of(["f16"]), (4096,))  # fmt: skip
    whole, pieces, too_small = (cell.n_ctx_max for cell in table.cells)
    assert whole
    assert pieces
    assert pieces < whole
    assert pieces * 147_456 <= 2000 * MIB < (pieces + 256) * 147_456
    assert too_small is None  # no piece holds the weights


def _measured(*blocks: int, **more: Any) -> DeviceReport:
    sizes = tuple(size * MIB for size in blocks)
    return DeviceReport(
        "A", "cuda", outcome="measured", total_bytes=24000 * MIB, free_bytes=23000 * MIB,
        ceiling_bytes=22900 * MIB, blocks=sizes, largest_block_bytes=sizes[0],
        all_blocks_bytes=sum(sizes), write_bytes_per_s=10**12, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("blocks", "more", "in_pieces"),
    [
        ((9000, 5000, 3000), {}, True),
        ((22900,), {}, False),
        ((4096, 4096, 4096, 4096, 512), {}, False),  # a limit on one block, not pieces
        ((4094, 4000, 100), {"max_buffer_bytes": 4095 * MIB}, False),  # a rule of the backend
        ((9000, 5000), {"spilled_bytes": 900 * MIB, "spilled": True}, False),
    ],
)
def test_what_is_taken_for_pieces(
    blocks: Sequence[int], more: dict[str, Any], in_pieces: bool
) -> None:
    pieces = advise(_measured(*blocks, **more), "linux").pieces
    assert pieces == (tuple(size * MIB for size in blocks) if in_pieces else ())


def test_a_fragmented_card_gets_another_plan(
    probed: Callable[..., Report], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the driver to the command line: two probes of fake drivers, two plans."""
    plans = []
    for fake in ("", "extents=5000,3000,2500"):
        report = probed(f"total=12000;{fake}")
        (tmp_path / "probe.json").write_text(json.dumps(document(report)))
        device = planned(report.devices[0], report.system)
        assert bool(device.pieces) is bool(fake)
        words = ["plan", str(ZOO / "qwen3-8b.json.gz"), "--goal", "max-context", "--json",
                 "--no-simulate", "--never-offload", "-ctk", "f16", "-ctv", "f16",
                 "--device-file", str(tmp_path / "probe.json")]  # fmt: skip
        capsys.readouterr()
        assert run(words) == 0
        plans.append(json.loads(capsys.readouterr().out)["choice"])
    healthy, fragmented = plans
    assert healthy["launch"]["n_ctx"] > fragmented["launch"]["n_ctx"]
    gpu = fragmented["ledger"]["buffers"][0]
    assert 4096 * MIB < gpu["weights_bytes"] <= 5000 * MIB
    assert 2500 * MIB < gpu["context_bytes"] <= 3000 * MIB
    assert gpu["total_bytes"] <= 10500 * MIB
