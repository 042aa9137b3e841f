"""What should stay free on a GPU beside the launch: a reserve that was asked for, and one that is
only advised.

What somebody asked for (`--reserve`, `reserve=` of `--gpu`) counts: a launch that leaves less does
not fit. What a catalogue, a probe or llama.cpp's own margin advise is room for growth after
loading; a launch that leaves less fits, and a note says so. The planner keeps either free itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvwise.device import Device
from kvwise.memory.ledger import Ledger, Note
from kvwise.text import phrase
from kvwise.units import show


def keeping(ledger: Ledger) -> Ledger:
    """The ledger with the reserves that were asked for, and notes on the others."""
    lines = tuple(
        replace(line, reserve_bytes=asked_of(device))
        for device, line in zip(ledger.devices, ledger.lines, strict=False)
    )
    return replace(
        ledger,
        lines=(*lines, ledger.host),
        notes=(*ledger.notes, *_advice(ledger)),
    )


def asked_of(device: Device) -> int:
    """Bytes that somebody wants kept free; a reserve with a reason is only advised."""
    return 0 if device.reserve_reason is not None else device.reserve_bytes or 0


def _advice(ledger: Ledger) -> Iterator[Note]:
    for device, line in zip(ledger.devices, ledger.lines, strict=False):
        wanted, left = device.reserve_bytes or 0, line.headroom_bytes
        if device.reserve_reason is None or left is None or not 0 <= left < wanted:
            continue
        yield Note(
            "below_reserve",
            phrase(
                "{left} left on {buffer} are less than is advised ({why}): `kvwise plan` would not "
                "go so far",
                left=show(left),
                buffer=line.buffer,
                why=device.reserve_reason,
            ),
        )
