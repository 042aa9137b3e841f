"""Adds everything up: model, launch, devices -> Ledger.

The order is the engine's own: choose devices, place layers, resolve the context (or refuse),
then weights, caches, output and compute buffers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kvwise.device import Device, Host
from kvwise.gguf.model import Model
from kvwise.launch import NEWEST_BUILD, Launch
from kvwise.memory import legality, reasons
from kvwise.memory.backends import kind_of
from kvwise.memory.cache import caches
from kvwise.memory.compute import ComputeResult, compute
from kvwise.memory.context import Context, resolve
from kvwise.memory.ledger import Basis, Cache, Ledger, Line, Note, Part
from kvwise.memory.loader import CPU, Spot
from kvwise.memory.output import output_buffer, output_bytes
from kvwise.memory.overhead import overhead
from kvwise.memory.placement import HOST, Placement, buffer_name, place, select
from kvwise.memory.weights import Weights, weigh
from kvwise.text import Phrase, phrase

KNOWN_BUILDS = frozenset({NEWEST_BUILD})
"""Builds whose rules were checked against measurements."""

ComputeMode = Literal["reserved", "no-alloc", "none"]
"""What a really allocating engine reserves; what its `--fit` pass and the zoo show; left out, for
a quick lower bound."""

_LEFT_OUT = ComputeResult({}, "estimated", phrase("compute buffers were left out"))


@dataclass(frozen=True, slots=True)
class _Made:
    """Everything that was found for one launch."""

    model: Model
    launch: Launch
    context: Context
    placement: Placement
    devices: tuple[Device, ...]
    weights: Weights
    caches: tuple[Cache, ...]
    compute: ComputeResult


def account(
    model: Model,
    launch: Launch,
    devices: Sequence[Device],
    *,
    host: Host | None = None,
    compute_mode: ComputeMode = "reserved",
) -> Ledger:
    """The ledger of a launch on these devices (all there are, in the engine's order).

    Raises Refused when llama.cpp would refuse the setting, UsageError for a launch that names
    what is not there.
    """
    made = _make(model, launch, devices, host, compute_mode)
    parts = _parts(made)
    lines = [_gpu_line(made, number, parts[number]) for number in range(len(made.devices))]
    lines.append(_host_line(made, parts[HOST], host))
    return Ledger(
        model=model,
        launch=launch,
        context=made.context,
        placement=made.placement,
        devices=made.devices,
        lines=tuple(lines),
        caches=made.caches,
        notes=tuple(_notes(made)),
        doubts=tuple(_doubts(made)),
        compute_mode=compute_mode,
    )


def _make(
    model: Model,
    launch: Launch,
    devices: Sequence[Device],
    host: Host | None,
    compute_mode: ComputeMode,
) -> _Made:
    chosen = select(launch, devices)
    placement = place(model, launch, chosen, host)
    context = resolve(model, launch, placement, chosen)
    weights = weigh(model, launch, placement, chosen, host)
    kept = caches(model, context, placement, chosen, launch.build)
    work = _LEFT_OUT
    if compute_mode != "none":
        work = compute(model, context, placement, kept, launch, chosen, mode=compute_mode)
        if work.n_nodes:
            n_tensors = sum(weights.counts.values())
            legality.check_graph(model, context, n_tensors, work.n_nodes, work.n_leafs)
    return _Made(model, launch, context, placement, chosen, weights, kept, work)


def _parts(made: _Made) -> dict[int, tuple[Part, ...]]:
    """The buffers of every line, the line's own buffer first."""
    sizes: dict[Spot, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    own = {HOST: CPU} | {number: buffer_name(gpu) for number, gpu in enumerate(made.devices)}
    for number, name in own.items():
        sizes[Spot(number, name)]  # a line without bytes still has its buffer
    for spot, size in made.weights.by_spot.items():
        name = f"{spot.buffer}_Mapped" if spot in made.weights.mapped else spot.buffer
        sizes[Spot(spot.device, name)]["weights_bytes"] += size
    for cache in made.caches:
        for number, size in cache.by_device.items():
            sizes[Spot(number, own[number])]["context_bytes"] += size
    for number, size in made.compute.by_buffer.items():
        name = _work_buffer(made) if number == HOST else own[number]
        sizes[Spot(number, name)]["compute_bytes"] += size
    output = Spot(HOST, output_buffer(made.placement, made.devices))
    sizes[output]["output_bytes"] += output_bytes(made.model, made.context)
    lines: dict[int, list[Part]] = {number: [] for number in own}
    for spot, values in sizes.items():
        lines[spot.device].append(Part(spot.buffer, **values))
    return {number: tuple(parts) for number, parts in lines.items()}


def _work_buffer(made: _Made) -> str:
    """Host compute memory is pinned where the first device offers it."""
    pinned = kind_of(made.devices[0]).host_buffer if made.devices else ""
    return pinned or CPU


def _gpu_line(made: _Made, number: int, parts: tuple[Part, ...]) -> Line:
    device = made.devices[number]
    extra, why = overhead(device)
    reason = _reasons(made, number, buffer_name(device))
    return Line(
        buffer=buffer_name(device),
        device=device.name,
        host=False,
        parts=parts,
        overhead_bytes=extra,
        free_bytes=device.free_bytes or None,
        basis=_basis(made),
        reasons=reason | {"overhead": why},
    )


def _host_line(made: _Made, parts: tuple[Part, ...], host: Host | None) -> Line:
    reason = _reasons(made, HOST, CPU)
    reason["output"] = reasons.output(made.context, made.model.n_vocab, made.launch)
    return Line(
        buffer=CPU,
        device=None,
        host=True,
        parts=parts,
        free_bytes=(host.usable_bytes or None) if host else None,
        basis=_basis(made) | {"output": "computed"},
        reasons=reason,
    )


def _basis(made: _Made) -> dict[str, Basis]:
    return {"weights": "computed", "context": "computed", "compute": made.compute.basis}


def _reasons(made: _Made, number: int, name: str) -> dict[str, Phrase]:
    found: dict[str, Phrase] = {}
    count = made.weights.count_on(number)
    if count:
        mapped = any(spot.device == number for spot in made.weights.mapped)
        found["weights"] = reasons.weights_on(
            name, count, made.launch, host=number == HOST, mapped=mapped
        )
    kept = [c.reason for c in made.caches if c.reason and c.by_device.get(number)]
    context = reasons.together(kept)
    if context:
        found["context"] = context
    if made.compute.by_buffer.get(number):
        found["compute"] = made.compute.reason
    return found


def _notes(made: _Made) -> Iterator[Note]:
    codes = list(made.context.notes)
    if made.weights.skipped:
        codes.insert(0, "unused_tensors_skipped")
    for code in codes:
        yield reasons.note(code, made.context, made.weights)


def _doubts(made: _Made) -> Iterator[Phrase]:
    """What was not proved for this launch."""
    model, launch = made.model, made.launch
    if not model.verified:
        yield phrase(
            "{arch} is not an architecture of build {build} that our rules were checked on",
            arch=model.architecture,
            build=NEWEST_BUILD,
        )
    yield from made.compute.notes
    if launch.build not in KNOWN_BUILDS:
        yield phrase("the rules are those of {build}", build=NEWEST_BUILD)
    if launch.split_mode not in {"layer", "none"}:
        yield phrase("split mode {mode} was not measured", mode=launch.split_mode)
    for device in made.devices:
        if not kind_of(device).verified:
            yield phrase(
                "alignment and supported operations of {kind} depend on its driver",
                kind=device.kind,
            )
            return
