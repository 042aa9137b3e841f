"""Cache types that make one and the same graph, so that it is built once for all of them.

With flash attention on the GPUs a cache is only looked at (views take no memory of their own), and
what is read, written and cast around it depends on whether a type is quantized, not on which type
it is. Not so where attention is left to another device, where part of the cache is on the host, for
f32, f16 and bf16 among each other, in T5, whose decoder copies its cache because it attends
without flash attention, or for indexers that the device does not run; nor where rows of a cache
are put together or copied in its own type (`Reservation.types`). Kinds that
were compared: KINDS; the proof is a comparison (tests/memory/compute/test_alike.py), not a rule of
llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.memory import flash
from kvwise.memory.backends import kind_of
from kvwise.memory.compute.devices.cuda import INDEXER_TYPES, indexer_sized
from kvwise.memory.context import Context
from kvwise.memory.placement import HOST, Placement

KINDS = frozenset({"cuda", "hip", "vulkan", "generic"})
QUANTIZED = frozenset({"q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"})
_SHOWN = "q8_0"
"""The one that stands for all."""


def as_one(
    model: Model, context: Context, placement: Placement, devices: Sequence[Device]
) -> Context:
    """The context with the one type that stands for its own, if they make the same graph."""
    if context.type_k not in QUANTIZED or context.type_v not in QUANTIZED or model.has_encoder:
        return context
    if model.indexer_n_head and not all(_indexes(model, context, each) for each in devices):
        return context
    whole = context.offload_kqv and HOST not in (*placement.layers, placement.output)
    known = all(kind_of(device).name in KINDS for device in devices)
    if not (devices and whole and known and context.flash_attn) or context.mtp:
        return context
    shown = replace(context, type_k=_SHOWN, type_v=_SHOWN)
    same = all(
        flash.supported(model, context, devices[placement.of(layer)], layer)
        and flash.supported(model, shown, devices[placement.of(layer)], layer)
        for layer in flash.attention_layers(model, context)
    )
    return shown if same else context


def _indexes(model: Model, context: Context, device: Device) -> bool:
    """Whether the fused indexer of a model runs on the device that has its keys."""
    kind = kind_of(device)
    if not kind.row_padding:  # neither CUDA nor HIP
        return True
    sized = kind.any_indexer or indexer_sized(model.indexer_n_head, model.indexer_head_size)
    return sized and context.type_k in INDEXER_TYPES
