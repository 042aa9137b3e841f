"""What a running server holds: growth after the load, and bytes that slipped off the GPU.

Drivers differ. NVIDIA's library tells what a card has free; on Windows and with AMD's Linux driver
a load that does not fit is put into system memory without a word, and the only signs are that the
card gave less than the plan put there, or that the driver's share of system memory grew.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from kvwise import here
from kvwise.memory.ledger import Ledger
from kvwise.units import GIB, MIB

SPILL_LEAST = 256 * MIB
"""Less than this may be another program's, or the difference between two clocks."""
FULL = GIB // 2
"""A card with more than this left had no reason to spill."""
_GROWTH_SHARE = 8  # an eighth more than at the start is worth a word
_GROWTH_LEAST = 256 * MIB
_GTT = "class/drm"
_ANSWER_S = 5.0
_waiting = threading.Lock()


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes at one moment: free on each card (by its PCI address), and system memory that GPU
    drivers use (by card), as far as the system tells."""

    free: Mapping[str, int] = field(default_factory=dict)
    shared: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spill:
    """`size` bytes of what belongs on the GPUs lie in system memory; how that was seen."""

    size: int
    seen: str  # "shared", "missing", or "counted" by Windows


Reader = Callable[[], Reading]


def read_cards() -> Reading:
    """What NVML and the kernel's GPU drivers say now; empty without any, or when one hangs.

    A driver that is being reset may keep a caller waiting, so it is asked in a thread of its own.
    """
    if not here.may_have_gpu() or _waiting.locked():
        return Reading()
    answer: list[Reading] = []

    def ask() -> None:
        with _waiting:
            answer.append(Reading(_nvml_free(), _gtt_used(Path("/sys"))))

    thread = threading.Thread(target=ask, name="kvwise-cards", daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    return answer[0] if answer else Reading()


def _nvml_free() -> dict[str, int]:
    from kvwise.probe.library import DriverError, Missing  # noqa: PLC0415  (loads a library)
    from kvwise.probe.nvml import Nvml  # noqa: PLC0415

    try:
        cards = Nvml().cards()
    except (Missing, DriverError, OSError):
        return {}
    return {card["pci"]: card["card_free_bytes"] for card in cards if "card_free_bytes" in card}


def _gtt_used(sys: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for file in sorted((sys / _GTT).glob("card*/device/mem_info_gtt_used")):
            found[file.parent.parent.name] = int(file.read_text())
    return found


def spilled(before: Reading, after: Reading, planned_bytes: int) -> Spill | None:
    """What of `planned_bytes` (over all GPUs) did not go to the cards; None = nothing to see.

    Either a driver's own share of system memory grew, or the cards are full and gave up clearly
    less than was planned for them.
    """
    grown = sum(max(0, after.shared[card] - before.shared[card])
                for card in after.shared if card in before.shared)  # fmt: skip
    if grown >= SPILL_LEAST and planned_bytes:
        return Spill(min(grown, planned_bytes), "shared")
    cards = [card for card in after.free if card in before.free]
    if not cards or min(after.free[card] for card in cards) > FULL:
        return None
    given = sum(before.free[card] - after.free[card] for card in cards)
    missing = planned_bytes - max(0, given)
    return Spill(missing, "missing") if missing >= SPILL_LEAST else None


def counted(pid: int, ledger: Ledger | None, given: str | None = None) -> Spill | None:
    """What Windows counts of a process in memory that GPUs share, beyond what the engine itself
    puts there (its pinned host buffers); None elsewhere. `given` is another library, for tests."""
    if ledger is None or not on_gpus(ledger) or (sys.platform != "win32" and given is None):
        return None
    from kvwise.probe.library import DriverError, Missing  # noqa: PLC0415  (loads a library)
    from kvwise.probe.pdh import SharedUsage  # noqa: PLC0415

    try:
        used = SharedUsage(None, given).bytes_of(pid)
    except (Missing, DriverError, OSError):
        return None
    beyond = used - ledger.host.total_bytes
    return Spill(min(beyond, on_gpus(ledger)), "counted") if beyond >= SPILL_LEAST else None


def on_gpus(ledger: Ledger | None) -> int:
    """Bytes that a plan puts on GPUs; 0 when nothing is planned."""
    if ledger is None:
        return 0
    return sum(line.total_bytes for line in ledger.lines if not line.host)


@dataclass(frozen=True, slots=True)
class Growth:
    """Host memory of the server now and when it was ready; `free_left` of the fullest card."""

    now_bytes: int
    ready_bytes: int


class Shrinking:
    """Watches what the cards have free after it was ready, and reports each further loss once."""

    def __init__(self, ready: Reading) -> None:
        self.ready = self._told = ready

    def look(self, now: Reading) -> tuple[int, int] | None:
        """(bytes free on the card that lost most, its loss since it was ready), if it is news."""
        losses = {
            card: self._told.free[card] - now.free[card]
            for card in now.free
            if card in self._told.free
        }
        worst = max(losses, key=lambda card: losses[card], default=None)
        if worst is None or losses[worst] < _GROWTH_LEAST:
            return None
        self._told = now
        return now.free[worst], self.ready.free[worst] - now.free[worst]


class Growing:
    """Watches a process after it was ready and reports each further eighth once."""

    def __init__(self, pid: int) -> None:
        self._process = _process(pid)
        self.ready_bytes = self._told = self._rss()

    def look(self) -> Growth | None:
        """Growth that has not been told yet."""
        now = self._rss()
        if now - self._told < max(_GROWTH_LEAST, self._told // _GROWTH_SHARE):
            return None
        self._told = now
        return Growth(now, self.ready_bytes)

    def _rss(self) -> int:
        """Resident bytes that are the process's own; pages of the model's file are not."""
        if self._process is None:
            return 0
        try:
            info = self._process.memory_info()
        except psutil.Error:
            return 0
        return int(info.rss) - int(getattr(info, "shared", 0))


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None
