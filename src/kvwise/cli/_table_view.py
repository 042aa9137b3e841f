"""A table of models and GPUs as a person reads it: heat map, Markdown, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from math import log2

from kvwise.cli._shapes import Cell, Column, Words
from kvwise.cli._shapes import Table as Shown
from kvwise.cli.output import Printer
from kvwise.plan.table import NO_KERNEL, At, Pair, Table
from kvwise.plan.table import Cell as Answer
from kvwise.plan.table_report import COLUMNS, embeds, table_rows
from kvwise.text import Phrase, phrase
from kvwise.units import MIB, percent, show

_HEAT = 5  # shades
_LEAST_USEFUL = 2048  # tokens: the coldest shade


def show_text(printer: Printer, table: Table) -> None:
    """Tables for a terminal or a pipe."""
    for shown in _tables(table):
        printer.table(shown)
        printer.text()
    printer.bullets(_notes(table), "dim")


def show_markdown(printer: Printer, table: Table) -> None:
    """The same tables in Markdown."""
    for shown in _tables(table):
        printer.text(f"### {printer.say(shown.title)}\n")
        for line in _markdown(printer, shown):
            printer.text(line)
        printer.text()
    for note in _notes(table):
        printer.text(f"- {printer.say(note)}")


def show_csv(printer: Printer, table: Table) -> None:
    """A row per cell and context, names as in the JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(table_rows(table))
    printer.text(out.getvalue().rstrip("\n"))


def _markdown(printer: Printer, shown: Shown) -> Iterator[str]:
    def words(cell: Cell | Words) -> str:
        text = printer.say(cell.words if isinstance(cell, Cell) else cell)
        return text.replace("|", "\\|")

    yield "| " + " | ".join(words(column.words) for column in shown.columns) + " |"
    yield "|" + "|".join("---:" if column.right else "---" for column in shown.columns) + "|"
    for row in shown.rows:
        yield "| " + " | ".join(map(words, row)) + " |"


def _tables(table: Table) -> Iterator[Shown]:
    for number in range(len(table.entries)):
        yield _cache_table(table, number)
    yield _by_machine(table, phrase("Longest context with all layers on the GPU"), _longest)
    if table.layers and len(table.machines) > 1:
        yield _layers_table(table)
    if table.prompt_tokens is not None:
        title = phrase(
            "Tokens left for an answer beside a prompt of {tokens} tokens, at the longest context",
            tokens=f"{table.prompt_tokens:,}",
        )
        yield _by_machine(table, title, _predict)


# -- cache by context ----------------------------------------------------------------------------


def _cache_table(table: Table, number: int) -> Shown:
    """MiB per context and pair; with one machine also the share, and whether it fits."""
    one = len(table.machines) == 1
    cells = [table.cell(number, 0, pair) for pair in range(len(table.pairs))]
    rows: list[list[Cell | Words]] = []
    for place, n_ctx in enumerate(table.contexts):
        at = [cell.at[place] for cell in cells]
        row: list[Cell | Words] = [f"{n_ctx:,}" + ("*" if at[0].beyond_training else "")]
        row += [
            _cache_cell(table, each, cell, one=one) for each, cell in zip(at, cells, strict=True)
        ]
        if table.prompt_tokens is not None:
            row.append(_room(next((each.n_predict for each in at if not each.refused), None)))
        rows.append(row)
    columns = [Column("-c", right=True), *(Column(_pair(pair), right=True) for pair in table.pairs)]
    if table.prompt_tokens is not None:
        columns.append(Column(phrase("left for an answer"), right=True))
    name = table.entries[number].name
    title = phrase("{model}: MiB of cache", model=name)
    if one and table.machines[0].total_bytes:
        title = phrase(
            "{model}: MiB of cache, share of {total} on {gpu}, and whether it fits",
            model=name,
            total=show(table.machines[0].total_bytes),
            gpu=table.machines[0].name or phrase("host"),
        )
    return Shown(columns, rows, title)


