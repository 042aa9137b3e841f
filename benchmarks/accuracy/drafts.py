"""Drafts beside their targets against what two builds printed after their first batch."""

from __future__ import annotations

import sys

from tally import PARTS

from zoo import TESTS, Cell, Compared, Progress, short

sys.path.append(str(TESTS))

from oracle.kept_drafts import Document, ledger_of, recorded, rows_of

_PART = {"weights": PARTS[0], "context": PARTS[1], "output": PARTS[2]}


def loaded(build: str, progress: Progress) -> Compared:
    """All pairs that a build really loaded; they count as the draft's architecture."""
    found = Compared()
    for name, pair in recorded().items():
        progress(f"{build} with draft {name}")
        for row in pair["results"]:
            if row["build"] == build:
                _setting(found, name, pair, row)
    return found


def _setting(found: Compared, name: str, pair: Document, row: Document) -> None:
    whose = pair["target"] if pair["draft"] is None else pair["draft"]
    architecture = str(whose["metadata"]["general.architecture"])
    found.configurations += 1
    found.models[architecture].add(name)
    cell = Cell(architecture, short(name, {**row["fields"], "GPUs": row["gpus"]}))
    for each in rows_of(ledger_of(pair, row), row["said"]):
        part = _PART.get(each.kind) or PARTS[4 if each.name.endswith("CPU") else 3]
        if each.measured is not None:
            found.line(cell, part, each.computed or 0, each.measured)
