"""The two sides: llama.cpp's own `--fit`, and kvwise's plan, asked the same."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from grid import Case

from kvwise.engine import fit
from kvwise.engine.noalloc import HOST
from kvwise.engine.simulated import tell
from kvwise.engine.virtual import VirtualDevices, VirtualGPU
from kvwise.errors import EngineError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.placement import buffer_name, select
from kvwise.plan.choose import Plan, plan
from kvwise.plan.goal import Goal
from kvwise.units import MIB

T = TypeVar("T")
START = Launch(n_seq_max=1, n_outputs_max=0, fit=False)
"""One slot. All logits, as llama-fit-params counts them and has no flag to change."""
PLAIN = frozenset({"type_k", "type_v", "n_ubatch", "n_batch"})
PLACED = frozenset(
    {"n_gpu_layers", "tensor_split", "override_tensor", "n_cpu_moe", "offload_kqv", "split_mode"}
)


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds by the clock and of processor time, children included."""

    wall: float
    cpu: float


def timed(work: Callable[[], T]) -> tuple[T, Took]:
    wall, cpu = time.monotonic(), _cpu()
    result = work()
    return result, Took(time.monotonic() - wall, _cpu() - cpu)


def _cpu() -> float:
    own, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, _CHILDREN))
    return own.ru_utime + own.ru_stime + theirs.ru_utime + theirs.ru_stime


_CHILDREN = resource.RUSAGE_CHILDREN


def theirs(tool: Path, twin: Path, case: Case) -> Launch | None:
    """What llama.cpp would start with, None when it finds nothing."""
    with VirtualDevices(map(VirtualGPU.of, case.devices)) as gpus:
        try:
            chosen = fit.choose(
                tool, twin, START, gpus, fixed=("-fitt", str(case.margin // MIB)), limit_s=600
            )
        except EngineError as error:
            if "failed to fit" in str(error) or getattr(error, "outcome", None) is not None:
                return None
            raise
        names = {ours: buffer_name(device)
                 for ours, device in zip(gpus.buffers, case.devices, strict=True)}  # fmt: skip
    pairs = [part.rpartition("=") for part in chosen.override_tensor.split(",") if part]
    return replace(
        START,
        n_ctx=chosen.n_ctx,
        n_gpu_layers=chosen.n_gpu_layers,
        tensor_split=tuple(map(float, chosen.tensor_split)),
        override_tensor=tuple((pattern, names.get(buffer, buffer)) for pattern, _, buffer in pairs),
    )


def ours(model: Model, case: Case, kind: str, other: Launch | None) -> Plan:
    """A plan. `same`: f16 caches, -ub 512; `free`: whatever the quality floor admits; `same
    context`: as `same`, with llama.cpp's context; `placed` and `placed free`: as `same` and `free`
    with llama.cpp's own placement, for the longest context.

    Raises Impossible, Refused, UsageError.
    """
    fixed: frozenset[str] = frozenset() if "free" in kind else PLAIN
    floor = "high" if "free" in kind else "lossless"
    launch, purpose = START, "chat"
    if kind == "same context" and other is not None:
        launch, fixed = replace(START, n_ctx=other.n_ctx), fixed | {"n_ctx"}
    if kind.startswith("placed") and other is not None:
        launch, purpose = replace(other, n_ctx=0), "max-context"
        fixed |= PLACED
    goal = Goal(purpose, min_quality=floor)
    return plan(model, case.devices, goal, launch=launch, fixed=fixed)


@dataclass(frozen=True, slots=True)
class Said:
    """What the engine's pass says of a launch, per card: bytes, and how exactly it prints them."""

    low: tuple[int, ...]
    high: tuple[int, ...]


def engine_says(tool: Path, twin: Path, case: Case, launch: Launch) -> Said:
    """The engine's own no-alloc pass over our launch, on the cards that the launch uses.

    Raises Refused, EngineError.
    """
    used = select(launch, case.devices)
    main_gpu = 0 if launch.split_mode == "none" else launch.main_gpu
    asked = replace(launch, devices=(), main_gpu=main_gpu)
    with VirtualDevices(map(VirtualGPU.of, used)) as gpus:
        said = fit.measure(tool, twin, asked, gpus, limit_s=600)
    assert any(row.device == HOST for row in said.rows)  # noqa: S101 (else its log was cut)
    low, high = [], []
    for (each,) in tell(said, used)[: len(used)]:
        parts = (each.weights, each.context, each.compute)
        low.append(sum(part.low for part in parts))
        high.append(sum(part.high for part in parts))
    return Said(tuple(low), tuple(high))
