"""A device: what the engine can put bytes on."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("cuda", "vulkan", "hip", "metal", "generic")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, here or only imagined. Sizes in bytes; `free_bytes` is before the model is loaded.

    `kind` picks the allocation rules (`generic` accepts everything: RPC-like, see zoo/README.md).
    `reserve_bytes` is kept free by the planner.
    """

    name: str
    kind: str = "generic"
    total_bytes: int = 0
    free_bytes: int = 0
    index: int = 0
    bandwidth_bytes_per_s: int | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    reserve_bytes: int | None = None
    unified: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine's own memory: total, available, and the limit that binds (cgroup, rlimit)."""

    total_bytes: int = 0
    available_bytes: int = 0
    limit_bytes: int | None = None
    cpu_features: tuple[str, ...] = ()  # as Linux names them (`avx2`); empty = unknown
