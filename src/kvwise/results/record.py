"""What one measurement is: where, with what, of which model, how set, and what came out.

Everything a reader needs to trust it or to leave it alone stands in the record itself: the engine's
build, the drivers, the samples with their flags. Paths are kept for people and decide nothing.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

Kind = Literal["speed", "fidelity", "speculation", "embedding", "tune"]
KINDS: tuple[str, ...] = get_args(Kind)
State = Literal["ok", "failed", "skipped"]
STATES: tuple[str, ...] = get_args(State)
_GIB = 1 << 30
LAST = 250_000_000_000.0
"""Seconds since 1970 that a calendar has a day for (the year 9892)."""
MOST = 1e15
"""Above every figure that is measured; statistics of larger ones would overflow."""


@dataclass(frozen=True, slots=True)
class DeviceSeen:
    """A GPU as the engine saw it; `driver` as `probe/driver.py` names it, empty = unknown."""

    name: str
    backend: str
    total_bytes: int = 0
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as the engine that measured saw it; `name` is the host's name, for people."""

    name: str
    os: str
    cpu: str
    cores: int
    ram_bytes: int
    devices: tuple[DeviceSeen, ...] = ()

    @property
    def id(self) -> str:
        """The same for the same hardware: a new driver, a container's name or a kernel that takes
        some MiB more do not change it."""
        cards = [[each.name, each.backend, each.total_bytes] for each in self.devices]
        return _hash([self.os, self.cpu, self.cores, round(self.ram_bytes / _GIB), cards])[:12]

    @property
    def drivers(self) -> tuple[str, ...]:
        """Of its GPUs, in order."""
        return tuple(each.driver for each in self.devices)


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """What measured: `kind` binary or embedded, `build` like b10605 (empty = unknown), `tool` the
    program of llama.cpp (the embedded engine is its llama-server), `version` as it says itself."""

    kind: Literal["binary", "embedded"]
    build: str = ""
    tool: str = "llama-server"
    version: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("binary", "embedded"):
            raise ValueError(self.kind)


@dataclass(frozen=True, slots=True)
class ModelSeen:
    """The model that was measured; `fingerprint` is of its header, wherever the file lies."""

    name: str
    architecture: str
    tensor_bytes: int
    n_params: int
    fingerprint: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value in `unit` (`tokens/s`, `nats`...), taken at `at` (seconds since 1970). `flags` say
    why it does not count (`contended`, `throttled`, `warmup`); it is kept all the same."""

    value: float
    unit: str
    at: float
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """One setting of one model on one machine, measured.

    `settings` are the fields of `Launch` that matter, `test` says what was done (`metric`,
    `n_prompt`, `n_gen`, `depth`...), `figures` what came out beside the samples (bytes, divergence,
    accepted length...), `findings` what the doctor said (shape of kvwise/diagnosis/1). All four
    hold plain JSON values; ValueError or TypeError for others.
    """

    kind: Kind
    at: float
    machine: Machine
    engine: EngineSeen
    model: ModelSeen
    settings: Mapping[str, Any]
    test: Mapping[str, Any]
    samples: tuple[Sample, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Mapping[str, Any], ...] = ()
    state: State = "ok"

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.state not in STATES:
            raise ValueError(f"{self.kind} {self.state}")
        if not 0 <= self.at <= LAST or not all(abs(each.value) < MOST for each in self.samples):
            raise ValueError(self.at)  # also for what is no number
        for name in ("settings", "test", "figures", "findings"):
            value = json.loads(json.dumps(getattr(self, name), allow_nan=False))
            object.__setattr__(self, name, tuple(value) if name == "findings" else value)

    @cached_property
    def identity(self) -> str:
        """What was measured, not when, where the files lie, or what came out: two machines' files
        can be merged, and the same question asked twice has the same identity."""
        engine = self.engine
        return _hash([
            self.kind, self.machine.id, self.machine.drivers,
            [engine.kind, engine.build, engine.tool, engine.version],
            self.model.fingerprint, self.settings, self.test,
        ])  # fmt: skip

    @property
    def values(self) -> tuple[float, ...]:
        """The samples that count: those without a flag."""
        return tuple(each.value for each in self.samples if not each.flags)

    @property
    def disturbed(self) -> bool:
        """There are samples, and none of them counts: figures to look at, not to plan with."""
        return bool(self.samples) and not self.values

    @property
    def shown(self) -> tuple[float, ...]:
        """The samples that count; of a measurement that was disturbed all of them."""
        return self.values or tuple(each.value for each in self.samples)

    @property
    def median(self) -> float | None:
        """Of the samples that count; None without any."""
        return statistics.median(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Half the distance between the quartiles of the samples that count (half their range
        below four), in their unit; None below two."""
        return spread(self.values)

    @property
    def unit(self) -> str:
        """Of its samples; empty without any."""
        return self.samples[0].unit if self.samples else ""


def spread(values: Sequence[float]) -> float | None:
    """Half of what the middle half of the values lies apart; None for fewer than two."""
    if len(values) < 2:
        return None
    if len(values) < 4:
        return (max(values) - min(values)) / 2
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return (third - first) / 2


def canonical(value: Any) -> str:
    """The one JSON text of a plain value: names in order, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _hash(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()
