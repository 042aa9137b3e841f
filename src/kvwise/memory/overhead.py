"""What driver and runtime take on a device beside the engine's buffers: a row per system, backend
and generation of cards.

Source: 180 public llama.cpp logs of 2026 (57 CUDA starts on Windows, 33 on Linux, 34 of Vulkan, 31
of HIP and SYCL), the same that `catalogue/start.py` rests on. A virtual device takes nothing, and
a device whose free memory was read by a program that already held a context has it subtracted. What
was measured on the machine itself (`Device.overhead_bytes`) is better than any row.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.device import Device
from kvwise.memory.backends import ZOO
from kvwise.memory.ledger import Basis
from kvwise.text import Phrase, phrase
from kvwise.units import GIB, MIB

NOTHING = phrase("this kind of device takes nothing beside the engine's buffers")
INSIDE = phrase("what the driver takes is already missing from the free memory")
MEASURED = phrase("measured on this machine")

SMALL_CARD = 5 * GIB
"""Cards of 4 GB, from which Windows keeps less."""


@dataclass(frozen=True, slots=True)
class Row:
    """`system` and `kind` (empty = any), `generation` of CUDA cards by compute capability (major
    numbers, empty = any), `small` = cards of 4 GB, `unified` = memory shared with the system.
    Taken: `fixed` MiB, the CUDA context if `context`, `per_mille` of the total."""

    kind: str
    system: str = ""
    generation: tuple[str, ...] = ()
    small: bool = False
    unified: bool | None = None
    fixed: int = 0
    context: bool = False
    per_mille: int = 0
    why: str = ""


ROWS = (
    Row("cuda", unified=True, fixed=4096,
        why="shared memory: CUDA's free ignores what the system can give back (3 machines)"),
    Row("cuda", "windows", small=True, fixed=725, context=True,
        why="{context}, and 725 MiB that Windows keeps of a 4 GB card (5 cards)"),
    Row("cuda", "windows", fixed=1000, context=True,
        why="{context}, and some 1000 MiB that Windows keeps (52 starts, 888 to 1342)"),
    Row("cuda", generation=("9",), fixed=115, context=True,
        why="{context}, and 115 MiB more on Hopper (one H100: 527 MiB)"),
    Row("cuda", context=True, why="{context} (Linux, 15 cards, Pascal to Blackwell)"),
    Row("hip", "windows", fixed=150, why="HIP on Windows says total - 150 MiB whatever is in use"),
    Row("hip", unified=True, fixed=2048, why="shared memory: the pool is the system's own"),
    Row("hip", fixed=200, why="a HIP runtime on a discrete card takes 20 to 182 MiB (9 starts)"),
    Row("vulkan", "windows", unified=True, per_mille=50, why="the budget is 95 % of the heap"),
    Row("vulkan", "windows", fixed=768,
        why="the driver's budget is the heap - 768 MiB (10 of 13 starts)"),
    Row("vulkan", fixed=256, why="the driver's budget starts some 256 MiB below the heap"),
    Row("metal", why="Metal's limit is for the buffers alone (5 runs: 0 to 933 MiB came later)"),
)  # fmt: skip


def overhead(device: Device) -> tuple[int, Phrase]:
    """Bytes beside the buffers, and why."""
    if device.overhead_bytes is not None:
        return device.overhead_bytes, device.overhead_reason or MEASURED
    row = _row(device)
    if row is None:
        return 0, NOTHING
    if device.free_bytes < device.total_bytes:
        return 0, INSIDE
    return _taken(row, device), _why(row, device)


def basis(device: Device) -> Basis:
    """What that figure stands on: a row of other people's logs is an estimate."""
    if device.overhead_bytes is not None:
        return "measured"
    inside = device.free_bytes < device.total_bytes
    return "computed" if inside or _row(device) is None else "estimated"


def _row(device: Device) -> Row | None:
    if device.source == ZOO:
        return None
    return next((row for row in ROWS if _fits(row, device)), None)


def _fits(row: Row, device: Device) -> bool:
    major = (device.compute_capability or "").partition(".")[0]
    return (
        row.kind == device.kind
        and row.system in ("", device.system)
        and (not row.generation or major in row.generation)
        and (not row.small or device.total_bytes < SMALL_CARD)
        and row.unified in (None, device.unified)
    )


def _taken(row: Row, device: Device) -> int:
    taken = row.fixed * MIB + device.total_bytes * row.per_mille // 1000
    if row.context:
        from kvwise.catalogue import context_bytes  # noqa: PLC0415  (loads the catalogue's data)

        taken += context_bytes(device.sm_count)
    return taken


def _why(row: Row, device: Device) -> Phrase:
    count = "?" if device.sm_count is None else device.sm_count
    context = phrase(
        "a CUDA context: 42 MiB + 2.8 MiB for each of {count} multiprocessors", count=count
    )
    return phrase(row.why, context=context)
