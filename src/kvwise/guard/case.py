"""What the guard knows about a request, and what a launch takes by kvwise's own figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.device import Device, Host
from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.guard.cause import Cause
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger, Line
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.plan.choose import Plan
from kvwise.plan.goal import Goal

_NUMBERED = re.compile(r"([A-Za-z]+?)(\d+)(?:\[.*\])?\Z")
_OF_THE_HOST = {"killed", "low-memory"}


@dataclass(frozen=True, slots=True)
class Case:
    """A request: the model (None = kvwise cannot read its header), the machine, and what may move.

    `goal` None = the flags were taken as they were given. `fixed` are the Launch fields that the
    user set; `may_change` the knobs (plan.step.KNOBS) that may move them all the same. `plan` is
    the one that chose the first launch, whose ladder is gone down.
    """

    model: Model | None
    devices: tuple[Device, ...] = ()
    host: Host | None = None
    goal: Goal | None = None
    fixed: frozenset[str] = frozenset()
    may_change: frozenset[str] = frozenset()
    companions: Companions = NONE
    plan: Plan | None = None

    def ledger(self, launch: Launch) -> Ledger | None:
        """The ledger of a launch; None where kvwise cannot account for it or it is refused."""
        if self.model is None:
            return None
        try:
            return account(
                self.model, launch, self.devices, host=self.host, companions=self.companions
            )
        except KvwiseError:
            return None


def line_of(ledger: Ledger, cause: Cause) -> Line:
    """The device that a cause is about: the one its buffer names, else the fullest GPU."""
    gpus = [line for line in ledger.lines if not line.host]
    if cause.buffer and not (match := _NUMBERED.match(cause.buffer)):
        return ledger.host  # CPU, CPU_REPACK, CUDA_Host...
    if not gpus or cause.kind in _OF_THE_HOST:
        return ledger.host
    if cause.buffer and match and int(match[2]) < len(gpus):
        return gpus[int(match[2])]
    return max(gpus, key=lambda line: line.total_bytes)


def taken(line: Line, cause: Cause) -> int:
    """Bytes on that line that were wanted up to the allocation that failed.

    The engine allocates weights, then caches, then compute buffers: what comes later cannot
    have been in the way.
    """
    if cause.part == "weights":
        return line.weights_bytes
    if cause.part == "context":
        return line.weights_bytes + line.context_bytes
    return line.total_bytes


def movable(line: Line) -> int:
    """Bytes on that line that depend on settings other than the number of layers."""
    return line.context_bytes + line.compute_bytes + line.output_bytes


def short(ledger: Ledger) -> Sequence[Line]:
    """Lines on which the ledger says that bytes are missing."""
    return [line for line in ledger.lines if line.misses_bytes]
