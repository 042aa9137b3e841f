"""A load that spills is taken back: the run as a whole, with made-up readings of the cards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from guard.fakes import SERVE_AND_END, fake, last, starts
from guard.running import QWEN, free_port
from kvwise.arch import describe
from kvwise.device import Device
from kvwise.engine.find import binary
from kvwise.gguf.open import open_header
from kvwise.guard.case import Case
from kvwise.guard.line import Given, Listen
from kvwise.guard.memory import Reading, on_gpus
from kvwise.guard.rules import Desk, Rules
from kvwise.guard.session import Session
from kvwise.guard.tell import Event
from kvwise.options import read
from kvwise.units import GIB, MIB

CARD = Device("card", "generic", 8 * GIB, 8 * GIB)
WORDS = ("-m", "m.gguf", "-c", "16384", "-np", "1", "-ngl", "99", "-fit", "off")
EMPTY, FULL = Reading({"pci": 6 * GIB}), Reading({"pci": 50 * MIB})


def session(folder: Path, readings: Iterator[Reading], tries: int = 6) -> tuple[int, list[Event]]:
    told: list[Event] = []
    reading = read(WORDS)
    case = Case(describe(open_header(QWEN)), (CARD,), fixed=frozenset({"n_gpu_layers"}),
                may_change=frozenset({"context"}))  # fmt: skip
    assert on_gpus(case.ledger(reading.launch)) > 6 * GIB
    given = Given(binary(fake(folder, SERVE_AND_END)), WORDS, (), "", reading.launch, case.fixed,
                  planned=False)  # fmt: skip
    desk = Desk(tell=told.append, outputs=(-1, -1), cards=lambda: next(readings))
    listen = Listen(port=free_port())
    code = Session(given, case, reading.launch, listen, desk=desk, rules=Rules(tries=tries)).run()
    return code, told


def test_a_spill_is_a_reason_to_step_down(tmp_path: Path) -> None:
    code, told = session(tmp_path, iter([EMPTY, FULL, EMPTY, Reading({"pci": GIB})]))
    assert code == 0
    names = [event.name for event in told]
    assert names == ["start", "failed", "step", "start", "ready", "ended"]
    assert told[1].fields["cause"] == "vram-spill-slow"
    freed = told[2].fields["frees_bytes"]
    assert isinstance(freed, int)
    assert freed >= 256 * MIB
    before, after = (start["argv"] for start in starts(tmp_path))
    assert last(before, "-ctk") is None
    assert last(after, "-ctk") == "q8_0" or int(last(after, "-c") or 0) < 16384


def test_the_last_start_serves_although_it_spills(tmp_path: Path) -> None:
    code, told = session(tmp_path, iter([EMPTY, FULL]), tries=1)
    assert code == 0
    ready = next(event for event in told if event.name == "ready")
    assert ready.fields["spilled_bytes"] != 0
