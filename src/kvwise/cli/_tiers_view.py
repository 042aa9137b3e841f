"""Computed beside simulated as a person reads it, and which of the two is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvwise.cli._ledger_view import COMPANIONS, part_name
from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.text import phrase
from kvwise.units import MIB

if TYPE_CHECKING:
    from kvwise.confirm import Check, Confirmation
    from kvwise.tiers import Tier, Tiers

_NAMES = {"weights": "weights", "context": "kv", "compute": "compute", "output": "output"}


def show_tiers(printer: Printer, tiers: Tiers) -> None:
    """The table, the engine's own mistakes, and the verdict."""
    printer.table(tiers_table(tiers))
    printer.text()
    show_misjudged(printer, tiers)
    printer.text(*tiers_verdict(tiers))
    if tiers.wrong:
        _show_rules(printer, tiers)


def tiers_table(tiers: Tiers) -> Table:
    """One row per part of every line; reserved only where it is not what the pass shows."""
    misjudged = bool(tiers.misjudged)
    columns = [
        Column(phrase("where")),
        Column(phrase("what")),
        Column(phrase("computed bytes"), right=True),
        Column(phrase("computed MiB"), right=True),
        Column(phrase("simulated MiB"), right=True),
        Column(phrase("difference"), right=True),
    ]
    if misjudged:
        columns.append(Column(phrase("really reserved MiB"), right=True))
    return Table(columns, [_cells(row, misjudged) for row in tiers.rows])


def _cells(row: Tier, misjudged: bool) -> list[Cell | Words]:
    difference: Cell | Words = Cell("0", "good")
    if not row.agrees:
        difference = Cell(f"{row.difference / MIB:+,.2f} MiB", "bad" if row.decisive else "warn")
    cells: list[Cell | Words] = [
        Cell(where(row), "title"),
        _part(row),
        f"{row.expected:,}",
        f"{row.expected / MIB:,.2f}",
        " + ".join(str(printed) for printed in row.simulated.parts),
        difference,
    ]
    if misjudged:
        wrong = row.engine_is_wrong
        cells.append(Cell(f"{row.reserved / MIB:,.2f}", "warn") if wrong else "")
    return cells


def _part(row: Tier) -> Words:
    if row.part == "all":
        return COMPANIONS["mmproj"]
    name = part_name(_NAMES[row.part])
    return phrase("{of}: {part}", of=COMPANIONS[row.of], part=name) if row.of else name


def where(row: Tier) -> str:
    if row.host or row.device in (None, row.buffer):
        return row.buffer
    return f"{row.buffer} {row.device}"


def show_misjudged(printer: Printer, tiers: Tiers) -> None:
    """Where llama.cpp's own estimate is the one that is wrong."""
    for row in tiers.misjudged:
        if row.of == "mmproj":
            printer.text(
                phrase(
                    "llama.cpp sets {shown} MiB aside for the projector on {where}, as for the "
                    "image it warms up with: the largest image takes {reserved}",
                    where=where(row),
                    reserved=f"{row.reserved / MIB:,.2f}",
                    shown=f"{row.expected / MIB:,.2f}",
                ),
                "warn",
            )
            continue
        printer.text(
            phrase(
                "llama.cpp's own estimate is wrong on {where}: it will reserve {reserved} MiB of "
                "compute, not {shown}, because its pass forgets where nodes are pinned",
                where=where(row),
                reserved=f"{row.reserved / MIB:,.2f}",
                shown=f"{row.expected / MIB:,.2f}",
            ),
            "warn",
        )


def tiers_verdict(tiers: Tiers) -> tuple[Words, str]:
    """(sentence, style): do the rules and the engine's pass agree?"""
    if tiers.wrong:
        places = ", ".join(f"{where(row)} {row.difference / MIB:+,.2f} MiB" for row in tiers.wrong)
        return phrase("computed and simulated differ: {places}", places=places), "bad"
    decisive = sum(row.decisive for row in tiers.rows)
    if decisive < len(tiers.rows):
        return (
            phrase(
                "no difference in {count} of {all} lines; a stand-in cannot show the others",
                count=decisive,
                all=len(tiers.rows),
            ),
            "good",
        )
    return (
        phrase("no difference: all {count} lines agree with the engine's pass", count=decisive),
        "good",
    )


def _show_rules(printer: Printer, tiers: Tiers) -> None:
    """An engine that was built without its number may be another build than the rules'."""
    if tiers.simulation.engine.build is None:
        printer.text(
            phrase(
                "the engine does not say its build: the rules are those of {build} "
                "(--engine-build)",
                build=tiers.expected.launch.build,
            ),
            "warn",
        )


def show_confirmation(printer: Printer, found: Confirmation) -> None:
    """Does the engine say the same as the plan?"""
    name = found.engine.name
    if found.choice is None:
        why = found.why or ""
        printer.text(phrase("not confirmed by {engine}: {why}", engine=name, why=why), "warn")
        return
    if found.choice.tiers:
        show_misjudged(printer, found.choice.tiers)
    wrong = [check for check in found.checked if not (check.agrees and check.fits)]
    for check in wrong:
        which = phrase("the choice") if check is found.choice else phrase("a step of the ladder")
        printer.text(phrase("{engine} disagrees on {which}: {what}", engine=name, which=which,
                            what=_disagreement(check)), "bad")  # fmt: skip
    if wrong and wrong[0].tiers:
        _show_rules(printer, wrong[0].tiers)
    if not wrong:
        printer.text(_confirmed(found), "good")


def _confirmed(found: Confirmation) -> Words:
    """What agrees; a step that was not asked about is no step that disagrees."""
    name, asked, steps = found.engine.name, len(found.checked) - 1, len(found.ladder)
    if not asked:
        return phrase("confirmed by {engine}: its own pass agrees on the choice", engine=name)
    if asked == steps:
        return phrase(
            "confirmed by {engine}: its own pass agrees on the choice and on every step of the "
            "ladder",
            engine=name,
        )
    return phrase(
        "confirmed by {engine}: its own pass agrees on the choice and on the {count} of {all} "
        "steps of the ladder that there was time for",
        engine=name,
        count=asked,
        all=steps,
    )


def _disagreement(check: Check) -> Words:
    if check.refused:
        return check.refused.phrase
    places = ", ".join(
        f"{where(row)} {row.difference / MIB:+,.2f} MiB"
        for row in (check.tiers.wrong if check.tiers else ())
    )
    if check.fits:
        return phrase("computed and simulated differ: {places}", places=places)
    return phrase("by its figures it does not fit")
