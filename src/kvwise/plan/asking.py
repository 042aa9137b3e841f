"""Ledgers for a search: whole ones, at less cost those without compute buffers, and guesses.

A compute buffer takes a graph, everything else a sum. What misses without its compute buffers
misses anyway, so most of what does not fit is known without a graph; and between launches of the
same batch and cache types a compute buffer hardly changes but with the context, evenly, so that
the ones seen so far tell where an edge lies before it is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Protocol

from kvwise.device import Device, Host
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.plan.candidate import slack_of
from kvwise.plan.lend import lends

Seen = list[tuple[int, tuple[int, ...]]]
"""Contexts in order, and the compute bytes of each line there."""

_MOST_SEEN = 64


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


@lru_cache(maxsize=32)
def _seen_of(_model: Model, _devices: tuple[Device, ...]) -> dict[object, Seen]:
    return {}


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

    @cached_property
    def _seen(self) -> dict[object, Seen]:
        """Compute buffers hardly depend on how much is free: what another question about the model
        and such devices found is a guess for this one."""
        alike = tuple(replace(each, free_bytes=0, total_bytes=0, reserve_bytes=None)
                      for each in self.devices)  # fmt: skip
        return _seen_of(self.model, alike)

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
                self._learn(launch, made)
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

    def rough_slack(self, launch: Launch, *, gpus: bool = False) -> int | None:
        """Bytes left on the tightest device if the compute buffers are as they are guessed."""
        bare = self.bare(launch)
        if bare is None:
            return None
        return slack_of(bare, self.guess(launch, bare.context.n_ctx), gpus=gpus)

    def guess(self, launch: Launch, n_ctx: int) -> tuple[int, ...]:
        """Compute bytes of each line, after what was seen of launches alike; empty if nothing."""
        for key in self._keys(launch)[1:]:
            seen = self._seen.get(key)
            if seen:
                return _between(seen, n_ctx)
        return ()

    def known_near(self, launch: Launch, n_ctx: int) -> bool:
        """Whether a launch that is alike was seen at this very context."""
        seen = self._seen.get(self._keys(launch)[2], ())
        return any(at == n_ctx for at, _ in seen)

    def guess_of_split(self, launch: Launch, n_ctx: int) -> tuple[int, ...]:
        """Compute bytes of each line after this very launch at other contexts; empty if unseen."""
        seen = self._seen.get(self._keys(launch)[0])
        return _between(seen, n_ctx) if seen else ()

    def _learn(self, launch: Launch, made: Ledger) -> None:
        bare = self.bare(launch)
        if bare is None or len(bare.lines) != len(made.lines):
            return
        work = tuple(
            line.total_bytes - without.total_bytes
            for line, without in zip(made.lines, bare.lines, strict=True)
        )
        for key in self._keys(launch):
            seen = self._seen.setdefault(key, [])
            seen[:] = sorted({**dict(seen[-_MOST_SEEN:]), made.context.n_ctx: work}.items())

    def _keys(self, launch: Launch) -> tuple[object, ...]:
        """What launches with about the same compute buffers share, the nearest relatives first."""
        itself = replace(launch, n_ctx=0)
        same = replace(itself, tensor_split=())
        moved = bool(launch.n_cpu_moe or launch.override_tensor) and not lends(launch)
        fewer = 0 <= launch.n_gpu_layers <= self.model.n_layer_all
        alike = replace(same, n_cpu_moe=0, override_tensor=(), n_gpu_layers=-1)
        kind = launch.devices, launch.n_ubatch
        return itself, (same,), (alike, moved, fewer), (alike, moved), kind


def _between(seen: Seen, n_ctx: int) -> tuple[int, ...]:
    """On the line through the two nearest contexts that were seen."""
    if len(seen) == 1:
        return seen[0][1]
    above = next((at for at, (context, _) in enumerate(seen) if context >= n_ctx), len(seen) - 1)
    above = max(above, 1)
    (low, start), (high, end) = seen[above - 1], seen[above]
    if len(start) != len(end):
        return start
    part, whole = n_ctx - low, high - low
    return tuple(max(0, a + (b - a) * part // whole) for a, b in zip(start, end, strict=True))
