"""What the driver takes: a row per system, backend and generation; measured figures go first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvwise.device import Device
from kvwise.memory.overhead import INSIDE, MEASURED, ROWS, basis, overhead
from kvwise.text import say
from kvwise.units import GIB, MIB


def device(kind: str, size: int = 12 * GIB, **fields: object) -> Device:
    return replace(Device("A", kind, size, size), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("card", "sms", "measured"),
    [("RTX 3060", 28, 113), ("RTX 3090", 82, 265), ("RTX 4090", 128, 395), ("RTX 5090", 170, 521),
     ("RTX 4060 Ti", 34, 134), ("GTX 1080", 20, 115), ("RTX PRO 6000", 188, 558)],
)  # fmt: skip
def test_linux_starts_of_cards_without_a_desktop(card: str, sms: int, measured: int) -> None:
    taken, _ = overhead(device("cuda", sm_count=sms, system="linux", compute_capability="8.6"))
    assert abs(taken / MIB - measured) <= 30, card


def test_hopper_takes_more() -> None:
    h100 = device("cuda", 79 * GIB, sm_count=132, compute_capability="9.0")
    assert abs(overhead(h100)[0] / MIB - 527) <= 5


@pytest.mark.parametrize(
    ("sms", "total", "measured"),
    [(24, 8187, 1091), (28, 12287, 1034), (46, 12281, 1212), (34, 16379, 1151), (82, 24575, 1240),
     (14, 4095, 799)],
)  # fmt: skip
def test_windows_starts(sms: int, total: int, measured: int) -> None:
    card = device("cuda", total * MIB, sm_count=sms, system="windows", compute_capability="8.9")
    assert abs(overhead(card)[0] / MIB - measured) <= 110


@pytest.mark.parametrize(
    ("kind", "fields", "mib"),
    [("vulkan", {"system": "windows"}, 768), ("vulkan", {}, 256), ("hip", {}, 200),
     ("hip", {"system": "windows"}, 150), ("metal", {"unified": True}, 0), ("generic", {}, 0),
     ("rpc", {}, 0)],
)  # fmt: skip
def test_other_backends(kind: str, fields: dict[str, object], mib: int) -> None:
    assert overhead(device(kind, **fields))[0] == mib * MIB


def test_free_memory_that_a_program_read_has_it_subtracted() -> None:
    card = replace(device("cuda", sm_count=28), free_bytes=11 * GIB)
    assert overhead(card) == (0, INSIDE)
    assert basis(card) == "computed"


def test_what_was_measured_here_wins() -> None:
    card = device("cuda", sm_count=28, overhead_bytes=123)
    assert overhead(card) == (123, MEASURED)
    assert basis(card) == "measured"
    assert basis(device("cuda", sm_count=28)) == "estimated"
    assert basis(device("generic")) == "computed"


def test_every_row_says_where_it_is_from() -> None:
    assert all(row.why for row in ROWS)
    assert "24 multiprocessors" in say(overhead(device("cuda", sm_count=24))[1])
