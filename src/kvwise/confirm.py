"""Confirms a plan: the engine's own no-alloc pass over its choice and its ladder.

The choice is asked about first; the ladder's launches at the same time, as many as there is time
for. Nothing is loaded, and nothing of the plan is changed: what differs is said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kvwise.device import Device, Host
from kvwise.engine.find import Engine
from kvwise.errors import KvwiseError, Refused
from kvwise.launch import Launch
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.plan.choose import Choice, Plan
from kvwise.simulate import simulation
from kvwise.text import Phrase, say
from kvwise.tiers import Tier, Tiers, tiers

CHOICE_S = 10.0
"""Seconds the engine may take over the choice before it is given up."""
LADDER_S = 1.0
"""Seconds that the ladder may take altogether."""


@dataclass(frozen=True, slots=True)
class Check:
    """One launch as the engine's pass sees it, or that it was refused."""

    launch: Launch
    tiers: Tiers | None
    refused: Refused | None = None

    @property
    def agrees(self) -> bool:
        return self.tiers is not None and self.tiers.agrees

    @property
    def fits(self) -> bool:
        """Does it fit by the engine's own figures, or can they not tell?"""
        return self.tiers is not None and not self.tiers.overflows


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What the engine said. Without `choice` it said nothing, and `why` tells the reason;
    a rung of the ladder that there was no time for, or that failed, is None."""

    engine: Engine
    choice: Check | None
    ladder: tuple[Check | None, ...] = ()
    seconds: float = 0.0
    why: Phrase | None = None

    @property
    def checked(self) -> tuple[Check, ...]:
        return tuple(check for check in (self.choice, *self.ladder) if check is not None)

    @property
    def agrees(self) -> bool:
        """No launch that was asked about differs, is refused, or does not fit."""
        return self.choice is not None and all(
            check.agrees and check.fits for check in self.checked
        )


def confirm(
    plan: Plan,
    ref: str,
    devices: Sequence[Device],
    engine: Engine,
    *,
    host: Host | None = None,
    own: bool = False,
    companions: Companions = NONE,
) -> Confirmation:
    """Ask the engine about the choice and the ladder of a plan; raises nothing of the engine's.

    `ref` is the plan's MODEL, `devices`, `host` and `companions` what it was made for; `own` as in
    `simulation`.
    """
    began = time.monotonic()

    def ask(choice: Choice, limit_s: float) -> Check:
        try:
            said = simulation(
                ref,
                choice.launch,
                devices,
                engine=engine,
                host=host,
                own=own,
                twin=True,
                companions=companions,
                limit_s=limit_s,
            )
            return Check(choice.launch, tiers(said, host))
        except Refused as refused:
            return Check(choice.launch, None, refused)

    try:
        chosen = ask(plan.choice, CHOICE_S)
    except KvwiseError as error:
        return Confirmation(engine, None, seconds=time.monotonic() - began, why=error.phrase)
    took = time.monotonic() - began

    def rung(choice: Choice) -> Check | None:
        try:
            return ask(choice, CHOICE_S)
        except KvwiseError:
            return None

    workers = max(1, min(4, os.cpu_count() or 1))
    room = int(LADDER_S * workers / took)
    with ThreadPoolExecutor(workers) as pool:
        checked = tuple(pool.map(rung, plan.ladder[:room]))
    missing = (None,) * (len(plan.ladder) - len(checked))
    return Confirmation(engine, chosen, (*checked, *missing), time.monotonic() - began)


def confirmation_json(found: Confirmation, language: str = "en") -> dict[str, Any]:
    """The `confirmed` object of kvwise/plan/1."""
    engine = found.engine
    return {
        "basis": "simulated" if found.choice else None,
        "why": say(found.why, language) if found.why else None,
        "engine": engine.as_json(),
        "agrees": found.agrees if found.choice else None,
        "seconds": round(found.seconds, 3),
        "choice": _check(found.choice, language),
        "ladder": [_check(check, language) for check in found.ladder],
    }


def _check(check: Check | None, language: str) -> dict[str, Any] | None:
    if check is None:
        return None
    rows = check.tiers.rows if check.tiers else ()
    return {
        "agrees": check.agrees,
        "fits": check.fits,
        "refused": say(check.refused.phrase, language) if check.refused else None,
        "differs": [_row(row) for row in rows if row.decisive and not row.agrees],
        "engine_misjudges": [_row(row) for row in rows if row.engine_is_wrong],
        "not_comparable": [_row(row) for row in rows if not row.decisive],
    }


def _row(row: Tier) -> dict[str, Any]:
    return {
        "buffer": row.buffer,
        "part": row.part,
        "computed_bytes": row.expected,
        "simulated_bytes": row.simulated.bytes,
        "reserved_bytes": row.reserved,
    }
