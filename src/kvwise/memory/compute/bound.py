"""About the most that the compute buffers take, in microseconds: a closed form, no graph.

One form holds for all contexts, micro-batches and numbers of outputs of a layout; it is put
together once, out of the weights' shapes. It is meant to be never below the exact figure, and a few
cells of the golden set were below it: no plan rests on it, only benchmarks/compute.py shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.compute.closed import Closed, cells_of, form
from kvwise.memory.compute.families import BUILDERS
from kvwise.memory.compute.key import Key
from kvwise.memory.compute.reserve import batch
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


def bound(  # noqa: PLR0917  (the order of `compute`)
    model: Model,
    context: Context,
    placement: Placement,
    caches: tuple[Cache, ...],
    launch: Launch,
    devices: Sequence[Device],
) -> list[int] | None:
    """Bytes per device, the host last, that `compute` hardly exceeds; None where there is no form.

    There is none for contexts of MTP layers, encoders with decoders, and architectures without a
    graph of their own.
    """
    if context.mtp or model.has_encoder or model.architecture not in BUILDERS:
        return None
    family = replace(
        context, n_ctx=0, n_ctx_seq=0, n_batch=0, n_ubatch=0, n_outputs_max=0, notes=()
    )
    found = _form(Key.of(model, family, placement, caches, launch, devices))
    size = batch(model, context)
    room = ROOM + found.stream * size.n_tokens
    wider = WIDER.get(model.architecture, 100)
    made = found.at(size, cells_of(caches))
    return [wider * each // 100 + room if each else 0 for each in made]


@lru_cache(maxsize=256)
def _form(key: Key) -> Closed:
    return form(key.job())
