"""`kvwise probe`: what can really be had of this machine's GPUs and memory."""

from __future__ import annotations

from typing import Any

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.oserrors import reason_of
from kvwise.probe import backends
from kvwise.probe.alone import alone
from kvwise.probe.document import document
from kvwise.probe.report import Report
from kvwise.probe.survey import Wish, survey
from kvwise.text import phrase
from kvwise.units import parse_size

EXIT_NOTHING = 1


@make_command(
    "Measure what can really be had of the GPUs here.\n\n"
    "A driver's free memory can be more than it gives, in smaller pieces than a model needs, or "
    "lie in the system's memory. So memory is taken, written twice and given back, in processes "
    "of their own: a driver that crashes or hangs is a result. What others may need stays free. "
    "The answer is kept, and size, plan and simulate use it. Exit code 1 if a driver is there and "
    "no device could be asked.",
    click.Option(
        ["--quick"], is_flag=True, help="Only ask the drivers; take no memory, keep no answer."
    ),
    click.Option(["--full"], is_flag=True, help="Measure even while other programs use a GPU."),
    click.Option(
        ["--backend"],
        multiple=True,
        type=click.Choice(backends.names()),
        help="Only this backend; repeatable [default: all that can be here].",
    ),
    click.Option(["--reserve"], metavar="SIZE", help="Memory to leave alone on each GPU."),
    click.Option(["--no-save"], is_flag=True, help="Do not keep the answer."),
    examples=("kvwise probe", "kvwise probe --quick", "kvwise probe --json > my-machine.json"),
    engine=False,
)
def command(
    printer: Printer,
    *,
    quick: bool,
    full: bool,
    backend: tuple[str, ...],
    reserve: str | None,
    no_save: bool,
) -> int:
    if quick and full:
        raise UsageError("--quick and --full exclude each other")
    wish = Wish(
        quick=quick,
        full=full,
        margin=None if reserve is None else parse_size(reserve),
        only=backend,
    )
    report = _survey(printer, wish)
    if not (no_save or quick):  # an answer without a measurement must not replace one
        _save(printer, report)
    if printer.json:
        printer.document(document(report, printer.language))
    else:
        from kvwise.cli._probe_view import show_report  # noqa: PLC0415  (not needed for --json)

        show_report(printer, report)
    answered = any(each.outcome != "failed" for each in report.devices)
    troubled = bool(report.failures or report.devices)
    return EXIT_NOTHING if troubled and not answered else 0


def _survey(printer: Printer, wish: Wish) -> Report:
    def tell(name: str) -> None:
        if printer.verbosity > 0:
            printer.remark(phrase("probing {name}", name=name))

    def waiting() -> None:
        printer.remark(phrase("another kvwise probe is running: waiting for its end"))

    with printer.working(phrase("probing the devices")):
        if wish.quick:
            return survey(wish, tell)
        with alone(waiting=waiting):
            return survey(wish, tell)


def _save(printer: Printer, report: Report) -> None:
    from kvwise.probe.remember import save  # noqa: PLC0415

    try:
        path: Any = save(report)
    except OSError as error:
        printer.remark(phrase("not kept: {why}", why=reason_of(error)), "warn")
        return
    if printer.verbosity > 0:
        printer.remark(phrase("kept in {path}", path=path))
