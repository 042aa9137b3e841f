"""Computed beside measured: a real load, a real generation, and the difference per line.

`run` tries a launch N times, `attempt` is one of them and `filling` its prompt, `compare` puts the
engine's buffer lines beside the ledger, `summary` makes a few figures of many runs, `identity` and
`codec` keep them, `documents` makes the JSON of it. The engine prints sizes with two decimals of a
MiB: a computed figure that would print the same has no difference.
"""

from __future__ import annotations

from kvwise.verify.attempt import Attempt
from kvwise.verify.compare import Row, compare, measured_ledger
from kvwise.verify.documents import SCHEMA, verification_json
from kvwise.verify.run import Verification, verify

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
