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
from kvwise.memory.account import ComputeMode, account
from kvwise.memory.ledger import Ledger, Line
from kvwise.simulate import Simulation

Part = Literal["weights", "context", "compute", "output"]
PARTS: tuple[Part, ...] = ("weights", "context", "compute", "output")


@dataclass(frozen=True, slots=True)
class Tier:
    """One part of one line, in bytes. `expected` is what our rules say that the pass shows,
    `reserved` what is allocated in the end.

    `decisive` is False where a stand-in cannot show what the device itself would.
    """

    buffer: str
    device: str | None
    host: bool
    part: Part
    expected: int
    reserved: int
    simulated: Total
    decisive: bool = True

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
        standing = not self.simulation.own and len(ledger.devices) > 1
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
    if simulation.engine.kind == "embedded":
        launch = replace(launch, devices=(), n_gpu_layers=0)

    devices = ledger.devices if simulation.own else tuple(map(_asked, ledger.devices))

    def computed(mode: ComputeMode) -> Ledger:
        return account(ledger.model, launch, devices, host=host, compute_mode=mode)

    expected, reserved = computed("no-alloc"), computed("reserved")
    return Tiers(simulation, expected, reserved, tuple(_rows(simulation, expected, reserved)))


def _asked(device: Device) -> Device:
    """A device that is no more than a size is what stands in for it: in newer builds one that
    copies asynchronously."""
    return replace(device, kind="rpc") if device.kind == "generic" else device


def _rows(simulation: Simulation, expected: Ledger, reserved: Ledger) -> Iterator[Tier]:
    shown, named = _shown(simulation), simulation.ledger.lines
    lines = zip(named, expected.lines, reserved.lines, simulation.told, strict=True)
    for name, line, real, told in lines:
        for part in PARTS:
            size, said = _size(line, part), _said(told, part)
            if part == "output" and not said.parts:
                continue  # only the log has it, and may have lost it
            if size or said.bytes or _size(real, part):
                decisive = part != "compute" or shown
                yield Tier(
                    name.buffer, name.device, name.host, part, size, _size(real, part), said,
                    decisive,
                )  # fmt: skip


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
    return plain and ledger.context.flash_attn == _flash(ledger)


def _flash(ledger: Ledger) -> bool:
    """Whether the card itself would run flash attention."""
    return account(
        ledger.model, ledger.launch, ledger.devices, compute_mode="none"
    ).context.flash_attn


def _size(line: Line, part: Part) -> int:
    size = getattr(line, f"{part}_bytes")
    assert isinstance(size, int)  # noqa: S101  (for the type checker)
    return size


def _said(told: tuple[Told, ...], part: Part) -> Total:
    totals: tuple[Total, ...] = tuple(getattr(each, part) for each in told)
    return Total(tuple(printed for total in totals for printed in total.parts))


def tiers_json(tiers: Tiers) -> dict[str, Any]:
    """What stands beside a simulated ledger: plain values, sizes in bytes."""
    engine = tiers.simulation.engine
    return {
        "engine": {
            "kind": engine.kind,
            "path": engine.path or None,
            "build": engine.build,
            "version": engine.version,
        },
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
        "computed_bytes": row.expected,
        "reserved_bytes": row.reserved,
        "simulated_mib": [str(printed) for printed in row.simulated.parts],
        "simulated_low_bytes": row.simulated.low,
        "simulated_high_bytes": row.simulated.high,
        "difference_bytes": row.difference,
        "decisive": row.decisive,
    }
