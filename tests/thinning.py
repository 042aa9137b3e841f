"""A part of many like cases for every run, all of them for `make slow`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def thinned(rows: Sequence[Any], every: int = 2) -> list[Any]:
    """The rows of a parametrization, all but every second (or third...) one marked slow."""
    return [
        row
        if number % every == 0
        else pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.slow)
        for number, row in enumerate(rows)
    ]
