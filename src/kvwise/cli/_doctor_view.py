"""A diagnosis as a person reads it: the cause first, its lines, the numbers, what to do."""

from __future__ import annotations

import shlex

from kvwise.cli._plan_view import show_commands
from kvwise.cli._shapes import Cell, Column, Table, Words
from kvwise.cli.output import Printer
from kvwise.diagnose.failed_run import remedy_phrase
from kvwise.diagnose.finding import POSSIBLE, Diagnosis, Finding
from kvwise.diagnose.numbers import Numbers, Refusal
from kvwise.diagnose.titles import TITLES
from kvwise.text import Phrase, phrase, template
from kvwise.units import show

_OUTCOMES = {
    "ok": template("the load went well"),
    "refused": template("the engine refused"),
    "crashed": template("the engine crashed"),
    "killed": template("the system ended the engine"),
    "hung": template("no progress, no error"),
    "slow": template("it works, but not as it should"),
    "unknown": template("the log does not show how it ended"),
}
_PARTS = {
    "weights": template("weights"), "kv": template("cache"), "rs": template("recurrent state"),
    "compute": template("compute"), "output": template("output"),
}  # fmt: skip
_POOLS = {
    "vram": template("GPU memory"), "host-ram": template("system memory"),
    "unified": template("unified memory"),
}  # fmt: skip
_SHOWN = 3


def show_diagnosis(printer: Printer, found: Diagnosis, path: str | None = None) -> None:
    """One log: each of its loads, if there are several."""
    if path:
        printer.text(path, "title")
    if not found.loads:
        _show(printer, found)
        return
    printer.text(phrase("{count} loads in this log", count=len(found.loads)), "title")
    shown = [each for each in found.loads if each.blamed] or [found.loads[-1]]
    hidden = len(found.loads) - len(shown)
    for each in shown[-10:]:
        printer.text()
        printer.text(
            phrase("lines {first} to {last}", first=each.first_line, last=each.last_line), "dim"
        )
        _show(printer, each)
    if hidden:
        printer.text()
        printer.text(phrase("nothing is wrong with {count} more", count=hidden), "dim")


def _show(printer: Printer, found: Diagnosis) -> None:
    what = [each for each in (found.build, found.model) if each]
    style = "bad" if found.outcome in ("refused", "crashed", "killed", "hung") else "title"
    printer.text(
        phrase("{outcome}{about}", outcome=phrase(_OUTCOMES[found.outcome]),
               about=f" ({', '.join(what)})" if what else ""), style,
    )  # fmt: skip
    for number, finding in enumerate(found.findings[: _SHOWN + (printer.verbosity > 0) * 8]):
        if number and finding.confidence < POSSIBLE and printer.verbosity <= 0:
            continue
        printer.text()
        _show_finding(printer, finding, first=number == 0)
    if found.refusal:
        printer.text()
        printer.text(_refused(found.refusal))
    for claim in found.claims:
        printer.text(
            phrase(
                "the log cannot be right: {what} is said to take {printed}, but {layers} layers of "
                "{cells} cells, {width} wide, in {type} take {computed}",
                what=claim.what, printed=show(claim.printed_bytes), layers=claim.layers,
                cells=f"{claim.cells:,}", width=claim.width, type=claim.type,
                computed=show(claim.computed_bytes),
            ), "warn",
        )  # fmt: skip
    if found.numbers:
        _show_numbers(printer, found.numbers)
    if all(finding.guessed for finding in found.findings):
        _show_unknown(printer, found)


