"""The ladder: from a launch that failed to the next smaller one, gentlest change first.

What was planned goes down the ladder that the plan shows (`plan.ladder`), rung by rung; one that
gives back nothing where it failed, or less than a share of what was refused, is passed over. Where
that ladder ends, and for what was left to `--fit`, everything is planned again (`reserve`), and the
new plan's ladder follows. Then, and for flags that were taken as they are, single knobs:

| knob | what it moves | how far |
| --- | --- | --- |
| ubatch | -ub | halved, down to 64 |
| types | -ctk, -ctv | q8_0, then q4_0 where the quality asked for allows it |
| context | -c | by sixteenths, then quarters, down to what is needed |
| layers | -ncmoe, then -ngl | as many as it takes |

A step must give back a share of what was refused, an eighth at the first failure, then a quarter,
a half, three quarters. The first knob that can give it back alone is taken; if none can, the knobs
are moved together in this order. What the user fixed is moved only where `may_change` says so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvwise.errors import KvwiseError
from kvwise.guard.case import Case, line_of, movable, taken
from kvwise.guard.cause import Cause
from kvwise.guard.knobs import MOVES, Around
from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.options import change
from kvwise.plan.choose import Choice, Plan, plan
from kvwise.plan.goal import Goal
from kvwise.plan.step import KNOBS, Step, knobs_moved, step

RESERVE = "reserve"
SHARES = ((1, 8), (1, 4), (1, 2), (3, 4))
"""What a step must give back, as a share of what was refused, by failures so far."""

_FEW = 12
"""So many moves are tried one after the other."""
_NOT_MEMORY = {"device-lost-timeout": ("ubatch", "context", "layers")}
"""Knobs for causes that ask for shorter work instead of fewer bytes."""
_UNSEEN_KNOBS = {"weights": ("layers",), "context": ("types", "context", "layers")}
"""Knobs that surely shrink what was refused, where no ledger can tell."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Nothing is left that may be changed; `would` is the step that the fixed flags forbid."""

    would: Step | None = None


