"""compute(): bytes of the compute buffer on each device and on the host, and why.

Results are kept per model and setting, so that a search over thousands of candidates asks for
few simulations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.compute.alike import as_one
from kvwise.memory.compute.builder import Unbuildable
from kvwise.memory.compute.estimate import apart, estimate
from kvwise.memory.compute.growing import Mode, growing, layout, reservation
from kvwise.memory.compute.key import Key
from kvwise.memory.compute.reserve import batch
from kvwise.memory.compute.uncollected import uncollected
from kvwise.memory.context import CELLS, Context
from kvwise.memory.ledger import Basis, Cache
from kvwise.memory.placement import HOST, Placement
from kvwise.text import Phrase, phrase

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
    codes: tuple[str, ...] = ()  # of notes for the ledger


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
    return _result(Key.of(model, context, placement, caches, launch, devices, mode))


@lru_cache(maxsize=KEPT)
def _result(key: Key) -> ComputeResult:
    with uncollected():
        return _found(key)


def _found(key: Key) -> ComputeResult:
    try:
        context = as_one(key.model, key.context, key.placement, key.devices)
        of = layout(key.model, context, key.placement, key.caches, key.kinds, key.weights, key.mode)
        blocks = growing(key.context, key.caches) // CELLS
        types = key.context.type_k, key.context.type_v
        found = reservation(of, blocks, types, key.job)
        sizes = found.at(blocks)
    except Unbuildable as why:
        return _estimated(key, str(why))
    except Exception as error:  # noqa: BLE001  (an odd model must not cost the whole ledger)
        return _failed(key, error)
    nodes = found.n_nodes
    reason = phrase("simulated allocation of the {nodes} nodes of llama.cpp's graph", nodes=nodes)
    return ComputeResult(
        _by_device(sizes),
        "computed",
        reason,
        n_nodes=nodes,
        n_leafs=found.n_leafs,
    )


def _estimated(key: Key, why: str, *, without: Collection[str] = ()) -> ComputeResult:
    work = key.job()
    size = batch(work.model, work.context)
    try:
        found = estimate(work, size, pinned=key.mode == "reserved", without=without)
    except Exception:  # noqa: BLE001  (the graph of a near architecture may fail, too)
        found = apart(work, size)
    reason = phrase(
        "upper estimate: the graph of {architecture} is not known ({why})",
        architecture=work.model.architecture,
        why=why,
    )
    return ComputeResult(_by_device(found), "estimated", reason, codes=("compute_estimated",))


def _failed(key: Key, error: Exception) -> ComputeResult:
    """A graph that could not be made: estimated, and in doubt."""
    architecture, kind = key.model.architecture, type(error).__name__
    made = _estimated(key, kind, without=(architecture,))
    doubt = phrase(
        "the graph of {architecture} could not be made for this model ({kind})",
        architecture=architecture,
        kind=kind,
    )
    return replace(made, notes=(doubt,), codes=("compute_graph_failed", *made.codes))


def _by_device(found: list[int]) -> dict[int, int]:
    last = len(found) - 1
    return {HOST if number == last else number: size for number, size in enumerate(found)}