def _show_finding(printer: Printer, finding: Finding, *, first: bool) -> None:
    pool = _POOLS.get(finding.memory_pool or "")
    sure = phrase("sure") if finding.confidence >= 0.9 else phrase("likely")
    if finding.confidence < 0.6:
        sure = phrase("possible")
    if finding.guessed:
        sure = phrase("a guess")
    title: Words = phrase(
        "{title}: {kind} ({sure})", title=phrase(TITLES[finding.kind]), kind=finding.kind, sure=sure
    )
    printer.text(title, ("bad" if finding.blames else "good") if first else "title")
    for line in finding.evidence:
        printer.text(phrase("  line {number}: {text}", number=line.line, text=line.text), "dim")
    printer.text(finding.cause)
    if finding.memory_is_the_cause and pool:
        printer.text(phrase("what is short: {pool}", pool=phrase(pool)))
    elif finding.blames and not finding.reason_known:
        printer.text(phrase("whether memory is the cause, the log does not tell"))
    elif finding.blames and not finding.memory_is_the_cause:
        printer.text(phrase("memory is not the cause"))
    printer.bullets([remedy_phrase(each) for each in finding.remedies])


def _refused(refusal: Refusal) -> Phrase:
    asked = show(refusal.asked_bytes) if refusal.asked_bytes else phrase("an unknown size")
    what = phrase(_PARTS.get(refusal.part, template("a buffer")))
    said = phrase("what failed: {what} on {buffer}, {asked} asked", what=what,
                  buffer=refusal.buffer or "?", asked=asked)  # fmt: skip
    if refusal.free_bytes is not None:
        said = phrase("{said}; {free} were free before the load, {taken} of them taken by then",
                      said=said, free=show(refusal.free_bytes),
                      taken=show(refusal.taken_bytes or 0))  # fmt: skip
    if refusal.computed_bytes:
        said = phrase("{said}; computed: {size}", said=said, size=show(refusal.computed_bytes))
    return said


def _show_numbers(printer: Printer, numbers: Numbers) -> None:
    if numbers.note:
        printer.text()
        printer.text(phrase("recomputed: {note}", note=numbers.note), "warn")
    if numbers.rows:
        printer.text()
        printer.table(_rows(numbers))
    if numbers.options:
        printer.text()
        printer.text(phrase("what the context would take instead"), "title")
        printer.bullets(
            [
                phrase("{flags}: {size}, {saved} less", flags=shlex.join(option.flags),
                       size=show(option.context_bytes), saved=show(option.saved_bytes))
                for option in numbers.options
            ]
        )  # fmt: skip
    if numbers.plan:
        printer.text()
        printer.text(phrase("a plan that fits"), "title")
        printer.bullets(numbers.plan.choice.why)
        show_commands(printer, numbers.plan)


def _rows(numbers: Numbers) -> Table:
    columns = (
        Column(phrase("what")), Column(phrase("where")), Column(phrase("computed"), right=True),
        Column(phrase("in the log"), right=True), Column(phrase("difference"), right=True),
    )  # fmt: skip
    rows: list[list[Cell | Words]] = []
    for row in numbers.rows:
        said = " + ".join(str(part) for part in row.measured.parts) if row.measured else ""
        gap = Cell("0", "good") if row.agrees else Cell(show(row.difference), "warn")
        rows.append([phrase(row.kind), row.name, show(row.computed or 0), f"{said} MiB", gap])
    return Table(columns, rows)


def _show_unknown(printer: Printer, found: Diagnosis) -> None:
    if found.outcome == "ok":
        printer.text(phrase("nothing in this log looks wrong"), "good")
        return
    printer.text()
    if found.unexplained:
        printer.text(phrase("no rule knows these lines:"), "warn")
        for line in found.unexplained:
            printer.text(phrase("  line {number}: {text}", number=line.line, text=line.text), "dim")
    else:
        printer.text(phrase("nothing that this log says explains a failure"), "warn")
    if found.last:
        printer.text(
            phrase("its last line, {number}: {text}", number=found.last.line, text=found.last.text)
        )
    printer.bullets(
        [
            phrase("let the engine say more: {flags}", flags="--verbosity 4"),
            phrase("give the whole log, from the start of the program to its end"),
            phrase("how did the process end? -9 or 137: out of memory; -4: wrong processor; -11 or "
                   "139: a crash"),
            phrase("name the model to have it recomputed: {flags}", flags="-m FILE"),
        ]
    )  # fmt: skip
