"""What the host need not hold of a mapped file: pages that nothing is read from after loading."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import zoo_files
from kvwise.arch import describe
from kvwise.device import Device, Host
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Line
from kvwise.memory.report import ledger_json
from kvwise.units import GIB

MODEL = describe(open_header(str(zoo_files.ZOO / "models" / "qwen3-30b-a3b.json.gz")))
CARD = (Device("card", "generic", 24 * GIB, 24 * GIB),)
HOST = Host(24 * GIB, 24 * GIB)
EXPERTS_ON_HOST = Launch(n_ctx=8192, n_cpu_moe=99)


def host_line(launch: Launch, host: Host | None = HOST) -> Line:
    return account(MODEL, launch, CARD, host=host, compute_mode="none").host


def test_experts_that_are_repacked_do_not_count_twice() -> None:
    line = host_line(EXPERTS_ON_HOST)
    assert line.total_bytes > 24 * GIB > line.total_bytes - line.reclaimable_bytes
    assert line.misses_bytes == 0
    assert line.headroom_bytes == 24 * GIB - line.total_bytes + line.reclaimable_bytes


def test_what_is_left_is_what_one_copy_takes() -> None:
    both, one = host_line(EXPERTS_ON_HOST), host_line(replace(EXPERTS_ON_HOST, mmap=False))
    assert one.reclaimable_bytes == 0
    assert abs(both.total_bytes - both.reclaimable_bytes - one.total_bytes) < GIB // 100


@pytest.mark.parametrize("layers", [0, 12, 30, 48, 49])
def test_pages_of_what_went_to_a_card_are_not_held(layers: int) -> None:
    line = host_line(Launch(n_ctx=8192, n_gpu_layers=layers, repack=False))
    used = host_line(Launch(n_ctx=8192, n_gpu_layers=layers, repack=False, mmap=False))
    assert 0 <= line.reclaimable_bytes <= line.weights_bytes
    assert abs(line.weights_bytes - line.reclaimable_bytes - used.weights_bytes) < GIB // 100


def test_a_limit_on_addresses_counts_the_whole_mapping() -> None:
    line = host_line(EXPERTS_ON_HOST, replace(HOST, counts_mapped=True))
    assert line.reclaimable_bytes == 0
    assert line.misses_bytes > 0


@pytest.mark.parametrize("mode", ["mlock", "mmap+mlock"])
def test_locked_pages_stay(mode: str) -> None:
    launch = replace(EXPERTS_ON_HOST, load_mode=mode, mmap=mode == "mmap+mlock")
    assert host_line(launch).reclaimable_bytes == 0


def test_json_says_how_much() -> None:
    ledger = account(MODEL, EXPERTS_ON_HOST, CARD, host=HOST, compute_mode="none")
    row = ledger_json(ledger)["buffers"][-1]
    assert row["headroom_bytes"] == (
        row["free_bytes"] - row["total_bytes"] + row["reclaimable_bytes"] - row["reserve_bytes"]
    )