def _cache_cell(table: Table, at: At, cell: Answer, *, one: bool) -> Cell | Words:
    if at.refused:
        return Cell(phrase("refused"), "dim")
    size = f"{at.cache_bytes / MIB:,.1f}"
    if not one or at.share is None:
        return size
    share = percent(at.share, ".1f")
    if cell.refused:
        return Cell(_refusal(cell), "dim")
    if not at.fits and table.layers and at.n_gpu_layers is not None:
        return Cell(f"{size} ({share}) {_part(table, at, cell)}", "heat1")
    if not at.fits:
        return Cell(phrase("{size} ({share}) no", size=size, share=share), "heat0")
    return Cell(f"{size} ({share})", f"heat{_shade_of_share(at.share)}")


def _shade_of_share(share: float) -> int:
    return max(1, _HEAT - 1 - int(share * 8))


def _part(table: Table, at: At, cell: Answer) -> str:
    """Layers on the GPU of all that there are."""
    return f"{at.n_gpu_layers}/{table.entries[cell.model].everything}"


def _layers_table(table: Table) -> Shown:
    """A row per model, machine and pair, a column per context."""
    several = len(table.entries) > 1
    rows: list[list[Cell | Words]] = []
    for cell in table.cells:
        row: list[Cell | Words] = [table.entries[cell.model].name] if several else []
        row += [table.machines[cell.machine].name or phrase("host"), _pair(cell.pair)]
        row += [_layers_cell(table, at, cell) for at in cell.at]
        rows.append(row)
    columns = [
        *([Column(phrase("model"))] if several else []),
        Column(phrase("GPU")),
        Column("K/V"),
        *(Column(f"{n_ctx:,}", right=True) for n_ctx in table.contexts),
    ]
    return Shown(columns, rows, phrase("Layers on the GPU by context"))


def _layers_cell(table: Table, at: At, cell: Answer) -> Cell:
    if cell.refused:
        return Cell(_refusal(cell), "dim")
    if at.refused:
        return Cell(phrase("refused"), "dim")
    if at.fits:
        return Cell(phrase("all"), "heat4")
    if at.n_gpu_layers is None:
        return Cell(phrase("no"), "heat0")
    share = at.n_gpu_layers / table.entries[cell.model].everything
    return Cell(_part(table, at, cell), f"heat{1 + int(share * 2.999)}" if share else "heat0")


# -- longest context -----------------------------------------------------------------------------


def _by_machine(table: Table, title: Phrase, cell_of: Callable[[Table, Answer], Cell]) -> Shown:
    """A row per model and machine, a column per pair."""
    several = len(table.entries) > 1
    rows: list[list[Cell | Words]] = []
    for number, entry in enumerate(table.entries):
        for place, machine in enumerate(table.machines):
            row: list[Cell | Words] = [entry.name] if several else []
            row += [machine.name or phrase("host"), show(machine.usable_bytes)]
            row += [
                cell_of(table, table.cell(number, place, pair)) for pair in range(len(table.pairs))
            ]
            rows.append(row)
    columns = [
        *([Column(phrase("model"))] if several else []),
        Column(phrase("GPU")),
        Column(phrase("usable"), right=True),
        *(Column(_pair(pair), right=True) for pair in table.pairs),
    ]
    return Shown(columns, rows, title)


def _longest(table: Table, cell: Answer) -> Cell:
    if cell.refused:
        return Cell(_refusal(cell), "dim")
    if cell.n_ctx_max is None:
        short = show(cell.misses_bytes) if cell.misses_bytes else None
        return Cell(phrase("no (-{size})", size=short) if short else phrase("no"), "heat0")
    words: Words = f"{cell.n_ctx_max:,}"
    if cell.limit == "training":
        words = phrase("{tokens} all", tokens=words)
    elif cell.n_ctx_max != cell.n_ctx_max_all_layers and table.machines[cell.machine].devices:
        whole = cell.n_ctx_max_all_layers
        words = f"{words} ({whole:,})" if whole else f"{words} (0)"
    return Cell(words, f"heat{_shade(table, cell)}")


def _shade(table: Table, cell: Answer) -> int:
    """How much of what the model was trained for, by doublings."""
    if cell.limit != "memory" or not cell.n_ctx_max:
        return _HEAT - 1
    trained = max(table.entries[cell.model].model.n_ctx_train, 2 * _LEAST_USEFUL)
    reached = log2(max(cell.n_ctx_max / _LEAST_USEFUL, 1)) / log2(trained / _LEAST_USEFUL)
    return min(_HEAT - 2, int(reached * (_HEAT - 1)))