class Ladder:
    """Steps down one launch after another; remembers how often."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._failures = 0
        self._replanned = False
        self._plan = case.plan  # whose ladder is gone down

    def next(self, launch: Launch, cause: Cause, spilled: int = 0) -> Step | Exhausted:
        """The step after `launch` failed of `cause`; `spilled` bytes lie where they should not."""
        share = SHARES[min(self._failures, len(SHARES) - 1)]
        self._failures += 1
        down = _Down(self.case, launch, cause, share, spilled)
        found = down.on_ladder(self._plan.ladder) if self._plan else None
        if found:
            return found
        self._plan = None  # what comes now leads away from it
        if not self._replanned and (self.case.goal or launch.fit):
            self._replanned = True
            made = down.planned_again()
            if made:
                found, self._plan = made
        found = found or down.moved()
        if found:
            return found
        free = replace(self.case, fixed=frozenset())
        return Exhausted(_Down(free, launch, cause, share, spilled).moved())


class _Down:
    """One step from one launch."""

    def __init__(
        self, case: Case, launch: Launch, cause: Cause, share: tuple[int, int], spilled: int
    ) -> None:
        self.case, self.launch, self.cause = case, launch, cause
        moved = [fields for knob, fields in KNOBS.items() if knob in case.may_change]
        self.fixed = case.fixed.difference(*moved)
        self.ledger = case.ledger(launch)
        self.around = Around(case, self.ledger, frozenset(self.fixed))
        self.spilled = spilled
        self.needed = self._needed(share, spilled)

    def _needed(self, share: tuple[int, int], spilled: int) -> int:
        if self.cause.kind in _NOT_MEMORY or self.ledger is None:
            return 1
        line = line_of(self.ledger, self.cause)
        asked = self.cause.asked_bytes or movable(line) or line.total_bytes
        return max(1, spilled, asked * share[0] // share[1])

    # -- planned again -------------------------------------------------------------------------

    def planned_again(self) -> tuple[Step, Plan] | None:
        """Everything that is free, chosen anew with more kept free where it failed."""
        case, cause = self.case, self.cause
        if case.model is None or self.ledger is None or cause.kind in _NOT_MEMORY:
            return None
        fixed, base = set(self.fixed), self.launch
        if cause.kind == "cache-types":
            if fixed & KNOBS["types"]:
                return None
            base = change(base, type_k="f16", type_v="f16")
            fixed |= KNOBS["types"]
        if case.goal is None:
            fixed |= {"n_seq_max", "kv_unified"}
        elif case.goal.slots is None:
            fixed |= {"n_seq_max"}
        try:
            made = plan(
                case.model, self._tighter(), case.goal or Goal(), launch=base, fixed=fixed,
                host=self._tighter_host(), companions=case.companions,
            )  # fmt: skip
        except KvwiseError:
            return None
        found = self._step(made.choice.launch, (RESERVE,), made.choice.ledger)
        enough = cause.kind == "cache-types" or (found.frees_bytes or 0) > 0
        return (found, made) if found.changes and enough else None

    def on_ladder(self, rungs: Sequence[Choice]) -> Step | None:
        """The first rung of a plan's own ladder that gives enough back where it failed: a share
        of what was refused, or anything where nobody said how much that was."""
        if self.ledger is None or self.cause.kind in {*_NOT_MEMORY, "cache-types"}:
            return None
        needed = self.needed if self.cause.asked_bytes or self.spilled else 1
        for rung in rungs:
            if self._freed(rung.launch) >= needed:
                knobs = knobs_moved(self.launch, rung.launch)
                return self._step(rung.launch, knobs, rung.ledger)
        return None

    def _tighter(self) -> tuple[Any, ...]:
        """The devices as they turned out to be: with so much less to be had."""
        assert self.ledger is not None  # noqa: S101 (asked before)
        line, devices = line_of(self.ledger, self.cause), list(self.case.devices)
        if line.host or self.cause.kind == "cache-types":
            return tuple(devices)
        number = self.ledger.lines.index(line)
        device, left = devices[number], line.headroom_bytes or 0
        free = (device.free_bytes or device.total_bytes) - max(0, left) - self.needed
        devices[number] = replace(device, free_bytes=max(0, free), reserve_bytes=0)
        return tuple(devices)

    def _tighter_host(self) -> Any:
        assert self.ledger is not None  # noqa: S101 (asked before)
        line, host = line_of(self.ledger, self.cause), self.case.host
        if not line.host or host is None or self.cause.kind == "cache-types":
            return host
        room = max(0, min(host.available_bytes, line.total_bytes) - self.needed)
        return replace(host, available_bytes=room)

    # -- one knob after another ----------------------------------------------------------------

    def moved(self) -> Step | None:
        """The first knob that gives enough back alone, else as many as it takes."""
        if self.cause.kind == "cache-types":
            return self._plain_types()
        knobs = _NOT_MEMORY.get(self.cause.kind, tuple(KNOBS))
        if self.ledger is None and self.cause.part:
            knobs = _UNSEEN_KNOBS[self.cause.part]
        here, used = self.launch, []
        for knob in knobs:
            found = self._with(knob, self.launch)
            if found and found[1] >= self.needed:
                return self._step(found[0], (knob,))
        for knob in knobs:
            found = self._with(knob, here)
            if found is None or found[1] <= 0:
                continue
            here = found[0]
            used.append(knob)
            if self._freed(here) >= self.needed:
                break
        return self._step(here, tuple(used)) if used else None

    def _with(self, knob: str, start: Launch) -> tuple[Launch, int] | None:
        """The gentlest move of a knob that frees enough, else the one that frees most."""
        if KNOBS[knob] & self.fixed - {"n_batch"}:
            return None
        best: tuple[Launch, int] | None = None
        gained = self._freed(start)
        for changes in self._worth_trying(list(MOVES[knob](self.around, start)), start):
            launch = change(start, **changes)
            freed = self._freed(launch) - gained
            if self.ledger is not None and freed <= 0:
                continue
            if best is None or freed > best[1]:
                best = launch, freed
            if gained + freed >= self.needed:
                return launch, freed
        return best

    def _worth_trying(
        self, moves: list[Mapping[str, Any]], start: Launch
    ) -> Sequence[Mapping[str, Any]]:
        """The moves from the first that gives enough back on, found by halving: each goes further
        than the one before, and a model has hundreds. The last one if none does."""
        if self.ledger is None or len(moves) <= _FEW:
            return moves
        first = bisect_left(moves, self.needed, key=lambda move: self._freed(change(start, **move)))
        return moves[min(first, len(moves) - 1) :]

    def _freed(self, launch: Launch) -> int:
        """Bytes that a launch takes less than the one that failed, where it matters; without a
        ledger any change counts as one byte."""
        if launch == self.launch:
            return 0
        if self.ledger is None:
            return 1
        after = self.case.ledger(launch)
        if after is None:  # llama.cpp would refuse it
            return -1
        if self.cause.kind in _NOT_MEMORY:
            return 1
        line = line_of(self.ledger, self.cause)
        number = self.ledger.lines.index(line)
        if number >= len(after.lines):
            return -1
        return taken(line, self.cause) - taken(after.lines[number], self.cause)

    def _plain_types(self) -> Step | None:
        """f16 on both sides, which every build and every head size can do."""
        if KNOBS["types"] & self.fixed or {self.launch.type_k, self.launch.type_v} == {"f16"}:
            return None
        return self._step(change(self.launch, type_k="f16", type_v="f16"), ("types",))

    # -- the result ------------------------------------------------------------------------------

    def _step(self, launch: Launch, knobs: tuple[str, ...], after: Ledger | None = None) -> Step:
        if self.ledger is None or self.cause.kind in _NOT_MEMORY:
            return step(self.launch, launch, knobs, ledger=self.ledger)
        after = after or self.case.ledger(launch)
        line = line_of(self.ledger, self.cause)
        number = self.ledger.lines.index(line)
        frees = None
        if after is not None and number < len(after.lines):
            frees = taken(line, self.cause) - taken(after.lines[number], self.cause)
        return step(self.launch, launch, knobs, ledger=self.ledger, line=line, frees=frees)
