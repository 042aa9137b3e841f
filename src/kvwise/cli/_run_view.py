"""How a run looks: what will be started, its events, and a dry run."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from typing import TextIO

from kvwise.cli._dry_run import dry_run_json
from kvwise.cli._ledger_view import show_bare_sizes
from kvwise.cli._plan_view import brief, shell_here
from kvwise.cli._run_request import Wanted
from kvwise.cli.output import Printer
from kvwise.engine.pretend import WouldRun
from kvwise.guard.cause import Cause
from kvwise.guard.line import Listen, without_secrets
from kvwise.guard.rules import Rules
from kvwise.guard.steps import Exhausted, Ladder
from kvwise.guard.tell import SCHEMA, Event, Tell
from kvwise.launch import Launch
from kvwise.options import to_argv
from kvwise.plan.commands import all_shells
from kvwise.plan.step import Step
from kvwise.text import Phrase, phrase

_STYLES = {"failed": "bad", "died": "bad", "gave-up": "bad", "step": "warn", "retry": "warn",
           "restart": "warn", "unhealthy": "warn", "request": "warn"}  # fmt: skip


def show_wanted(printer: Printer, wanted: Wanted) -> None:
    """On stderr, before anything starts: the plan in a line, or that the flags were taken."""
    said: list[Phrase] = [*wanted.notes]
    if wanted.plan is not None:
        said.append(phrase("planned: {settings}", settings=brief(wanted.plan.choice)))
        if printer.verbosity > 0:
            said += wanted.plan.choice.why
    for text in said:
        with _whoever_listens(printer):
            printer.remark(_ours(text))


def teller(printer: Printer) -> Tell:
    """Shows events: `ready URL` and JSON lines on stdout, sentences on stderr."""

    def tell(event: Event) -> None:
        with _whoever_listens(printer):
            _show(printer, event)

    return tell


@contextlib.contextmanager
def _whoever_listens(printer: Printer) -> Iterator[None]:
    """A reader that has gone away does not end the server: what is written there is lost."""
    try:
        yield
    except OSError:
        _forget(printer.out)
        _forget(printer.err)


def _show(printer: Printer, event: Event) -> None:
    sentence = printer.say(event.sentence)
    if printer.json:
        head = {"schema": SCHEMA, "event": event.name, "message": sentence}
        fields = {
            name: printer.say(value) if isinstance(value, Phrase) else value
            for name, value in event.fields.items()
        }
        printer.json_line({**head, **fields})
        return
    if event.name == "ready":
        _show_ready(printer, event)
        return
    printer.remark(_ours(event.sentence), _STYLES.get(event.name, "dim"))
    hint = event.fields.get("hint")
    if isinstance(hint, Phrase):
        printer.remark(_ours(f"{printer.say(phrase('hint:'))} {printer.say(hint)}"))
    if event.name == "ended" and event.fields["code"]:
        _show_log(printer, event)


def _show_ready(printer: Printer, event: Event) -> None:
    """The line for programs on stdout; on stderr what a person does with it, nothing after it."""
    printer.text(f"ready {event.fields['url']}", "title")
    printer.out.flush()
    printer.remark(_ours(phrase("for OpenAI clients: {url}", url=event.fields["openai_url"])), "")
    settings = event.fields["settings"]
    if event.fields["attempt"] != 1:
        settings = phrase("{settings} (start {number})",
                          settings=settings, number=event.fields["attempt"])  # fmt: skip
    printer.remark(_ours(phrase("settings: {settings}", settings=settings)), "")
    _show_log(printer, event)
    stop = phrase("to stop: Ctrl+C, or SIGTERM to process {pid}", pid=os.getpid())
    printer.remark(_ours(stop), "")


def _show_log(printer: Printer, event: Event) -> None:
    log = event.fields["log"]
    if log:
        printer.remark(_ours(phrase("log: {path}", path=log)), "")


def _ours(text: Phrase | str) -> Phrase:
    return phrase("kvwise: {text}", text=text)


def _forget(stream: TextIO) -> None:
    """Let a stream whose other end is closed lead nowhere, so that its end is no error either."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), stream.fileno())


def show_dry_run(printer: Printer, wanted: Wanted, listen: Listen, rules: Rules) -> int:
    """The command that would be started, and the steps down after it."""
    steps = preview(wanted, rules.tries - 1)
    would = _would(wanted, wanted.launch, listen)
    if printer.json:
        ladder = [
            {
                "knobs": list(step.knobs),
                "changes": {flag: list(both) for flag, both in step.changes.items()},
                "frees_bytes": step.frees_bytes,
                "argv": without_secrets(line.argv),
                "as_llama_server": without_secrets(line.shown) or None,
            }
            for step, line in ((each, _would(wanted, each.launch, listen)) for each in steps)
        ]
        planned = wanted.plan is not None
        printer.document(dry_run_json([would], ladder=ladder, planned=planned))
        return 0
    for note in wanted.notes:
        printer.remark(note)
    if wanted.plan is not None:
        printer.text(brief(wanted.plan.choice))
        show_bare_sizes(printer, wanted.plan.choice.ledger)
        printer.bullets(wanted.plan.choice.why)
        printer.text()
    argv = list(would.shown or would.argv)
    if would.shown:
        text = phrase("the embedded engine starts as this command of llama-server would:")
        printer.text(text, "dim")
    printer.text(str(all_shells(argv).get(shell_here(), shlex.join(argv))), "command")
    if steps:
        printer.text()
        printer.text(phrase("If it fails for lack of memory, step by step"), "title")
        printer.bullets([step.reason for step in steps], "dim")
    return 0


def _would(wanted: Wanted, launch: Launch, listen: Listen) -> WouldRun:
    """What would start a launch, and for the embedded engine what a llama-server would be told."""
    embedded = wanted.given.engine.kind == "embedded"
    readable = (launch.tool, *to_argv(launch)) if embedded else ()
    return WouldRun(tuple(wanted.given.argv(launch, listen)), readable)


def preview(wanted: Wanted, most: int) -> list[Step]:
    """The steps after failures that say no more than that memory is lacking."""
    ladder, launch, steps = Ladder(wanted.case), wanted.launch, list[Step]()
    unknown = Cause("out-of-memory", phrase(""))
    while len(steps) < most:
        step = ladder.next(launch, unknown)
        if isinstance(step, Exhausted):
            break
        steps.append(step)
        launch = step.launch
    return steps
