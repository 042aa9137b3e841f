"""Peaks between runs are those of a run, for any tape and in any order of questions."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvwise.memory.compute.affine import Affine, NotAffine, Variable
from kvwise.memory.compute.curve import Curve
from kvwise.memory.compute.tape import Tape

Step = tuple[bool, int, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 1), st.integers(0, 6), st.integers(0, 90), st.integers(0, 50)
    ),
    min_size=1,
    max_size=60,
)
BLOCKS = st.lists(st.integers(1, 400), min_size=1, max_size=25)


def tape_of(steps: list[Step]) -> Tape:
    """Slots of growing and of constant size on two backends, freed in any order."""
    tape, n, held = Tape((32, 128)), Variable(1), list[int]()
    for take, backend, step, size, pick in steps:
        if take or not held:
            grows = Affine(step * 128, size * 40, n) if step else size * 40
            held.append(tape.alloc(backend, grows))  # type: ignore[arg-type]
        else:
            tape.free(held.pop(pick % len(held)))
    return tape


@given(STEPS, BLOCKS)
@example([(True, 0, 1, 0, 0), (True, 0, 0, 9, 0), (False, 0, 0, 0, 0)], [1, 400, 3, 200])
def test_every_answer_is_that_of_a_run(steps: list[Step], blocks: list[int]) -> None:
    tape = tape_of(steps)
    curve = Curve(tape)
    for value in blocks:
        assert curve.at(value) == tape.play(value).peaks


@given(STEPS)
def test_an_answer_is_given_again(steps: list[Step]) -> None:
    curve = Curve(tape_of(steps))
    assert curve.at(7) == curve.at(7)
    assert curve.played == 1


def test_few_runs_answer_for_a_whole_range() -> None:
    steps: list[Step] = [(True, 0, 2, 1, 0), (True, 0, 0, 50, 0), (False, 0, 0, 0, 0)]
    steps += [(True, 0, 1, 3, 0), (True, 1, 0, 7, 0)]
    tape = tape_of(steps)
    curve = Curve(tape)
    assert [curve.at(value) for value in range(1, 1000)] == [
        tape.play(value).peaks for value in range(1, 1000)
    ]
    assert curve.played < 40


def test_walking_outwards_takes_few_runs() -> None:
    curve = Curve(tape_of([(True, 0, 2, 1, 0), (True, 0, 0, 50, 0)]))
    for value in range(1, 5000):
        curve.at(value)
    assert curve.played < 30


def test_what_is_padded_unevenly_is_refused() -> None:
    with pytest.raises(NotAffine):
        Tape((128,)).alloc(0, Variable(1).times(64))


def test_a_slot_that_shrinks_gives_its_end_back() -> None:
    tape = Tape((32,))
    first = tape.alloc(0, 320)
    tape.alloc(0, 32)
    tape.resize(first, 0, 64)
    tape.alloc(0, 256)
    assert tape.play(0).peaks == (352,)
    assert not tape.even
