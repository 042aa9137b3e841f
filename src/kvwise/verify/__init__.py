"""Computed beside measured: a real load, a real generation, and the difference per line.

`verify` starts the engine N times, `compare` puts its buffer lines beside the ledger,
`documents` makes the JSON of it. The engine prints sizes with two decimals of a MiB: a computed
figure that would print the same has no difference.
"""

from __future__ import annotations

from kvwise.verify.compare import Row, compare, measured_ledger
from kvwise.verify.documents import SCHEMA, verification_json
from kvwise.verify.run import Attempt, Verification, verify

__all__ = [
    "SCHEMA",
    "Attempt",
    "Row",
    "Verification",
    "compare",
    "measured_ledger",
    "verification_json",
    "verify",
]
