"""What a load took of a GPU beside the engine's buffers: its free memory before the load, less what
was free while everything was loaded and used, less the buffers.

What was missing before (other programs, the driver, the engine's own context) is missing from the
free memory that an engine lists, too; what the load added (workspaces, graphs, pools) is not, and
a ledger has to set it aside.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvwise.device import Device
from kvwise.memory.ledger import Ledger, Line
from kvwise.memory.placement import buffer_name
from kvwise.units import MIB

if TYPE_CHECKING:
    from kvwise.verify.attempt import CardUse

CUT = 2 * MIB
"""Both figures of free memory are cut off to whole MiB."""

_UNSURE = frozenset({"mmproj", "lora"})
"""Companions whose buffers grow with use, or are only estimated."""


def taken_beside(ledger: Ledger, cards: Iterable[CardUse]) -> tuple[tuple[Device, int], ...]:
    """Bytes per device, of a ledger that has what the engine measured; nothing where the engine
    did not tell, or where free memory does not follow what is allocated (a software GPU)."""
    used = {card.name: card for card in cards}
    found = []
    for device, line in zip(ledger.devices, ledger.lines, strict=False):
        card = used.get(buffer_name(device))
        if card is None or card.free_full is None or _UNSURE & {one.of for one in line.extras}:
            continue
        taken = card.free_before - card.free_full - _buffers(line)
        if taken >= -CUT:
            found.append((device, max(0, taken)))
    return tuple(found)


def _buffers(line: Line) -> int:
    return line.total_bytes - line.overhead_bytes
