"""Pairs of target and draft as two builds loaded them, beside our ledgers of the same.

`tests/memory/drafts.json.gz` is what `measure_drafts.py` kept.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

from kvwise.engine.loaded import ContextLoad, Loaded, ModelLoad
from kvwise.engine.printed import Printed, Total
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.memory.parts.companions import Companions
from kvwise.verify.compare import Row, compare
from oracle.measure_drafts import KEPT, launch_of, model_of
from oracle.measure_mtp import devices_of

Document = dict[str, Any]
_SAYS_NOTHING = ContextLoad(draft=True)


@cache
def recorded() -> dict[str, Document]:
    """Each pair by its name: headers, the kind of speculation, and what was printed."""
    known: dict[str, Document] = json.loads(gzip.decompress(KEPT.read_bytes()))
    return known


def ledger_of(pair: Document, row: Document) -> Ledger:
    """Our ledger of one setting of a pair."""
    draft = None if pair["draft"] is None else model_of(pair["draft"])
    launch = launch_of(row["build"], pair["kind"], row["fields"], "draft.gguf" if draft else "")
    return account(
        model_of(pair["target"]),
        launch,
        devices_of(row["gpus"]),
        companions=Companions(draft=draft),
    )


def rows_of(ledger: Ledger, said: list[Any]) -> list[Row]:
    """Our figures beside those that were kept; caches are compared by what is in each buffer."""
    ours = {
        (row.kind, row.name): row.computed
        for row in compare(ledger, Loaded(models=[ModelLoad(draft=True)], contexts=[_SAYS_NOTHING]))
    }
    return [
        Row(kind, name, ours.pop((kind, name), None), _printed(parts))
        for kind, name, parts in said
        if kind != "cache"
    ] + [Row(kind, name, size, None) for (kind, name), size in ours.items() if kind != "cache"]


def _printed(parts: list[list[Any]]) -> Total | None:
    return Total(tuple(Printed(*each) for each in parts)) if parts else None
