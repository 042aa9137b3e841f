"""Spill and growth, from readings that stand in for drivers this machine does not have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from guard.running import QWEN
from kvwise.arch import describe
from kvwise.device import Device
from kvwise.gguf.open import open_header
from kvwise.guard import memory
from kvwise.guard.memory import Growing, Reading, spilled
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.units import GIB, MIB

EMPTY = Reading({"a": 8 * GIB}, {"card0": 0})


def test_a_load_that_fits_is_no_spill() -> None:
    after = Reading({"a": 2 * GIB}, {"card0": 20 * MIB})
    assert spilled(EMPTY, after, 6 * GIB) is None


def test_a_full_card_that_gave_up_less_than_planned() -> None:
    after = Reading({"a": 100 * MIB}, {})
    found = spilled(EMPTY, after, 9 * GIB)
    assert found is not None
    assert (found.seen, found.size) == ("missing", 9 * GIB - (8 * GIB - 100 * MIB))


def test_a_card_with_room_left_did_not_spill_whatever_the_sum_says() -> None:
    assert spilled(EMPTY, Reading({"a": GIB}, {}), 9 * GIB) is None


def test_the_driver_s_own_share_of_system_memory() -> None:
    found = spilled(EMPTY, Reading({}, {"card0": 700 * MIB}), 6 * GIB)
    assert found is not None
    assert (found.seen, found.size) == ("shared", 700 * MIB)


def test_nothing_planned_on_a_gpu_cannot_spill() -> None:
    assert spilled(EMPTY, Reading({"a": 0}, {"card0": GIB}), 0) is None
    assert spilled(Reading(), Reading(), 6 * GIB) is None


def test_two_cards_are_counted_together() -> None:
    before = Reading({"a": 8 * GIB, "b": 8 * GIB})
    after = Reading({"a": 100 * MIB, "b": 6 * GIB})
    assert spilled(before, after, 10 * GIB) is None
    assert spilled(before, after, 12 * GIB) is not None


def test_amd_s_figures_are_read_from_the_kernel(tmp_path: Path) -> None:
    card = tmp_path / "class/drm/card0/device"
    card.mkdir(parents=True)
    (card / "mem_info_gtt_used").write_text("123456\n")
    assert memory._gtt_used(tmp_path) == {"card0": 123456}
    (card / "mem_info_gtt_used").write_text("nonsense\n")
    assert memory._gtt_used(tmp_path) == {}


def test_a_driver_that_hangs_does_not_hang_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.here, "may_have_gpu", lambda: True)
    monkeypatch.setattr(memory, "_ANSWER_S", 0.1)
    monkeypatch.setattr(memory, "_nvml_free", lambda: time.sleep(3) or {})
    began = time.monotonic()
    assert memory.read_cards() == Reading()
    assert memory.read_cards() == Reading()  # and is not asked a second time meanwhile
    assert time.monotonic() - began < 2.5


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler for the stand-in of pdh.dll")
def test_windows_counts_what_lies_in_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pdh.dll is a stand-in (tests/probe/fakes): this process has 50 and 9000 MiB on two cards."""
    source, library = Path(__file__).parents[1] / "probe/fakes/pdh.c", tmp_path / "pdh.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("PDH", "luid=7")
    card = Device("card", "cuda", 16 * GIB, 16 * GIB)
    launch = Launch(n_ctx=40960, n_gpu_layers=99, n_outputs_max=1, fit=False)
    ledger = account(describe(open_header(QWEN)), launch, [card])
    found = memory.counted(os.getpid(), ledger, str(library))
    assert found is not None
    assert (found.seen, found.size) == ("counted", 9050 * MIB - ledger.host.total_bytes)
    assert memory.counted(os.getpid() + 5, ledger, str(library)) is None
    assert memory.counted(os.getpid(), ledger) is None  # no Windows here
    assert memory.counted(os.getpid(), None, str(library)) is None


def test_a_card_that_loses_memory_is_told_once() -> None:
    watch = memory.Shrinking(Reading({"a": 2 * GIB, "b": GIB}))
    assert watch.look(Reading({"a": 2 * GIB - 100 * MIB, "b": GIB})) is None
    assert watch.look(Reading({"a": GIB, "b": GIB})) == (GIB, GIB)
    assert watch.look(Reading({"a": GIB, "b": GIB})) is None
    assert watch.look(Reading({"a": 2 * GIB, "b": 100 * MIB})) == (100 * MIB, GIB - 100 * MIB)
    assert watch.look(Reading()) is None


def test_growth_of_a_real_process_is_told_once() -> None:
    code = """
import sys
kept = []
for line in sys.stdin:
    kept.append(bytearray(b"x") * (400 << 20))
    print(len(kept), flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        growing = Growing(process.pid)
        assert growing.look() is None
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        found = growing.look()
        assert found is not None
        assert found.now_bytes - found.ready_bytes >= 400 * MIB
        assert growing.look() is None
        process.stdin.close()
    assert growing.look() is None  # it has ended
