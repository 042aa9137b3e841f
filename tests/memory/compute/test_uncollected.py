"""The collector rests while a graph is made, and is as it was afterwards."""

from __future__ import annotations

import gc

import pytest

from kvwise.memory.compute.uncollected import uncollected


def test_the_collector_rests_inside_and_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="odd"), uncollected():
        assert not gc.isenabled()
        raise ValueError("odd")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
