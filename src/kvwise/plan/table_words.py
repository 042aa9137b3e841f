"""A table of models and GPUs in words: what a terminal, Markdown and a report show alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log2

from kvwise.plan.table import NO_KERNEL, At, Cell, Pair, Table
from kvwise.text import Phrase, phrase
from kvwise.units import MIB, percent, show

Words = Phrase | str

_HEAT = 5  # shades
_LEAST_USEFUL = 2048  # tokens: the coldest shade


@dataclass(frozen=True, slots=True)
class Said:
    """What stands in a cell; `tone` is `heat0` (does not fit) to `heat4`, `dim`, or nothing."""

    words: Words
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading; numbers are right-aligned."""

    words: Words
    right: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """Rows of cells under columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Said | Words]]
    title: Words


def tables(table: Table) -> Iterator[Shown]:
    """All of them; the cache by context is the same on every machine, shares of it are not."""
    machine = 0 if len(table.machines) == 1 else None
    for model in range(len(table.entries)):
        yield cache_table(table, model, machine)
    yield from other_tables(table)


def other_tables(table: Table) -> Iterator[Shown]:
    """What all models and machines share a table for."""
    longest = phrase("Longest context with all layers on the GPU")
    yield _by_machine(table, longest if _gpus(table) else phrase("Longest context"), _longest)
    if table.layers and len(table.machines) > 1:
        yield _layers_table(table)
    if table.prompt_tokens is not None:
        title = phrase(
            "Tokens left for an answer beside a prompt of {tokens} tokens, at the longest context",
            tokens=f"{table.prompt_tokens:,}",
        )
        yield _by_machine(table, title, _predict)


def cache_table(table: Table, model: int, machine: int | None) -> Shown:
    """MiB per context and pair; of a machine also the share, and whether it fits."""
    cells = [table.cell(model, machine or 0, pair) for pair in range(len(table.pairs))]
    rows: list[list[Said | Words]] = []
    for place, n_ctx in enumerate(table.contexts):
        at = [cell.at[place] for cell in cells]
        row: list[Said | Words] = [f"{n_ctx:,}" + ("*" if at[0].beyond_training else "")]
        row += [
            _cache_cell(table, each, cell, share=machine is not None)
            for each, cell in zip(at, cells, strict=True)
        ]
        if table.prompt_tokens is not None:
            row.append(_room(next((each.n_predict for each in at if not each.refused), None)))
        rows.append(row)
    columns = [
        Column("-c", right=True),
        *(Column(pair_name(pair), right=True) for pair in table.pairs),
    ]
    if table.prompt_tokens is not None:
        columns.append(Column(phrase("left for an answer"), right=True))
    name = table.entries[model].name
    title = phrase("{model}: MiB of cache", model=name)
    there = None if machine is None else table.machines[machine]
    if there is not None and there.total_bytes:
        title = phrase(
            "{model}: MiB of cache, share of {total} on {gpu}, and whether it fits",
            model=name,
            total=show(there.total_bytes),
            gpu=there.name or phrase("host"),
        )
    return Shown(columns, rows, title)


def _cache_cell(table: Table, at: At, cell: Cell, *, share: bool) -> Said | Words:
    if at.refused:
        return Said(phrase("refused"), "dim")
    size = f"{at.cache_bytes / MIB:,.1f}"
    if not share or at.share is None:
        return size
    part = percent(at.share, ".1f")
    if cell.refused:
        return Said(_refusal(cell), "dim")
    if not at.fits and table.layers and at.n_gpu_layers is not None:
        return Said(f"{size} ({part}) {_part(table, at, cell)}", "heat1")
    if not at.fits:
        return Said(phrase("{size} ({share}) no", size=size, share=part), "heat0")
    return Said(f"{size} ({part})", f"heat{_shade_of_share(at.share)}")


def _shade_of_share(share: float) -> int:
    return max(1, _HEAT - 1 - int(share * 8))


def _part(table: Table, at: At, cell: Cell) -> str:
    """Layers on the GPU of all that there are."""
    return f"{at.n_gpu_layers}/{table.entries[cell.model].everything}"


def _layers_table(table: Table) -> Shown:
    """A row per model, machine and pair, a column per context."""
    several = len(table.entries) > 1
    rows: list[list[Said | Words]] = []
    for cell in table.cells:
        row: list[Said | Words] = [table.entries[cell.model].name] if several else []
        row += [table.machines[cell.machine].name or phrase("host"), pair_name(cell.pair)]
        row += [_layers_cell(table, at, cell) for at in cell.at]
        rows.append(row)
    columns = [
        *([Column(phrase("model"))] if several else []),
        Column(phrase("GPU")),
        Column("K/V"),
        *(Column(f"{n_ctx:,}", right=True) for n_ctx in table.contexts),
    ]
    return Shown(columns, rows, phrase("Layers on the GPU by context"))


def _layers_cell(table: Table, at: At, cell: Cell) -> Said:
    if cell.refused:
        return Said(_refusal(cell), "dim")
    if at.refused:
        return Said(phrase("refused"), "dim")
    if at.fits:
        return Said(phrase("all"), "heat4")
    if at.n_gpu_layers is None:
        return Said(phrase("no"), "heat0")
    share = at.n_gpu_layers / table.entries[cell.model].everything
    return Said(_part(table, at, cell), f"heat{1 + int(share * 2.999)}" if share else "heat0")


def _by_machine(table: Table, title: Phrase, cell_of: Callable[[Table, Cell], Said]) -> Shown:
    """A row per model and machine, a column per pair."""
    several = len(table.entries) > 1
    rows: list[list[Said | Words]] = []
    for number, entry in enumerate(table.entries):
        for place, machine in enumerate(table.machines):
            row: list[Said | Words] = [entry.name] if several else []
            row += [machine.name or phrase("host"), show(machine.usable_bytes)]
            row += [
                cell_of(table, table.cell(number, place, pair)) for pair in range(len(table.pairs))
            ]
            rows.append(row)
    columns = [
        *([Column(phrase("model"))] if several else []),
        Column(phrase("GPU") if _gpus(table) else phrase("machine")),
        Column(phrase("usable"), right=True),
        *(Column(pair_name(pair), right=True) for pair in table.pairs),
    ]
    return Shown(columns, rows, title)


def _gpus(table: Table) -> bool:
    return any(machine.devices for machine in table.machines)


def _longest(table: Table, cell: Cell) -> Said:
    if cell.refused:
        return Said(_refusal(cell), "dim")
    if cell.n_ctx_max is None:
        short = show(cell.misses_bytes) if cell.misses_bytes else None
        return Said(phrase("no (-{size})", size=short) if short else phrase("no"), "heat0")
    words: Words = f"{cell.n_ctx_max:,}"
    if cell.limit == "training":
        words = phrase("{tokens} all", tokens=words)
    elif cell.n_ctx_max != cell.n_ctx_max_all_layers and table.machines[cell.machine].devices:
        whole = cell.n_ctx_max_all_layers
        words = f"{words} ({whole:,})" if whole else f"{words} (0)"
    return Said(words, f"heat{_shade(table, cell)}")


def _shade(table: Table, cell: Cell) -> int:
    """How much of what the model was trained for, by doublings."""
    if cell.limit != "memory" or not cell.n_ctx_max:
        return _HEAT - 1
    trained = max(table.entries[cell.model].model.n_ctx_train, 2 * _LEAST_USEFUL)
    reached = log2(max(cell.n_ctx_max / _LEAST_USEFUL, 1)) / log2(trained / _LEAST_USEFUL)
    return min(_HEAT - 2, int(reached * (_HEAT - 1)))


def _predict(table: Table, cell: Cell) -> Said:
    if cell.refused:
        return Said(_refusal(cell), "dim")
    if cell.n_predict_max is None:
        return Said(phrase("no"), "heat0")
    room = _room(cell.n_predict_max)
    return room if cell.n_predict_max < 1 else Said(room.words, f"heat{_shade(table, cell)}")


def _room(n_predict: int | None) -> Said:
    """What is left for an answer; a prompt that finds no room leaves none."""
    if n_predict is None:
        return Said("")
    if n_predict < 1:
        return Said(phrase("no ({tokens})", tokens=f"{n_predict:,}"), "heat0")
    return Said(f"{n_predict:,}")


def _refusal(cell: Cell) -> Phrase:
    on_cpu = cell.refused is not None and cell.refused.code == NO_KERNEL
    return phrase("on the CPU") if on_cpu else phrase("refused")


def pair_name(pair: Pair) -> str:
    return pair[0] if pair[0] == pair[1] else f"{pair[0]}/{pair[1]}"
