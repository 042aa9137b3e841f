"""From a log to the cause, the numbers and the fix.

`diagnose` reads a log in any form that people keep one in: lines, bytes in pieces, an open file.
`scan` finds the lines that say something, `unwrap` takes off what wrappers put around them, `case`
keeps what a load said, `rules/` has one row per cause, `judge` orders what they find. `numbers`
puts the ledger beside the log's figures and makes a plan that fits. The names are loaded when they
are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvwise.diagnose.finding import Diagnosis, Evidence, Finding, Remedy
    from kvwise.diagnose.read import diagnose

__all__ = ["Diagnosis", "Evidence", "Finding", "Remedy", "diagnose"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'kvwise.diagnose' has no attribute {name!r}")
    home = "read" if name == "diagnose" else "finding"
    value = getattr(import_module(f"kvwise.diagnose.{home}"), name)
    globals()[name] = value
    return value
