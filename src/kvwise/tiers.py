"""Computed beside simulated, part by part: what the engine's no-alloc pass said, what our rules say
it should show, and what they say is really reserved.

The last two differ where the pass forgets to which device it pinned a node (several GPUs, or the
cache on the host without flash attention): there the engine's own estimate is the one that is
wrong. Source: src/llama-context.cpp graph_reserve, ggml-backend.cpp sched_reserve_size, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from kvwise import builds
from kvwise.device import Device, Host
from kvwise.engine.printed import Total
from kvwise.engine.simulated import Told
from kvwise.launch import Launch
from kvwise.memory.account import ComputeMode, account
from kvwise.memory.ledger import Companion, Ledger, Line
from kvwise.memory.placement import buffer_name
from kvwise.simulate import Simulation, without_gpus

Part = Literal["weights", "context", "compute", "output", "all"]
PARTS: tuple[Part, ...] = ("weights", "context", "compute", "output")
"""What a pass says of the model, and of a draft; of a projector it says only the sum: `all`."""


@dataclass(frozen=True, slots=True)
class Tier:
    """One part of one line, in bytes. `expected` is what our rules say that the pass shows,
    `reserved` what is allocated in the end.

    `decisive` is False where a stand-in cannot show what the device itself would. `of` names what
    stands beside the model: draft, mtp or mmproj.
    """

    buffer: str
    device: str | None
    host: bool
    part: Part
    expected: int
    reserved: int
    simulated: Total
    decisive: bool = True
    of: Companion | None = None

    @property
    def agrees(self) -> bool:
        """Would the computed figure print as the engine's did?"""
        return self.simulated.agrees(self.expected)

    @property
    def difference(self) -> int:
        """Computed minus simulated; 0 when they agree."""
        return self.simulated.difference(self.expected)

    @property
    def engine_is_wrong(self) -> bool:
        """Is the pass known to show something else than what will be reserved?"""
        return self.expected != self.reserved


@dataclass(frozen=True, slots=True)
class Tiers:
    """A simulation beside the ledgers of our rules for the same launch and devices."""

    simulation: Simulation
    expected: Ledger
    reserved: Ledger
    rows: tuple[Tier, ...]

    @property
    def wrong(self) -> tuple[Tier, ...]:
        """Rows that should agree and do not."""
        return tuple(row for row in self.rows if row.decisive and not row.agrees)

    @property
    def misjudged(self) -> tuple[Tier, ...]:
        """Rows where the engine's own estimate is not what it will reserve."""
        return tuple(row for row in self.rows if row.engine_is_wrong)

    @property
    def agrees(self) -> bool:
        return not self.wrong

    @property
    def overflows(self) -> bool:
        """Does it not fit by the engine's figures? Not asked of a stand-in that takes more than
        what it stands for: one that copies asynchronously is pipelined, and holds inputs 4 times.
        """
        ledger = self.simulation.ledger
        standing = not self.simulation.own and ledger.placement.n_gpu > 1
        apart = builds.has(builds.number(ledger.launch.build), builds.RPC_ASYNCHRONOUS)
        return (
            not ledger.fits and not (standing and apart) and all(row.decisive for row in self.rows)
        )


def tiers(simulation: Simulation, host: Host | None = None) -> Tiers:
    """Put our figures beside a simulation.

    The pass reads the weights into memory instead of mapping the file; so do the figures here.
    Raises Refused when our rules refuse what the engine did not.
    """
    ledger = simulation.ledger
    launch = replace(ledger.launch, mmap=False)
    devices = simulation.devices
    if simulation.engine.kind == "embedded":
        launch = without_gpus(launch)
    if not simulation.own:
        launch, devices = _asked(launch, devices)

    def computed(mode: ComputeMode) -> Ledger:
        return account(
            ledger.model,
            launch,
            devices,
            host=host,
            compute_mode=mode,
            companions=simulation.companions,
        )

    expected, reserved = computed("no-alloc"), computed("reserved")
    rows = (*_rows(simulation, expected, reserved), *_beside(simulation, expected, reserved))
    return Tiers(simulation, expected, reserved, rows)


def _asked(launch: Launch, devices: tuple[Device, ...]) -> tuple[Launch, tuple[Device, ...]]:
    """A device that is no more than a size is what stands in for it: in newer builds one that
    copies asynchronously. Its name changes with that."""
    standing = tuple(
        replace(device, kind="rpc") if device.kind == "generic" else device for device in devices
    )
    names = {
        buffer_name(old).lower(): buffer_name(new)
        for old, new in zip(devices, standing, strict=True)
    }

    def renamed(asked: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name.lower(), name) for name in asked)

    return (
        replace(
            launch,
            devices=renamed(launch.devices),
            draft_devices=renamed(launch.draft_devices),
        ),
        standing,
    )


def _rows(simulation: Simulation, expected: Ledger, reserved: Ledger) -> Iterator[Tier]:
    shown = _shown(simulation)
    told = simulation.told
    for number, said in enumerate(told):
        name, line, real = (
            _line(each, number, len(told)) for each in (simulation.ledger, expected, reserved)
        )
        for part in PARTS:
            size, total = _size(line, part), _said(said, part)
            if part == "output" and not total.parts:
                continue  # only the log has it, and may have lost it
            if size or total.bytes or _size(real, part):
                decisive = part != "compute" or shown
                yield Tier(
                    name.buffer, name.device, name.host, part, size, _size(real, part), total,
                    decisive,
                )  # fmt: skip


