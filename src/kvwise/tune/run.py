"""A hunt as a job: every evaluation is a unit, kept as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvwise.device import Device, Host
from kvwise.errors import Interrupted
from kvwise.jobs import Job
from kvwise.launch import Launch
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.tune.hunt import Hunt, Limits
from kvwise.tune.judge import Candidate, Verdict
from kvwise.tune.knobs import Point, Space, impossible, launch_of
from kvwise.tune.measure import Meter, Taken

KIND = "tune"
BUDGET_S = 600.0
_SLOW = 4.0
"""A setting that takes so many times as long as the start is not waited for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to tune: `base` is the planner's launch, `space` the knobs around it, `companions` the
    files that every launch of it names."""

    meter: Meter
    base: Launch
    space: Space
    devices: tuple[Device, ...]
    host: Host | None
    limits: Limits
    seed: int = 0
    companions: Companions = NONE

    def launch(self, point: Point) -> Launch:
        return launch_of(self.base, point)


@dataclass(frozen=True, slots=True)
class Now:
    """How far it is: evaluations done, seconds spent, what is tried, the best so far as a share of
    the start's time (None until both are known)."""

    evaluations: int
    spent_s: float
    point: Point
    best: float | None


@dataclass(frozen=True, slots=True)
class Tuned:
    """Everything that came out: `tried` in their order, one evaluation each; `confirmed` the start
    and the best, measured again side by side; `units` all evaluations."""

    asked: Asked
    tried: tuple[tuple[Point, Taken], ...]
    confirmed: tuple[Candidate, ...]
    verdict: Verdict
    units: tuple[tuple[Point, Taken], ...]

    @property
    def spent_s(self) -> float:
        return sum(taken.spent for _, taken in self.units)


Progress = Callable[[Now], None]
After = Callable[[list[tuple[Point, Taken]]], object]


def tune(
    asked: Asked,
    job: Job,
    *,
    logs: Path,
    progress: Progress | None = None,
    after: After | None = None,
) -> Tuned:
    """Search, confirm, judge. What is in `job` already is not measured again, and counts.

    `after` hears all evaluations so far after each one. Raises KvwiseError without optuna,
    Interrupted on Ctrl-C (what was measured is kept), UsageError for what the engine cannot be
    told.
    """

    def unit(name: str, point: Point) -> Taken:
        if progress is not None:
            progress(Now(len(hunt.units), hunt.spent, point, hunt.best))

        def work(_: str) -> dict[str, object]:
            log = logs / f"{len(hunt.units) + 1}.log"
            return asked.meter.take(asked.launch(point), log, _most(hunt)).as_json()

        taken = Taken.of_json(job.run([name], work, last=False)[0])
        if after is not None:
            after([*hunt.units, (point, taken)])
        return taken

    def possible(point: Point) -> bool:
        launch = asked.launch(point)
        return not impossible(
            asked.meter.model, launch, asked.devices, asked.host, asked.companions
        )

    hunt = Hunt(asked.space, asked.limits, unit, possible, asked.seed)
    try:
        confirmed, verdict = hunt.run()
    except (Interrupted, KeyboardInterrupt) as stop:
        raise Interrupted(
            "stopped after {count} evaluations", count=len(job.results),
            hint="the same command goes on from there",
        ) from stop  # fmt: skip
    job.finish()
    return Tuned(asked, tuple(hunt.tried), confirmed, verdict, tuple(hunt.units))


def _most(hunt: Hunt) -> float | None:
    """Seconds that a setting other than the start may take; None until the start is known."""
    start = hunt.space.start
    known = [taken.spent for point, taken in hunt.units if point == start and taken.seconds]
    return max(known) * _SLOW if known else None
