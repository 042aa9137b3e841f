"""How far a load had come, by what the log said last."""

from __future__ import annotations

from typing import Literal

from kvwise.engine import events as ev

Stage = Literal["start", "weights", "context", "cache", "compute", "warmup", "ready"]
START: Stage = "start"
WEIGHTS: Stage = "weights"
CONTEXT: Stage = "context"
CACHE: Stage = "cache"
COMPUTE: Stage = "compute"
WARMUP: Stage = "warmup"
READY: Stage = "ready"
STAGES = (START, WEIGHTS, CONTEXT, CACHE, COMPUTE, WARMUP, READY)

_OF_CLASS: dict[type, Stage] = {
    ev.ModelOpened: WEIGHTS,
    ev.ModelFact: WEIGHTS,
    ev.ModelKey: WEIGHTS,
    ev.Offloaded: WEIGHTS,
    ev.DeviceUsed: WEIGHTS,
    ev.ContextStarts: CONTEXT,
    ev.ContextFact: CONTEXT,
    ev.KVCache: CACHE,
    ev.RecurrentState: CACHE,
    ev.CompressorState: CACHE,
    ev.ReserveStarts: COMPUTE,
    ev.ModelReady: READY,
    ev.Slots: READY,
}
_OF_BUFFER: dict[str, Stage] = {
    "weights": WEIGHTS, "kv": CACHE, "rs": CACHE, "state": CACHE, "compute": COMPUTE,
}  # fmt: skip
_OF_REMARK: dict[str, Stage] = {
    "warming_up": WARMUP, "served": READY, "new_prompt": READY, "slot": READY,
}  # fmt: skip


def stage_of(event: ev.Event) -> Stage | None:
    """The stage that an event belongs to, None if it says nothing about that."""
    if isinstance(event, ev.Buffer):
        return _OF_BUFFER.get(event.part)
    if isinstance(event, ev.Remark):
        return _OF_REMARK.get(event.code)
    if isinstance(event, ev.Timing):
        return READY if event.name in ("eval", "prompt eval") else None
    return _OF_CLASS.get(type(event))
