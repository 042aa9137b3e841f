"""Ledgers for a search: whole ones, and at less cost those without compute buffers.

A compute buffer takes a graph, everything else a sum. What misses without its compute buffers
misses anyway, so most of what does not fit is known without a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvwise.device import Device, Host
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.plan.candidate import slack_of


class Account(Protocol):
    """Makes a ledger, a `bare` one without compute buffers; raises Refused."""

    def __call__(
        self,
        model: Model,
        launch: Launch,
        devices: Sequence[Device],
        host: Host | None,
        *,
        bare: bool = False,
    ) -> Ledger: ...


@dataclass
class Ledgers:
    """What was asked of `account`, each thing once; None where the engine refuses a launch."""

    model: Model
    devices: Sequence[Device]
    host: Host | None
    account: Account
    refusals: list[Refused] = field(default_factory=list)
    _whole: dict[Launch, Ledger | None] = field(default_factory=dict)
    _bare: dict[Launch, Ledger | None] = field(default_factory=dict)
    _work: dict[int, tuple[int, ...]] = field(default_factory=dict)  # micro-batch: per line

    def whole(self, launch: Launch) -> Ledger | None:
        """The ledger of a launch."""
        if launch not in self._whole:
            try:
                made = self.account(self.model, launch, self.devices, self.host)
            except Refused as refusal:
                self.refusals.append(refusal)
                self._whole[launch] = None
            else:
                self._whole[launch] = made
                self._work[launch.n_ubatch] = tuple(line.compute_bytes for line in made.lines)
        return self._whole[launch]

    def bare(self, launch: Launch) -> Ledger | None:
        """The ledger without compute buffers."""
        if launch not in self._bare:
            try:
                made = self.account(self.model, launch, self.devices, self.host, bare=True)
            except Refused:
                self._bare[launch] = None
            else:
                self._bare[launch] = made
        return self._bare[launch]

    def rough_slack(self, launch: Launch) -> int | None:
        """Bytes left if the compute buffers are as large as those seen last."""
        bare = self.bare(launch)
        return None if bare is None else slack_of(bare, self._work.get(launch.n_ubatch, ()))
