"""The logits and embeddings buffer: host memory, one row per sequence at start.

Source: src/llama-context.cpp output_reserve, b10605.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.device import Device
from kvwise.gguf.model import Model
from kvwise.memory.backends import kind_of
from kvwise.memory.context import Context
from kvwise.memory.placement import HOST, Placement

FLOAT = 4


def output_bytes(model: Model, context: Context) -> int:
    """Bytes reserved when the context starts; more rows at once make it grow later."""
    embeddings = context.embeddings or model.architecture == "t5"
    per_row = model.n_vocab + (model.n_embd_out if embeddings else 0)
    return FLOAT * context.n_seq_max * per_row


def output_buffer(placement: Placement, devices: Sequence[Device]) -> str:
    """The buffer type it is in: pinned memory of the output layer's device where there is some."""
    if placement.output == HOST:
        return "CPU"
    return kind_of(devices[placement.output]).host_buffer or "CPU"
