"""The search on spaces that are known in full: near the best with a fifth of the evaluations."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable

import pytest

from kvwise.errors import KvwiseError
from kvwise.tune.hunt import Hunt, Limits
from kvwise.tune.knobs import Knob, Point, Space
from kvwise.tune.measure import Taken
from kvwise.tune.search import Search

optuna = pytest.importorskip("optuna")

SPACE = Space(
    (
        Knob("t", (1, 2, 4)), Knob("ub", (64, 128, 256, 512)),
        Knob("fa", ("auto", "off"), ordered=False), Knob("poll", (0, 50, 100)),
    ),
    (("t", 4), ("ub", 512), ("fa", "auto"), ("poll", 50)),
)  # fmt: skip


def world(seed: int) -> Callable[[Point], float]:
    """Seconds of a point: threads, a best batch, flash attention, polling, and 1 % of its own."""
    draw = random.Random(seed)
    threads, batch = draw.uniform(0.2, 1), draw.uniform(0.02, 0.2)
    at, flash = draw.randrange(4), draw.gauss(0, 0.5)
    poll = {0: draw.uniform(-0.5, 0.5), 50: 0.0, 100: draw.uniform(-0.5, 0.5)}

    def seconds(point: Point) -> float:
        values = dict(point)
        place = (64, 128, 256, 512).index(int(values["ub"]))
        took = 10 / int(values["t"]) ** threads * (1 + batch * abs(place - at)) + 3
        took += (flash if values["fa"] == "off" else 0) + poll[int(values["poll"])]
        return took * (1 + random.Random(f"{point} {seed}").gauss(0, 0.01))

    return seconds


def hunt(seconds: Callable[[Point], float], seed: int, noise: float = 0.01) -> Hunt:
    draw = random.Random(seed)

    def unit(_: str, point: Point) -> Taken:
        return Taken(0.0, 1.0, seconds(point) * (1 + draw.gauss(0, noise)), 1.0, 1.0)

    return Hunt(SPACE, Limits.of(SPACE, float("inf")), unit, seed=seed)


def test_a_fifth_of_the_grid_is_enough() -> None:
    ratios, counts = [], []
    for number in range(10):
        seconds = world(number)
        mine = hunt(seconds, number)
        _, verdict = mine.run()
        point = verdict.best.point if verdict.best else SPACE.start
        ratios.append(seconds(point) / min(map(seconds, SPACE.points())))
        counts.append(len(mine.units))
    assert statistics.median(ratios) <= 1.03
    assert max(counts) <= SPACE.size // 5


def test_nothing_is_recommended_where_nothing_is_faster() -> None:
    """All settings alike: whatever looks faster is noise."""
    wrong = sum(hunt(lambda _: 10.0, seed, 0.03).run()[1].best is not None for seed in range(8))
    assert wrong <= 1


def test_knobs_that_do_nothing_stay_as_they_are() -> None:
    """Only -ub matters: whatever else looked faster once is one flag too many."""
    for seed in range(4):
        found = hunt(lambda point: 10.0 + int(dict(point)["ub"]) / 100, seed, 0.002).run()[1]
        assert found.best is not None
        assert dict(found.best.point) == dict(SPACE.start) | {"ub": 64}


def test_the_same_answers_lead_to_the_same_questions() -> None:
    """What a search that was killed relies on."""
    seconds = world(3)

    def asked(count: int) -> list[Point]:
        search, found = Search(SPACE, seed=5), []
        for _ in range(count):
            point = search.ask()
            assert point is not None
            found.append(point)
            search.tell(point, seconds(point))
        return found

    assert asked(20) == asked(20)
    assert asked(20)[:9] == asked(9)


def test_every_point_once_and_then_none() -> None:
    space = Space(
        (Knob("a", (1, 2, 3)), Knob("b", ("x", "y"), ordered=False)), (("a", 2), ("b", "x"))
    )
    search, seen = Search(space), set()
    while (point := search.ask()) is not None:
        assert point not in seen
        seen.add(point)
        search.tell(point, None if point[0][1] == 1 else 1.0)  # some fail
    assert seen == set(space.points())


def test_what_cannot_be_is_never_asked_for() -> None:
    search = Search(SPACE, possible=lambda point: dict(point)["ub"] != 64)
    seen = []
    while (point := search.ask()) is not None:
        seen.append(point)
        search.tell(point, float(len(seen)))
    assert len(seen) == SPACE.size * 3 // 4
    assert all(dict(point)["ub"] != 64 for point in seen)


def test_it_starts_with_the_plan() -> None:
    assert Search(SPACE).ask() == SPACE.start


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr("kvwise.tune.search.util.find_spec", lambda _: None)
    with pytest.raises(KvwiseError, match="not installed") as error:
        Search(SPACE)
    assert "kvwise[tune]" in str(error.value.hint)