def _predict(table: Table, cell: Answer) -> Cell:
    if cell.refused:
        return Cell(_refusal(cell), "dim")
    if cell.n_predict_max is None:
        return Cell(phrase("no"), "heat0")
    room = _room(cell.n_predict_max)
    return room if cell.n_predict_max < 1 else Cell(room.words, f"heat{_shade(table, cell)}")


def _room(n_predict: int | None) -> Cell:
    """What is left for an answer; a prompt that finds no room leaves none."""
    if n_predict is None:
        return Cell("")
    if n_predict < 1:
        return Cell(phrase("no ({tokens})", tokens=f"{n_predict:,}"), "heat0")
    return Cell(f"{n_predict:,}")


def _refusal(cell: Answer) -> Phrase:
    on_cpu = cell.refused is not None and cell.refused.code == NO_KERNEL
    return phrase("on the CPU") if on_cpu else phrase("refused")


def _pair(pair: Pair) -> str:
    return pair[0] if pair[0] == pair[1] else f"{pair[0]}/{pair[1]}"


# -- notes ---------------------------------------------------------------------------------------


def _notes(table: Table) -> Sequence[Phrase]:
    launch = table.entries[0].launch
    notes = [
        phrase(
            "llama.cpp {build}, {tool}, slots: {slots}, batch: {batch}, micro-batch: {ubatch}",
            build=launch.build,
            tool=launch.tool,
            slots=launch.n_seq_max,
            batch=launch.n_batch,
            ubatch=launch.n_ubatch,
        ),
        _legend(table),
    ]
    if table.layers and any(
        at.n_gpu_layers is not None and not at.fits for cell in table.cells for at in cell.at
    ):
        notes.append(
            phrase(
                "a/b: of b layers a fit on the GPU beside that context (-ngl a; the output counts "
                "as one), the processor has the rest"
            )
        )
    devices = [device for machine in table.machines for device in machine.devices]
    notes += {str(each.note): each.note for each in devices if each.note}.values()
    beside = [(at.beside_bytes, at.n_ctx) for cell in table.cells for at in cell.at if at.fits]
    most, n_ctx = max(beside, default=(0, 0))
    if most:
        notes.append(
            phrase(
                "counted too: what stands beside the model (draft, projector, adapters), at most "
                "{size} at {n_ctx} tokens",
                size=show(most),
                n_ctx=f"{n_ctx:,}",
            )
        )
    if any(at.beyond_training for cell in table.cells for at in cell.at):
        notes.append(phrase("*: beyond what the model was trained for"))
    if any(embeds(entry) for entry in table.entries) and table.prompt_tokens is not None:
        notes.append(
            phrase("an embedding model generates nothing: its context must hold the text alone")
        )
    notes += _refusals(table)
    if not all(cell.verified for cell in table.cells):
        notes.append(phrase("some figures are not verified; `kvwise size` says why"))
    return notes


def _legend(table: Table) -> Phrase:
    """What stands in the cells of the longest contexts; nothing that is not there."""
    shown = [cell for cell in table.cells if not cell.refused]
    said = phrase("usable: free at start, reserve and driver set aside")
    if any(cell.n_ctx_max is not None and cell.limit == "training" for cell in shown):
        whole = phrase("all: what the model was trained for")
        said = phrase("{said}; {more}", said=said, more=whole)
    if any(cell.n_ctx_max is None and cell.misses_bytes for cell in shown):
        no = phrase("no (-x): so much is missing at the shortest context")
        said = phrase("{said}; {more}", said=said, more=no)
    return said


def _refusals(table: Table) -> Iterator[Phrase]:
    """Each reason once, with the cache types that it is for."""
    reasons: dict[str, tuple[Phrase, dict[str, None]]] = {}
    for cell in table.cells:
        refused = cell.refused or next((at.refused for at in cell.at if at.refused), None)
        if refused is None:
            continue
        _, pairs = reasons.setdefault(str(refused.phrase), (refused.phrase, {}))
        pairs[_pair(cell.pair)] = None
    for reason, pairs in reasons.values():
        yield phrase("{types}: {reason}", types=", ".join(pairs), reason=reason)
