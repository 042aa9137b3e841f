"""Adds everything up: model, launch, devices -> Ledger.

The order is the engine's own: choose devices, place layers, resolve the context (or refuse),
then weights, caches, output and compute buffers (`made`); then what stands beside them (`parts/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kvwise import builds
from kvwise.arch import row_of
from kvwise.device import Device, Host
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory import reasons, repack
from kvwise.memory.backends import kind_of
from kvwise.memory.blocks import largest, unplaced
from kvwise.memory.ledger import Ledger, Line, Note, Part
from kvwise.memory.loader import CPU, Spot
from kvwise.memory.made import ComputeMode, Made, make, parts
from kvwise.memory.overhead import basis as overhead_basis
from kvwise.memory.overhead import overhead
from kvwise.memory.parts.beside import Beside, beside
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.memory.parts.draft import by_its_file, handed_on
from kvwise.memory.placement import HOST, buffer_name
from kvwise.memory.skipped import ON_REQUEST
from kvwise.text import Phrase, phrase
from kvwise.units import show

__all__ = ["ComputeMode", "account"]


def account(
    model: Model,
    launch: Launch,
    devices: Sequence[Device],
    *,
    host: Host | None = None,
    compute_mode: ComputeMode = "reserved",
    companions: Companions = NONE,
) -> Ledger:
    """The ledger of a launch on these devices (all there are, in the engine's order).

    `companions` are the opened files of `-md`, `--mmproj` and `--lora`; what the launch names and
    they lack is not counted, and a note says so. Raises Refused when llama.cpp would refuse the
    setting, UsageError for a launch that names what is not there, ModelError for a companion that
    does not fit the model.
    """
    launch = by_its_file(launch, companions.draft)
    handed = handed_on(model, launch, companions.draft)
    made = make(model, launch, devices, host, compute_mode, paired=lambda _: handed)
    more = beside(made, companions, devices, host, compute_mode)
    mine = parts(made)
    lines = [
        _gpu_line(made, number, device, mine.get(number, ()), more)
        for number, device in enumerate(more.devices)
    ]
    lines.append(_host_line(made, mine[HOST], host, more))
    return Ledger(
        model=model,
        launch=launch,
        context=made.context,
        placement=made.placement,
        devices=more.devices,
        lines=tuple(lines),
        caches=made.caches,
        notes=(
            *(Note(_code(each), each.note) for each in more.devices if each.note),
            *_notes(made),
            *more.notes,
            *_limits(lines),
            *_may_fill(lines[-1]),
        ),
        doubts=_each_once((*_doubts(made, more.devices), *more.doubts)),
        compute_mode=compute_mode,
    )


def _gpu_line(made: Made, number: int, device: Device, own: tuple[Part, ...], more: Beside) -> Line:
    taken, why = overhead(device)
    block = largest(more.contexts, more.on(number), device)
    reason = _reasons(made, number, buffer_name(device))
    return Line(
        buffer=buffer_name(device),
        device=device.name,
        host=False,
        parts=own or (Part(buffer_name(device)),),
        extras=more.on(number),
        overhead_bytes=taken,
        free_bytes=device.free_bytes if device.total_bytes or device.free_bytes else None,
        largest_block_bytes=block.nbytes if block else 0,
        max_block_bytes=device.max_block_bytes,
        unplaced_bytes=unplaced(more.contexts, more.on(number), device),
        basis=made.basis | {"overhead": overhead_basis(device)},
        reasons=reason | {"overhead": why},
    )


def _code(device: Device) -> str:
    return "bare_size" if device.kind == "generic" else "device"


def _host_line(made: Made, own: tuple[Part, ...], host: Host | None, more: Beside) -> Line:
    reason = _reasons(made, HOST, CPU)
    reason["output"] = reasons.output(made.context, made.model.n_vocab, made.launch)
    return Line(
        buffer=CPU,
        device=None,
        host=True,
        parts=own,
        extras=more.on(HOST),
        free_bytes=(host.usable_bytes or None) if host else None,
        reclaimable_bytes=_reclaimable(made, host),
        basis=made.basis | {"output": "computed"},
        reasons=reason,
    )


def _reclaimable(made: Made, host: Host | None) -> int:
    """What the host need not hold of the mapped file; a limit on addresses counts all of it, and
    locked pages stay."""
    if host is None or host.counts_mapped or "mlock" in made.launch.load_mode:
        return 0
    return sum(size for spot, size in made.weights.idle.items() if spot.device == HOST)


def _reasons(made: Made, number: int, name: str) -> dict[str, Phrase]:
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


def _notes(made: Made) -> Iterator[Note]:
    codes = list(made.context.notes)
    if made.weights.skipped:
        codes.insert(0, "unused_tensors_skipped")
    codes += made.compute.codes
    on_request = made.model.architecture in ON_REQUEST
    for code in codes:
        yield reasons.note(code, made.context, made.weights, on_request=on_request)
    repacked = made.weights.by_spot.get(Spot(HOST, repack.BUFFER), 0)
    if repacked and any(spot.device == HOST for spot in made.weights.mapped):
        yield Note(
            "weights_repacked",
            phrase(
                "{size} of weights are repacked for this processor, which is faster; the mapped "
                "file has them a second time, which the system takes back when it needs memory "
                "(--no-repack keeps one copy)",
                size=show(repacked),
            ),
        )


def _limits(lines: Sequence[Line]) -> Iterator[Note]:
    """Devices on which a single allocation is larger than any that succeeds."""
    for line in lines:
        limit = line.max_block_bytes
        if limit is not None and line.largest_block_bytes > limit:
            yield Note(
                "single_allocation_limit",
                phrase(
                    "{buffer} needs {size} in one piece, the largest block there is {limit}: fewer "
                    "layers there, a shorter context or smaller cache types make it smaller",
                    buffer=line.buffer,
                    size=show(line.largest_block_bytes),
                    limit=show(limit),
                ),
            )
        elif line.unplaced_bytes:
            yield Note(
                "memory_in_pieces",
                phrase(
                    "the free memory of {buffer} lies in pieces: {size} of its allocations find "
                    "none that is large enough",
                    buffer=line.buffer,
                    size=show(line.unplaced_bytes),
                ),
            )


def _may_fill(line: Line) -> Iterator[Note]:
    """What comes with use may be more than the host has left."""
    left, worst = line.headroom_bytes, line.headroom_at_worst_bytes
    if left is not None and worst is not None and worst < 0 <= left:
        yield Note(
            "host_may_fill",
            phrase(
                "prompt cache and checkpoints may grow to {size}, host memory has {left} left: "
                "lower -cram or -ctxcp",
                size=show(line.up_to_bytes),
                left=show(left),
            ),
        )


def _doubts(made: Made, devices: Sequence[Device]) -> Iterator[Phrase]:
    """What was not proved for this launch."""
    model, launch = made.model, made.launch
    yield from _about_build(model, builds.number(launch.build))
    yield from made.compute.notes
    if launch.split_mode not in {"layer", "none"}:
        yield phrase("split mode {mode} was not measured", mode=launch.split_mode)
    for device in devices:
        if not kind_of(device).verified:
            yield phrase(
                "alignment and supported operations of {kind} depend on its driver",
                kind=device.kind,
            )
            return


def _about_build(model: Model, build: int) -> Iterator[Phrase]:
    """Whether the engine knows the architecture, and whether we know the engine."""
    known = builds.nearest(build)
    came = row_of(model.header).since
    if came is not None and not builds.has(build, came):
        yield phrase(
            "llama.cpp {build} does not know the architecture {arch} and will not load it: it "
            "came with {since}",
            build=builds.name(build),
            arch=model.architecture,
            since=builds.name(came.since),
        )
    elif not model.verified:
        yield phrase(
            "{arch} is not an architecture of build {build} that our rules were checked on",
            arch=model.architecture,
            build=builds.name(known),
        )
    if build > builds.NEWEST:
        yield phrase(
            "build {build} is newer than all that we know: the rules are those of {known}",
            build=builds.name(build),
            known=builds.name(known),
        )
    elif build != known:
        yield phrase(
            "build {build} was not measured: the rules are those of {known}",
            build=builds.name(build),
            known=builds.name(known),
        )


def _each_once(doubts: Iterable[Phrase]) -> tuple[Phrase, ...]:
    found: list[Phrase] = []
    for doubt in doubts:
        if doubt not in found:
            found.append(doubt)
    return tuple(found)
