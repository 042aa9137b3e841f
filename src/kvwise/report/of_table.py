"""A report of `kvwise table`: what each context takes, by cache types, on each machine."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from kvwise.plan.table import Cell, Table
from kvwise.plan.table_notes import notes
from kvwise.plan.table_report import COLUMNS, table_json, table_rows
from kvwise.plan.table_words import Said, Shown, cache_table, other_tables
from kvwise.report.charts.contexts import Curve, contexts
from kvwise.report.document import Block, Bullets, Grid, Heading, Report, Section, Words
from kvwise.results.files import cell as csv_cell
from kvwise.results.wording import number
from kvwise.text import phrase
from kvwise.units import MIB


def table_report(table: Table, title: Words | None = None) -> Report:
    """The report; its JSON is kvwise/table/1."""
    places = [
        (model, machine)
        for model in range(len(table.entries))
        for machine in range(len(table.machines))
    ]
    sections = [_section(table, *place) for place in places]
    sections += [Section(each.title, (_grid(each),)) for each in other_tables(table)]
    sections.append(Section(phrase("Remarks"), (Bullets(tuple(notes(table))),)))
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
    cells = [table.cell(model, machine, pair) for pair in range(len(table.pairs))]
    there = table.machines[machine].usable_bytes
    limit: tuple[Words, int] | None = None
    if there:
        limit = (phrase("{size} MiB: what may be used there", size=number(there // MIB)), there)
    picture = contexts(
        _curves(cells), limit, caption=phrase("All that the devices hold, computed from the "
                                              "model's header.")
    )  # fmt: skip
    shown = cache_table(table, model, machine)
    blocks: tuple[Block, ...] = (_grid(shown), *([picture] if picture else ()))
    return Section(shown.title, blocks)


def _curves(cells: Sequence[Cell]) -> list[Curve]:
    """All that a context takes there where that was worked out, else nothing."""
    return [
        Curve(_types(cell), tuple((at.n_ctx, at.gpu_bytes)
                                  for at in cell.at if at.gpu_bytes is not None))
        for cell in cells
    ]  # fmt: skip


def _types(cell: Cell) -> str:
    return "/".join(cell.pair)


def _grid(shown: Shown) -> Grid:
    columns = tuple(Heading(each.words, each.right) for each in shown.columns)
    rows = tuple(
        tuple(each.words if isinstance(each, Said) else each for each in row) for row in shown.rows
    )
    return Grid(columns, rows)
