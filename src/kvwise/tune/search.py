"""Which setting to try next: first one knob at a time from the plan, then optuna's model of all.

Most of what a knob does it does by itself, so the first walk along each of them finds nearly
everything in few steps; what only two knobs together do is left to a tree-structured Parzen
estimator (TPE). The same answers lead to the same questions: a search that was interrupted is built
again out of what was measured.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from importlib import util
from typing import TYPE_CHECKING, Any

from kvwise.errors import KvwiseError
from kvwise.results.stats import DRIFT
from kvwise.tune.knobs import Knob, Point, Space, Value

if TYPE_CHECKING:
    import optuna

_ASKS = 30
"""Times that the model is asked for a point that is new, before a random one is taken."""
_BAD = 10.0
"""A point that failed counts as so many times the worst."""

Possible = Callable[[Point], bool]


def check_installed() -> None:
    """Raises KvwiseError when optuna is not there."""
    if util.find_spec("optuna") is None:
        raise KvwiseError(
            "tune needs optuna, which is not installed", hint="pip install 'kvwise[tune]'"
        )


class Search:
    """Ask for points and tell what they took; `best` is the least so far.

    `possible` keeps points out that cannot be. Raises KvwiseError without optuna.
    """

    def __init__(self, space: Space, seed: int = 0, possible: Possible | None = None) -> None:
        check_installed()
        self.space = space
        self.told: dict[Point, float | None] = {}
        self._possible = possible or (lambda _: True)
        self._here = space.start
        self._walk = self._walks()
        self._random = random.Random(seed)  # noqa: S311
        self._model = _Model(space, seed)

    @property
    def best(self) -> Point:
        """The point that took least; the start while nothing was told."""
        known = {point: took for point, took in self.told.items() if took is not None}
        return min(known, key=lambda point: known[point]) if known else self.space.start

    def ask(self) -> Point | None:
        """A point that was not told yet; None when there is none left."""
        for point in self._walk:
            return point
        for _ in range(_ASKS):
            point = self._model.ask()
            if point not in self.told and self._possible(point):
                return point
            self._model.again(point, self.told.get(point), self._worst)
        left = [
            point for point in self.space.points()
            if point not in self.told and self._possible(point)
        ] if self.space.size <= 1 << 16 else []  # fmt: skip
        return self._random.choice(left) if left else None

    def tell(self, point: Point, took: float | None) -> None:
        """What a point took (less is better); None = it failed."""
        self.told[point] = took
        self._model.tell(point, took, self._worst)

    @property
    def _worst(self) -> float:
        known = [took for took in self.told.values() if took is not None]
        return max(known) * _BAD if known else 1.0

    def _walks(self) -> Iterator[Point]:
        """The start, and then along each knob from where the last one led."""
        if self._new(self.space.start):
            yield self.space.start
        for knob in self.space.knobs:
            yield from self._ordered(knob) if knob.ordered else self._every(knob)

    def _every(self, knob: Knob) -> Iterator[Point]:
        here = self._here
        for value in knob.values:
            point = self.space.with_value(here, knob.name, value)
            if self._new(point):
                yield point
                self._move(point)

    def _ordered(self, knob: Knob) -> Iterator[Point]:
        """Downhill in both directions, as long as it goes down."""
        for step in (1, -1):
            while True:
                at = knob.values.index(_value(self._here, knob.name)) + step
                if not 0 <= at < len(knob.values):
                    break
                point = self.space.with_value(self._here, knob.name, knob.values[at])
                if not self._new(point):
                    break
                yield point
                if not self._move(point):
                    break

    def _move(self, point: Point) -> bool:
        """Go on from a point that is clearly faster: a knob that does nothing stays where it is."""
        took, before = self.told.get(point), self.told.get(self._here)
        if took is not None and (before is None or took < before * (1 - DRIFT)):
            self._here = point
            return True
        return False

    def _new(self, point: Point) -> bool:
        return point not in self.told and self._possible(point)


def _value(point: Point, name: str) -> Value:
    return dict(point)[name]


class _Model:
    """optuna's study of the space."""

    def __init__(self, space: Space, seed: int) -> None:
        import optuna  # noqa: PLC0415  (heavy, and an extra)

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._names = [knob.name for knob in space.knobs]
        self._ways: dict[str, optuna.distributions.BaseDistribution] = {
            knob.name: optuna.distributions.CategoricalDistribution(knob.values)
            for knob in space.knobs
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `multivariate` calls itself experimental
            sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=1, multivariate=True)
        self._study = optuna.create_study(direction="minimize", sampler=sampler)
        self._asked: dict[Point, optuna.trial.Trial] = {}

    def ask(self) -> Point:
        trial = self._study.ask(self._ways)
        point = tuple((name, trial.params[name]) for name in self._names)
        self._asked[point] = trial
        return point

    def tell(self, point: Point, took: float | None, worst: float) -> None:
        value = worst if took is None else took
        trial = self._asked.pop(point, None)
        if trial is not None:
            self._study.tell(trial, value)
            return
        self._study.add_trial(self._trial(point, value))

    def again(self, point: Point, took: float | None, worst: float) -> None:
        """It asked for what is known, or cannot be."""
        trial = self._asked.pop(point)
        self._study.tell(trial, worst if took is None else took)

    def _trial(self, point: Point, value: float) -> Any:
        import optuna  # noqa: PLC0415

        return optuna.trial.create_trial(
            params=dict(point), distributions=dict(self._ways), value=value
        )
