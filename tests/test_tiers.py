"""Computed beside simulated: what agrees, what stand-ins cannot show, what the engine misjudges."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvwise.arch import describe
from kvwise.device import Device
from kvwise.engine.find import Engine
from kvwise.engine.loaded import Collector
from kvwise.engine.noalloc import Pass, Row, whole
from kvwise.engine.simulated import ledger_of, tell
from kvwise.gguf.open import open_header
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.simulate import Simulation
from kvwise.tiers import Tiers, tiers, tiers_json
from kvwise.units import GIB, MIB
from zoo_files import ZOO

MODEL = describe(open_header(str(ZOO / "models" / "qwen3-8b.json.gz")))
LAUNCH = Launch(n_ctx=8192, n_outputs_max=1, mmap=False, repack=False, flash_attn="on")
CARD = Device("card", "generic", 8 * GIB, 8 * GIB)
TWO = (CARD, replace(CARD, index=1))


def printed(ledger: Ledger, more: int = 0) -> tuple[Row, ...]:
    """The table that an engine would print of a ledger; `more` MiB of compute on the first line."""
    rows = []
    for number, line in enumerate(ledger.lines):
        name = "Host" if line.host else f"RPC{number}"
        sizes = [line.weights_bytes, line.context_bytes, line.compute_bytes]
        sizes[2] += more * MIB if not number else 0
        rows.append(Row(name, *(whole(str(size // MIB)) for size in sizes)))
    return tuple(rows)


def beside(devices: tuple[Device, ...], more: int = 0, *, own: bool = False) -> Tiers:
    """What `tiers` makes of an engine that prints our own figures."""
    ours = account(MODEL, LAUNCH, devices, compute_mode="no-alloc")
    said = Pass(printed(ours, more), Collector().add_all([]), ("tool",))
    names = tuple(f"RPC{n}" for n in range(len(devices))) if own else None
    ledger = ledger_of(said, MODEL, LAUNCH, devices, names=names)
    told = tell(said, devices, names)
    engine = Engine("binary", "/x")
    return tiers(Simulation(ledger, said.rows, told, ("tool",), engine, own, devices))


def test_the_same_figures_agree() -> None:
    found = beside((CARD,))
    assert found.agrees
    assert not found.misjudged
    assert [(row.buffer, row.part) for row in found.rows] == [  # without a log, no output

        ("VGPU0", "weights"), ("VGPU0", "context"), ("VGPU0", "compute"),
        ("CPU", "weights"), ("CPU", "compute"),
    ]  # fmt: skip
    assert all(row.decisive for row in found.rows)


def test_another_figure_is_told_with_its_difference() -> None:
    found = beside((CARD,), more=5)
    (row,) = found.wrong
    assert (row.buffer, row.part) == ("VGPU0", "compute")
    assert -5 * MIB - MIB < row.difference <= -5 * MIB + MIB
    document = tiers_json(found)
    assert document["agrees"] is False
    assert document["lines"][2]["difference_bytes"] == row.difference


def test_pins_that_the_pass_forgets_are_the_engines_mistake() -> None:
    found = beside(TWO)
    assert found.agrees
    (row,) = found.misjudged
    assert (row.buffer, row.part) == ("VGPU1", "compute")
    assert row.reserved - row.expected == 8 * MIB
    reserved = account(MODEL, LAUNCH, TWO)
    assert row.reserved == reserved.lines[1].compute_bytes


@pytest.mark.parametrize(
    ("kinds", "own", "decides"),
    [
        (("generic",), False, True),
        (("generic", "generic"), False, True),
        (("cuda",), False, True),
        (("cuda", "cuda"), False, False),
        (("cuda", "cuda"), True, True),
        (("vulkan",), False, False),
    ],
)
def test_a_stand_in_decides_only_what_it_can_show(
    kinds: tuple[str, ...], own: bool, decides: bool
) -> None:
    devices = tuple(replace(CARD, kind=kind, index=at) for at, kind in enumerate(kinds))
    found = beside(devices, more=50, own=own)
    assert found.agrees is not decides
    compute = [row for row in found.rows if row.part == "compute"]
    assert {row.decisive for row in compute} == {decides}
    assert all(row.decisive for row in found.rows if row.part != "compute")
