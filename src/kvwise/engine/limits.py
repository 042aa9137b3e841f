"""What a child process may do, and the environment that it gets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil

from kvwise.units import MIB


def _available_bytes() -> int:
    return int(psutil.virtual_memory().available)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may do. None = no limit. `silence_s` counts only until it is ready, and a
    child that still reads from disk or fills memory is not silent; one that only computes may do
    so for `busy_s` (None = no longer than it may be silent)."""

    silence_s: float | None = None
    busy_s: float | None = None
    memory_floor_bytes: int | None = 128 * MIB  # end it when the machine has less than this
    address_space_bytes: int | None = None  # RLIMIT_AS
    oom_score: int = 1000
    available_bytes: Callable[[], int] = _available_bytes


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without engine settings of the user's shell, and without backtraces."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_ARG_")}
    kept["GGML_NO_BACKTRACE"] = "1"  # else an assertion starts gdb
    kept.update(extra or {})
    return kept
