"""`kvwise run`: a llama-server that is planned for, watched, and stepped down instead of dying."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvwise.cli._commands import MaybeNumber
from kvwise.cli._commands import command as make_command
from kvwise.cli._learned import RESULTS
from kvwise.cli._planning import GOAL_OPTIONS, refuse
from kvwise.cli._request import DEVICE_NAMES, DEVICE_OPTIONS, MODEL
from kvwise.cli.output import Printer
from kvwise.plan.choose import Impossible

if TYPE_CHECKING:
    from kvwise.cli._run_request import Wanted
    from kvwise.guard.line import Listen
    from kvwise.guard.rules import Desk, Rules

_GOAL_NAMES = tuple(option.name or "" for option in GOAL_OPTIONS)
_RESTARTS = 5
_MAY_CHANGE = ("ubatch", "types", "context", "layers", "all")


@make_command(
    "Start a llama-server that fits, and keep it running.\n\n"
    "A MODEL that stands alone is planned for as `kvwise plan` does; a whole llama-server command "
    "(with -m or -hf) is started as it stands. A load that fails for lack of memory, hangs or "
    "crashes is tried again with smaller settings, step by step. Signals, output and the exit code "
    "are the engine's. Flags that only the engine knows stand behind `--`.",
    MODEL,
    *GOAL_OPTIONS,
    *DEVICE_OPTIONS,
    RESULTS,
    click.Option(
        ["--engine"], metavar="PATH",
        help="The llama-server to use [default: the one on PATH, else the embedded engine].",
    ),
    click.Option(["--dry-run"], is_flag=True,
                 help="Print the command and the steps down instead of starting it."),
    click.Option(["--tries"], metavar="N", type=click.IntRange(1), default=7,
                 help="Starts in all before giving up [default: 7]."),
    click.Option(["--may-change"], metavar="WHAT",
                 help="Of what you fixed, what a step down may change: ubatch, types, context, "
                 "layers, all (several with commas)."),
    MaybeNumber(["--restart"], _RESTARTS, metavar="[N]",
                help="Start again when it dies or hangs while serving [default: never; 5 times]."),
    click.Option(["--hang-after"], metavar="SECONDS", type=click.IntRange(1), default=120,
                 help="Silent and idle for so long is a hang [default: 120]."),
    click.Option(["--load-timeout"], metavar="SECONDS", type=click.IntRange(1), default=3600,
                 help="The longest that a load may take [default: 3600]."),
    click.Option(["--show-log"], is_flag=True,
                 help="Show all that the engine prints [default: its own lines; on a terminal only "
                 "warnings and errors]."),
    click.Option(["--log"], metavar="FILE",
                 help="Keep the engine's log there [default: a new file in the state folder]."),
    examples=(
        "kvwise run model.gguf --goal document --prompt-tokens 8000",
        "kvwise run -m model.gguf -c 8192 -ngl 99 --port 8080 --restart",
    ),
    passes_on=True,
)  # fmt: skip
def command(
    printer: Printer,
    *,
    words: list[str],
    strangers: list[str],
    model: str | None,
    engine: str | None,
    dry_run: bool,
    may_change: str | None,
    log: str | None,
    show_log: bool,
    results: str | None,
    **options: Any,
) -> int:
    from kvwise.cli._run_request import wanted_of  # noqa: PLC0415  (starts processes)
    from kvwise.engine.find import serving  # noqa: PLC0415
    from kvwise.guard.line import listen_of  # noqa: PLC0415
    from kvwise.guard.port import settle  # noqa: PLC0415

    used = serving(engine)
    try:
        wanted = wanted_of(
            printer,
            words=words,
            strangers=strangers,
            model=model,
            engine=used,
            engine_wanted=engine,
            devices={name: options.pop(name) for name in DEVICE_NAMES},
            goal={name: options.pop(name) for name in _GOAL_NAMES},
            may_change=_may_change(may_change),
            dry_run=dry_run,
            results=results,
        )
    except Impossible as impossible:
        return refuse(printer, impossible)
    listen = listen_of(wanted.given.base, strangers)
    rules = _rules(**options)
    if dry_run:
        from kvwise.cli._run_view import show_dry_run  # noqa: PLC0415

        return show_dry_run(printer, wanted, listen, rules)
    return _run(printer, wanted, settle(listen), rules, _desk(printer, log, show_log=show_log))


def _may_change(text: str | None) -> list[str]:
    wanted = [each.strip() for each in (text or "").split(",") if each.strip()]
    for each in wanted:
        if each not in _MAY_CHANGE:
            raise click.BadParameter(each, param_hint="--may-change")
    return wanted


def _rules(*, tries: int, restart: int | None, hang_after: int, load_timeout: int) -> Rules:
    from kvwise.guard.rules import Rules  # noqa: PLC0415

    return Rules(
        tries=tries,
        restarts=restart or 0,
        silence_s=hang_after,
        busy_s=5 * hang_after,
        unhealthy_s=hang_after,
        load_s=load_timeout,
    )


def _run(printer: Printer, wanted: Wanted, listen: Listen, rules: Rules, desk: Desk) -> int:
    from kvwise.cli._run_view import show_wanted  # noqa: PLC0415
    from kvwise.guard.session import Session  # noqa: PLC0415

    show_wanted(printer, wanted)
    session = Session(wanted.given, wanted.case, wanted.launch, listen, desk=desk, rules=rules)
    return session.run()


def _desk(printer: Printer, log: str | None, *, show_log: bool) -> Desk:
    from kvwise.cli._run_view import teller  # noqa: PLC0415
    from kvwise.guard.keep import Keeper, default_path, thin_out  # noqa: PLC0415
    from kvwise.guard.rules import Desk  # noqa: PLC0415
    from kvwise.guard.tee import Shown, same_place  # noqa: PLC0415

    path = Path(log) if log is not None else default_path()
    if log is None:
        thin_out(path.parent)
    return Desk(
        tell=teller(printer),
        keeper=Keeper(path),
        shown=Shown.ALL if show_log else Shown.TROUBLE if printer.err.isatty() else Shown.OWN,
        outputs=(same_place(2 if printer.json else 1), same_place(2)),
        environment={key: value for key, value in os.environ.items() if key.startswith("LLAMA_")},
    )
