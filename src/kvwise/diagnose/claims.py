"""Figures of a log that its own hyperparameters cannot give.

Only where there is nothing to choose: one width of K and of V for all layers (n_embd_k_gqa,
n_embd_v_gqa), and a cache line with cells, layers and types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvwise.diagnose.case import Case
from kvwise.engine import events as ev
from kvwise.engine.printed import Printed
from kvwise.gguf.types import by_name
from kvwise.units import MIB


@dataclass(frozen=True, slots=True)
class Claim:
    """A printed size, and the size that cells, layers, widths and type give."""

    what: str
    printed_bytes: int
    computed_bytes: int
    cells: int
    layers: int
    width: int
    type: str


def claims_of(case: Case) -> tuple[Claim, ...]:
    """All impossible cache sizes of a load."""
    main, model = case.loaded.main, case.loaded.model
    if main is None or model is None:
        return ()
    widths = [_whole(model.facts.get(name)) for name in ("n_embd_k_gqa", "n_embd_v_gqa")]
    found = []
    for cache in main.caches:
        total = cache.total
        if isinstance(total, ev.KVCache) and total.cells and total.layers:
            found += list(_of(cache.what or "main", total, widths))
    return tuple(found)


def _of(what: str, total: ev.KVCache, widths: list[int | None]) -> Iterator[Claim]:
    sides = (("K", total.type_k, total.k, widths[0]), ("V", total.type_v, total.v, widths[1]))
    for side, kind, printed, width in sides:
        known = by_name(kind) if kind else None
        if known is None or printed is None or not width or not printed.units:
            continue
        if width % known.block:
            continue
        size = (
            known.row_bytes(width) * (total.cells or 0) * (total.layers or 0) * (total.streams or 1)
        )
        if not _near(printed, size):
            yield Claim(f"{what} {side}", printed.bytes, size, total.cells or 0, total.layers or 0,
                        width, known.name)  # fmt: skip


def _near(printed: Printed, size: int) -> bool:
    return printed.low - MIB // 50 <= size <= printed.high + MIB // 50


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
