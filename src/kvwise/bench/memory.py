"""The engine's sizes beside ours: one row per buffer and side of a cache, and sums for a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kvwise.bench.effects import widest
from kvwise.bench.ruled import Means, Ruled, expected
from kvwise.engine.loaded import Loaded
from kvwise.engine.simulated_beside import DRAFTS
from kvwise.gguf.model import Model
from kvwise.memory.ledger import Extra, Ledger, Line
from kvwise.results.names import memory_of, work_of
from kvwise.verify.compare import (
    DRAFT,
    Row,
    compare,
    engine_devices,
    engine_features,
    measured_ledger,
)

PARTS = ("weights", "cache", "output", "compute")


def beside(
    ruled: Ruled, model: Model, means: Means, loaded: Loaded, depth: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of a start that measured the tests at `depth`, and what a measurement keeps of it
    (`memory`, `work` of results/names.py), as plain values; both empty when the engine printed no
    sizes. Raises what `account` raises."""
    context = widest(loaded)
    if context is None or not context.used:
        return [], {}
    loaded.contexts = [each for each in loaded.contexts if each is context or each.draft]
    ledger = expected(
        ruled,
        model,
        means,
        devices=engine_devices(loaded),
        features=engine_features(loaded),
        depth=depth,
    )  # fmt: skip
    rows = compare(ledger, loaded)
    memory = memory_of(ledger, measured_ledger(ledger, rows))
    return [_row(row) for row in rows], {"memory": memory, "work": work_of(ledger, depth)}


def _row(row: Row) -> dict[str, Any]:
    measured = row.measured
    return {
        "kind": row.kind,
        "name": row.name,
        "computed_bytes": row.computed,
        "measured_bytes": row.measured_bytes if measured else None,
        "measured_mib": [str(part) for part in measured.parts] if measured else None,
        "difference_bytes": row.difference,
        "agrees": row.agrees,
    }


def sums(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, int | None]]:
    """Per part: computed and measured bytes, and their difference; a side that no row has is
    None. Cache buffers are the sides of the caches once more and do not count, but for a draft's,
    whose sides have no rows."""
    found: dict[str, dict[str, int | None]] = {}
    for part in PARTS:
        mine = [row for row in rows if _part_of(row) == part]
        computed = [row["computed_bytes"] for row in mine if row["computed_bytes"] is not None]
        measured = [row["measured_bytes"] for row in mine if row["measured_bytes"] is not None]
        found[part] = {
            "computed_bytes": sum(computed) if computed else None,
            "measured_bytes": sum(measured) if measured else None,
            "difference_bytes": sum(row["difference_bytes"] for row in mine) if measured else None,
        }
    return found


def _part_of(row: dict[str, Any]) -> str:
    """The part that a row belongs to."""
    drafts = row["kind"] == "context" and row["name"].startswith(DRAFT)
    return "cache" if drafts else str(row["kind"])


def predicted(ledger: Ledger) -> dict[str, int]:
    """The same parts of a ledger that nothing was measured for."""
    drafts = [extra for extra in ledger.extras if extra.of in DRAFTS]
    counted: list[Line | Extra] = [*ledger.lines, *drafts]
    return {
        "weights": sum(each.weights_bytes for each in counted),
        "cache": sum(each.nbytes for each in ledger.caches)
        + sum(each.context_bytes for each in drafts),
        "output": sum(each.output_bytes for each in counted),
        "compute": sum(each.compute_bytes for each in counted),
    }


def widest_rows(each: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Of the starts of a setting, the one with the largest cache: its longest context."""
    return max(each, key=cache_bytes, default=[])


def cache_bytes(rows: Sequence[dict[str, Any]]) -> int:
    """Bytes of the caches of a start."""
    return sum(row["computed_bytes"] or 0 for row in rows if row["kind"] == "cache")
