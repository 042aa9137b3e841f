"""No search for garbage while a graph is made.

A graph is tens of thousands of objects that (but for a cast, which is its own source) refer to
older ones only, and go when it is let go: Python's collector finds next to nothing in it, and looks
through it again and again while it grows, a quarter of the time of a plan.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Leave the collector off inside, if it was on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