def _line(ledger: Ledger, number: int, count: int) -> Line:
    """The line of a number among `count` that the pass told of; the host is the last in both."""
    return ledger.host if number == count - 1 else ledger.lines[number]


def _beside(simulation: Simulation, expected: Ledger, reserved: Ledger) -> Iterator[Tier]:
    """What the pass told of a draft and of a projector, line by line."""
    shown = _shown(simulation)
    parts: dict[str, tuple[Part, ...]] = {"draft": PARTS, "mmproj": ("all",)}
    for what, told in simulation.beside.items():
        of = _kind(expected, what)
        for number, said in enumerate(told):
            name, line, real = (
                _line(each, number, len(told)) for each in (simulation.ledger, expected, reserved)
            )
            for part in parts[what]:
                size, total = _extra_size(line, of, part), _said(said, part)
                if part == "all":
                    size = _at_start(line)
                if part == "output" and not total.parts:
                    continue
                if of == "mtp" and part == "weights":
                    continue  # they are the model's own
                if size or total.bytes:
                    yield Tier(
                        name.buffer, name.device, name.host, part, size,
                        _extra_size(real, of, part), total,
                        shown or part in ("weights", "context"), of,
                    )  # fmt: skip


def _kind(ledger: Ledger, what: str) -> Companion:
    if what == "mmproj":
        return "mmproj"
    return "mtp" if any(extra.of == "mtp" for extra in ledger.extras) else "draft"


def _at_start(line: Line) -> int:
    """The projector as the server's estimate has it: its buffers for the image at start."""
    return sum(
        extra.total_bytes - extra.compute_bytes + (extra.at_start_bytes or 0)
        if extra.at_start_bytes is not None
        else extra.total_bytes
        for extra in line.extras
        if extra.of == "mmproj"
    )


def _extra_size(line: Line, of: Companion, part: Part) -> int:
    mine = [extra for extra in line.extras if extra.of == of]
    if part == "all":
        return sum(extra.total_bytes for extra in mine)
    sizes = {
        "weights": sum(extra.weights_bytes for extra in mine),
        "context": sum(extra.context_bytes for extra in mine),
        "compute": sum(extra.compute_bytes for extra in mine),
        "output": sum(extra.output_bytes for extra in mine),
    }
    return sizes[part]


def _shown(simulation: Simulation) -> bool:
    """Can compute buffers be compared? A stand-in runs every operation, lends no pinned memory and
    copies synchronously: of a card that does otherwise it shows no more than one that has it all.
    """
    ledger = simulation.ledger
    kinds = {device.kind for device in ledger.devices}
    if simulation.own or kinds <= {"generic", "rpc"}:
        return True
    launch, everything = ledger.launch, ledger.model.n_layer_all + 1
    alone = len(ledger.devices) == 1 and ledger.placement.gpu_layers == everything
    held = launch.offload_kqv and not launch.override_tensor and not launch.n_cpu_moe
    build = builds.number(launch.build)
    fused = ledger.model.n_expert and builds.has(build, builds.CUDA_KEEPS_FUSED)
    plain = kinds == {"cuda"} and alone and held and not fused
    return plain and ledger.context.flash_attn == _flash(simulation)


def _flash(simulation: Simulation) -> bool:
    """Whether the card itself would run flash attention."""
    ledger = simulation.ledger
    return account(
        ledger.model, ledger.launch, simulation.devices, compute_mode="none"
    ).context.flash_attn


def _size(line: Line, part: Part) -> int:
    size = getattr(line, f"{part}_bytes")
    assert isinstance(size, int)  # noqa: S101  (for the type checker)
    return size


def _said(told: tuple[Told, ...], part: Part) -> Total:
    name = "whole" if part == "all" else part
    totals: tuple[Total, ...] = tuple(getattr(each, name) for each in told)
    return Total(tuple(printed for total in totals for printed in total.parts))


def tiers_json(tiers: Tiers) -> dict[str, Any]:
    """What stands beside a simulated ledger: plain values, sizes in bytes."""
    engine = tiers.simulation.engine
    return {
        "engine": engine.as_json(),
        "engine_argv": list(tiers.simulation.argv),
        "devices": "own" if tiers.simulation.own else "stand-ins",
        "agrees": tiers.agrees,
        "lines": [_row_json(row) for row in tiers.rows],
    }


def _row_json(row: Tier) -> dict[str, Any]:
    return {
        "buffer": row.buffer,
        "device": row.device,
        "host": row.host,
        "part": row.part,
        "of": row.of,
        "computed_bytes": row.expected,
        "reserved_bytes": row.reserved,
        "simulated_mib": [str(printed) for printed in row.simulated.parts],
        "simulated_low_bytes": row.simulated.low,
        "simulated_high_bytes": row.simulated.high,
        "difference_bytes": row.difference,
        "decisive": row.decisive,
    }
