"""What is free on a GPU before the model is loaded, and what to leave alone: one row per case.

Figures are MiB, from 180 public llama.cpp logs (November 2026): CUDA totals of 57 Windows and 33
Linux starts, Vulkan budgets of 34, HIP and SYCL totals of 31, and 20 runs that printed what was
unaccounted for after them. A CUDA context takes 42 MiB + 2.8 per multiprocessor, fitted to the
smallest gap of 15 GPUs; Windows keeps about 1000 more, whatever the size of the card. A probe of
the machine itself is better than any row here.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwise.text import Phrase, phrase
from kvwise.units import MIB


@dataclass(frozen=True, slots=True)
class Start:
    """`os` and `backend` (empty = any), `who` the card is, `display`: a screen hangs on it (None =
    either). Taken at start: `taken` + the CUDA context if `context` + `per_mille` of the total.
    `reserve` is for what comes later: pools, cuBLAS, other programs. `block_per_mille` of what is
    free is the largest single allocation (0 = no limit is known)."""

    os: str
    backend: str
    who: str
    display: bool | None
    taken: int
    reserve: int
    why: str
    context: bool = False
    per_mille: int = 0
    block_per_mille: int = 0


STARTS = (
    # an Orin NX with 12,229 MiB free refused 6,638 in one piece, and took smaller ones
    Start("linux", "", "gb10", None, 4096, 4096, "memory shared with the system"),
    Start("linux", "", "jetson 8", None, -1280, 1280, "memory shared with the system",
          per_mille=500, block_per_mille=500),
    Start("linux", "", "jetson", None, -1280, 1280, "memory shared with the system",
          per_mille=350, block_per_mille=500),
    Start("linux", "cuda", "any", False, 0, 192, "growth after loading was at most 75 MiB",
          context=True),
    Start("linux", "cuda", "any", True, 512, 512, "the desktop changes while the model runs",
          context=True),
    Start("windows", "cuda", "4 GB", None, 725, 384, "growth after loading", context=True),
    Start("windows", "cuda", "any", False, 1000, 640, "growth after loading, 9 of 10 starts",
          context=True),
    Start("windows", "cuda", "any", True, 1000, 896,
          "other programs hold memory that CUDA calls free", context=True),
    Start("windows", "hip", "card", None, 150, 1024, "HIP's free does not see other programs"),
    Start("linux", "hip", "card", False, 200, 256, "growth after loading was 71 MiB"),
    Start("linux", "hip", "card", True, 456, 640, "the desktop changes while the model runs"),
    Start("", "hip", "shared", None, 2048, 2048, "the pool is the system's own memory"),
    Start("windows", "vulkan", "amd card", None, 0, 640, "growth after loading was 426 MiB",
          per_mille=50),
    Start("windows", "vulkan", "card", None, 768, 512, "growth after loading, 9 of 10 runs"),
    Start("linux", "vulkan", "card", False, 256, 256, "growth after loading was 43 MiB"),
    Start("linux", "vulkan", "card", True, 1024, 512, "the desktop changes while the model runs"),
    Start("", "vulkan", "shared", None, 2048, 2048, "the pool is the system's own memory"),
    Start("linux", "sycl", "any", None, 256, 768, "the driver tells little about what is free"),
    Start("macos", "metal", "16 GB", None, 0, 512, "beyond the limit Metal fails at once"),
    Start("macos", "metal", "48 GB", None, 0, 1024, "beyond the limit Metal fails at once"),
    Start("macos", "metal", "any", None, 0, 2048, "beyond the limit Metal fails at once"),
    Start("", "", "any", None, 0, 1024, "llama.cpp's own margin; nothing measured here"),
)  # fmt: skip


def context_bytes(sm_count: int | None) -> int:
    """A CUDA context: 42 MiB + 2.8 MiB per multiprocessor; 576 MiB when their number is unknown
    (the largest seen, on 188 multiprocessors)."""
    return 576 * MIB if sm_count is None else (420 + 28 * sm_count) * MIB // 10


def start_of(os: str, backend: str, is_a: frozenset[str], display: bool) -> Start:
    """The first row that matches; `is_a` are the card's traits (see `traits`)."""
    return next(
        row
        for row in STARTS
        if row.os in ("", os)
        and row.backend in ("", backend)
        and row.who in is_a
        and row.display in (None, display)
    )


def traits(vendor: str, family: str, nominal_mib: int, *, unified: bool) -> frozenset[str]:
    """What `Start.who` can ask for."""
    found = {"any", "shared" if unified else "card"}
    if vendor == "AMD" and not unified:
        found.add("amd card")
    if family == "Jetson":
        found.add("jetson 8" if nominal_mib <= 8192 else "jetson")
    if family == "DGX Spark":
        found.add("gb10")
    found |= {f"{size} GB" for size in (4, 16, 48) if nominal_mib <= size * 1024}
    return frozenset(found)


def free_at_start(row: Start, total_bytes: int, sm_count: int | None) -> int:
    """Total minus what the row takes, never below zero nor above the total."""
    taken = row.taken * MIB + total_bytes * row.per_mille // 1000
    if row.context:
        taken += context_bytes(sm_count)
    return min(total_bytes, max(0, total_bytes - taken))


def largest_at_start(row: Start, free_bytes: int) -> int | None:
    """The largest single allocation of what is free, None = no limit is known."""
    return free_bytes * row.block_per_mille // 1000 if row.block_per_mille else None


def reason(row: Start) -> Phrase:
    """Why the reserve is what it is."""
    return phrase("{reserve} MiB kept free: {why}", reserve=row.reserve, why=phrase(row.why))
