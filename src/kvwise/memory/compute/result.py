"""compute(): bytes of the compute buffer on each device and on the host, and why.

Results are kept per model and setting, so that a search over thousands of candidates asks for
few simulations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.backends import BackendKind, kind_of
from kvwise.memory.compute.builder import Unbuildable
from kvwise.memory.compute.estimate import estimate
from kvwise.memory.compute.families import UNPROVEN
from kvwise.memory.compute.reserve import Job, batch, build, job, reserved, sizes
from kvwise.memory.context import Context
from kvwise.memory.ledger import Basis, Cache
from kvwise.memory.placement import HOST, Placement
from kvwise.text import Phrase, phrase

Mode = Literal["reserved", "no-alloc"]

KEPT = 8192
"""Results remembered."""


@dataclass(frozen=True, slots=True)
class ComputeResult:
    """Bytes per device number (`HOST` = host memory), and how they were found.

    `basis` is `computed` when the very graph of llama.cpp was built, `estimated` when the figure
    is an upper estimate. `notes` are phrases about what could not be checked.
    """

    by_buffer: Mapping[int, int]
    basis: Basis
    reason: Phrase
    notes: tuple[Phrase, ...] = ()
    n_nodes: int = 0  # of the graph, 0 when it is not known
    n_leafs: int = 0


@dataclass(frozen=True, slots=True)
class _Key:
    """All that a result depends on; caches and devices follow from the rest."""

    model: Model
    context: Context
    placement: Placement
    kinds: tuple[BackendKind, ...]
    weights: tuple[object, ...]
    mode: Mode
    caches: tuple[Cache, ...] = field(compare=False)
    launch: Launch = field(compare=False)
    devices: tuple[Device, ...] = field(compare=False)


def compute(  # noqa: PLR0917  (everything that was resolved, in its order)
    model: Model,
    context: Context,
    placement: Placement,
    caches: tuple[Cache, ...],
    launch: Launch,
    devices: Sequence[Device],
    *,
    mode: Mode = "reserved",
) -> ComputeResult:
    """The compute buffers of a context; `devices` are those that `placement.select` chose.

    `mode` "reserved": what a really allocating llama.cpp reserves; "no-alloc": what its `--fit`
    pass and the zoo show (they lose the pins of the graph, which matters for two or more GPUs and
    for caches on the host). Source: src/llama-context.cpp reserve, b10605.
    """
    return _result(
        _Key(
            model,
            context,
            placement,
            tuple(kind_of(device) for device in devices),
            (launch.override_tensor, launch.n_cpu_moe, launch.load_mtp, launch.mmap, launch.repack),
            mode,
            caches,
            launch,
            tuple(devices),
        )
    )


@lru_cache(maxsize=KEPT)
def _result(key: _Key) -> ComputeResult:
    work = job(key.model, key.context, key.placement, key.caches, key.launch, key.devices)
    try:
        graph = build(work)
        found = (
            reserved(work, graph) if key.mode == "reserved" else sizes(work, graph, pinned=False)
        )
    except Unbuildable as why:
        return _estimated(work, str(why))
    nodes = len(graph.nodes)
    reason = phrase("simulated allocation of the {nodes} nodes of llama.cpp's graph", nodes=nodes)
    return ComputeResult(
        _by_device(found),
        "computed",
        reason,
        _doubts(key.model.architecture),
        n_nodes=nodes,
        n_leafs=len(graph.leafs),
    )


def _doubts(architecture: str) -> tuple[Phrase, ...]:
    if architecture not in UNPROVEN:
        return ()
    return (
        phrase(
            "the graph of {architecture} follows llama.cpp's source, no recorded graph proves it",
            architecture=architecture,
        ),
    )


def _estimated(work: Job, why: str) -> ComputeResult:
    found = estimate(work, batch(work.model, work.context))
    reason = phrase(
        "upper estimate: the graph of {architecture} is not known ({why})",
        architecture=work.model.architecture,
        why=why,
    )
    return ComputeResult(_by_device(found), "estimated", reason)


def _by_device(found: list[int]) -> dict[int, int]:
    last = len(found) - 1
    return {HOST if number == last else number: size for number, size in enumerate(found)}
