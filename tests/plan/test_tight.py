"""A plan uses a card up to the last step: nothing more fits, or it says which other limit ends it.

The quick test looks at a sample of the zoo, the slow one at all of it, on cards of 2 to 80 GiB,
one and two of them, by generic and by CUDA rules. `python benchmarks/tight.py` asks the same, can
be stopped and taken up again, and shares the work between processes.
"""

from __future__ import annotations

import random

import pytest

from .tight import GOALS, HEADS, KINDS, LARGE, NAMES, about_its_size, check, machines, places


def _sample(count: int) -> list[tuple[str, int, str]]:
    dice = random.Random(5)
    machine = range(len(machines()))
    quick = [name for name in NAMES if not LARGE.search(name)]
    return [(name, dice.choice(machine), dice.choice(GOALS)) for name in dice.sample(quick, count)]


@pytest.mark.parametrize(("name", "machine", "purpose"), _sample(24))
def test_one_step_more_does_not_fit(name: str, machine: int, purpose: str) -> None:
    check(name, machines()[machine], purpose)


def _shares(count: int) -> list[tuple[str, float, bool, str]]:
    dice = random.Random(11)
    quick = [name for name in NAMES if not LARGE.search(name)]
    return [
        (name, dice.choice((0.3, 0.6, 0.9, 1.1, 1.4)), dice.choice((True, False)),
         dice.choice(KINDS))
        for name in dice.sample(quick, count)
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "share", "two", "kind"), _shares(24))
def test_one_step_more_does_not_fit_where_the_model_hardly_does(
    name: str, share: float, two: bool, kind: str
) -> None:
    check(name, about_its_size(name, share, two=two, kind=kind), "chat")


def test_a_card_with_the_output_alone_needs_hardly_anything_to_compute_in() -> None:
    """One layer more costs it a whole compute buffer: that split must not be guessed away."""
    devices = about_its_size("deepseek-v2-lite", 0.2, two=True, kind="cuda")
    assert check("deepseek-v2-lite", devices, "code") == "memory memory"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in HEADS])
def test_one_step_more_does_not_fit_anywhere(name: str) -> None:
    ends = [check(name, devices, purpose) for _, devices, purpose in places(name)]
    assert any(ends)
