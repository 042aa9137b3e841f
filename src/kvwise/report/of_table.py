"""A report of `kvwise table`: what each context takes, by cache types, on each machine."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from kvwise.plan.table import Cell, Table
from kvwise.plan.table_report import COLUMNS, table_json, table_rows
from kvwise.report.charts.contexts import Curve, contexts
from kvwise.report.document import Block, Grid, Heading, Report, Section, Words
from kvwise.results.files import cell as csv_cell
from kvwise.results.wording import number
from kvwise.text import phrase
from kvwise.units import MIB


def table_report(table: Table, title: Words | None = None) -> Report:
    """The report; its JSON is kvwise/table/1."""
    sections = [
        _section(table, model, machine)
        for model in range(len(table.entries))
        for machine in range(len(table.machines))
    ]
    names = ", ".join(dict.fromkeys(entry.name for entry in table.entries))
    facts: list[tuple[Words, Words]] = [
        (phrase("model"), phrase("{name}: {architecture}, {size} MiB of weights",
         name=entry.name, architecture=entry.model.architecture,
         size=number(round(entry.model.header.tensor_bytes / MIB, 1))))
        for entry in table.entries[:6]
    ]  # fmt: skip
    return Report(
        title or phrase("What fits: {models}", models=names),
        tuple(facts),
        tuple(sections),
        table_json(table),
        _csv(table),
    )


def _csv(table: Table) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([csv_cell(value) for value in row] for row in table_rows(table))
    return out.getvalue()


def _section(table: Table, model: int, machine: int) -> Section:
    entry, place = table.entries[model], table.machines[machine]
    cells = [table.cell(model, machine, pair) for pair in range(len(table.pairs))]
    there = place.usable_bytes
    limit: tuple[Words, int] | None = None
    if there:
        limit = (phrase("{size} MiB: what may be used there", size=number(there // MIB)), there)
    picture = contexts(
        _curves(cells), limit, caption=phrase("All that the devices hold, computed from the "
                                              "model's header.")
    )  # fmt: skip
    blocks: tuple[Block, ...] = (_grid(cells), *([picture] if picture else ()))
    where = place.name or phrase("without a GPU")
    return Section(phrase("{model} on {machine}", model=entry.name, machine=where), blocks)


def _curves(cells: Sequence[Cell]) -> list[Curve]:
    """All that a context takes there where that was worked out, else nothing."""
    return [
        Curve(_types(cell), tuple((at.n_ctx, at.gpu_bytes)
                                  for at in cell.at if at.gpu_bytes is not None))
        for cell in cells
    ]  # fmt: skip


def _types(cell: Cell) -> str:
    return "/".join(cell.pair)


def _grid(cells: Sequence[Cell]) -> Grid:
    lengths = [at.n_ctx for at in cells[0].at] if cells else []
    columns = [Heading(phrase("cache types")), Heading(phrase("longest context"), True)]
    columns += [Heading(f"{length:,}", True) for length in lengths]
    rows = [tuple(_row(cell, len(lengths))) for cell in cells]
    note = phrase("MiB of cache by context; in brackets where it does not fit.")
    return Grid(tuple(columns), tuple(rows), note)


def _row(cell: Cell, contexts: int) -> list[Words]:
    if cell.refused:
        return [_types(cell), phrase("refused"), *[""] * contexts]
    longest = "-" if cell.n_ctx_max is None else f"{cell.n_ctx_max:,}"
    sizes = [(f"{at.cache_bytes / MIB:,.1f}", at.fits) for at in cell.at]
    return [_types(cell), longest, *(size if fits else f"({size})" for size, fits in sizes)]
