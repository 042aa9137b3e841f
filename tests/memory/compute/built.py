"""Builds the graph of a traced model the way `compute` does, and compares it with the trace."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from traces import Trace, graph_of, load

from kvwise.arch import describe
from kvwise.gguf.model import Model
from kvwise.gguf.source import BytesSource
from kvwise.gguf.zoo import read_zoo
from kvwise.memory.cache import caches
from kvwise.memory.compute.graph import Graph, Tensor
from kvwise.memory.compute.reserve import Job, build, job
from kvwise.memory.context import resolve
from kvwise.memory.placement import place, select
from kvwise.memory.zoo_config import read_config


@cache
def model_of(architecture: str, name: str) -> Model:
    """The traced model, read like any zoo JSON."""
    row = next(m for m in load(architecture)["models"] if m["name"] == name)
    tensors = [[n, shape, kind, None, layers] for n, shape, kind, layers in row["weights"]]
    document = {"metadata": row["metadata"], "tensors": tensors}
    return describe(read_zoo(BytesSource(json.dumps(document).encode(), "trace.json")))


def job_of(trace: Trace) -> Job:
    """The traced configuration, resolved."""
    model = model_of(trace.architecture, trace.model["name"])
    return job_for(model, trace.data["config"])


def job_for(model: Model, config: dict[str, Any]) -> Job:
    zoo = read_config(config)
    devices = select(zoo.launch, zoo.devices)
    placement = place(model, zoo.launch, devices)
    context = resolve(model, zoo.launch, placement, devices)
    kept = caches(model, context, placement, devices)
    return job(model, context, placement, kept, zoo.launch, devices)


def differences(trace: Trace) -> list[str]:
    """What is different between the built graph and the traced one, first things first."""
    mine, real = build(job_of(trace)), graph_of(trace.data)
    found: list[str] = []
    for part in ("leafs", "nodes"):
        ours, theirs = getattr(mine, part), getattr(real, part)
        for a, b in zip(ours, theirs, strict=False):
            if _facts(a) != _facts(b):
                found.append(f"{part}: built {a} {_facts(a)}, traced {b} {_facts(b)}")
        if len(ours) != len(theirs):
            found.append(f"{len(ours)} {part} built, {len(theirs)} traced")
    if not found and mine.pins != real.pins:
        found.append(f"pins {mine.pins} built, {real.pins} traced")
    return found


def _facts(t: Tensor) -> tuple[Any, ...]:
    """All that scheduler and allocator look at, with sources as indices."""
    src = [None if s is None else s.index for s in t.src]
    base = None if t.base is None else t.base.index
    weight = t.name if t.weight else ""
    bias = t.params if t.op == "FLASH_ATTN_EXT" else 0
    return (
        t.op, t.type.name, t.ne, t.nb, src, base, t.offset, t.flags, t.buffer, weight, bias,
    )  # fmt: skip


__all__ = ["Graph", "differences", "job_for", "job_of", "model_of"]
