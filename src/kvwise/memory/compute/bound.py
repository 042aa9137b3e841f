"""Never less than the compute buffers, in microseconds: a closed form instead of a graph.

For a search that only wants to know whether something surely fits. One form holds for all
contexts, micro-batches and numbers of outputs of a layout; it is put together once, out of the
weights' shapes. That it is never below the exact figure is not proved but tested
(tests/memory/compute/test_bound.py): `ROOM` is what the closed form missed at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.backends import BackendKind, kind_of
from kvwise.memory.compute.closed import Closed, cells_of, form
from kvwise.memory.compute.families import BUILDERS
from kvwise.memory.compute.reserve import batch, job
from kvwise.memory.context import Context
from kvwise.memory.ledger import Cache
from kvwise.memory.placement import Placement
from kvwise.units import MIB

ROOM = MIB
"""Bytes that small parts may take beside what the form adds up, and one more residual stream."""

WIDER = {
    "bailingmoe3": 200, "bitnet": 200, "deepseek32": 200, "deepseek4": 150, "dots3note": 200,
    "gemma3n": 300, "gemma4": 200, "glm-dsa": 200, "kimi-k3": 150, "kimi-linear": 200,
    "minicpm3": 200, "minimax-m3": 200, "mamba2": 125, "nemotron_h_moe": 300, "qwen3next": 150,
    "qwen35": 150, "qwen35moe": 150, "qwen3tts": 150,
}  # fmt: skip
"""Architectures with more side by side than the form knows: their bound is so many per cent."""


@dataclass(frozen=True, slots=True)
class _Key:
    """A layout: what the form depends on."""

    model: Model
    context: Context
    placement: Placement
    kinds: tuple[BackendKind, ...]
    weights: tuple[object, ...]
    caches: tuple[Cache, ...] = field(compare=False)
    launch: Launch = field(compare=False)
    devices: tuple[Device, ...] = field(compare=False)


def bound(  # noqa: PLR0917  (the order of `compute`)
    model: Model,
    context: Context,
    placement: Placement,
    caches: tuple[Cache, ...],
    launch: Launch,
    devices: Sequence[Device],
) -> list[int] | None:
    """Bytes per device, the host last, that `compute` never exceeds; None where there is no bound.

    There is none for contexts of MTP layers, encoders with decoders, and architectures without a
    graph of their own.
    """
    if context.mtp or model.has_encoder or model.architecture not in BUILDERS:
        return None
    family = replace(
        context, n_ctx=0, n_ctx_seq=0, n_batch=0, n_ubatch=0, n_outputs_max=0, notes=()
    )
    found = _form(
        _Key(
            model,
            family,
            placement,
            tuple(kind_of(device) for device in devices),
            (launch.override_tensor, launch.n_cpu_moe, launch.load_mtp, launch.mmap, launch.repack),
            caches,
            launch,
            tuple(devices),
        )
    )
    size = batch(model, context)
    room = ROOM + found.stream * size.n_tokens
    wider = WIDER.get(model.architecture, 100)
    made = found.at(size, cells_of(caches))
    return [wider * each // 100 + room if each else 0 for each in made]


@lru_cache(maxsize=256)
def _form(key: _Key) -> Closed:
    return form(job(key.model, key.context, key.placement, key.caches, key.launch, key.devices))
