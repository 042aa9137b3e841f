"""One command line from its words to its exit code; no error leaves as a traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from kvwise import paths
from kvwise.cli._asking import asking
from kvwise.cli._commands import CommandFolder
from kvwise.cli._settings import take_settings
from kvwise.cli.output import Printer
from kvwise.errors import Interrupted, KvwiseError, UsageError
from kvwise.oserrors import reason_of
from kvwise.text import template

EXIT_OK, EXIT_FAILED = 0, 1


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code (contract.md: 0, 1, 2, 3, 130)."""
    printer = Printer(json="--json" in arguments)
    try:
        rest = take_settings(printer, arguments)
        code = asking(printer, rest, lambda words: _run_command(printer, words))
        printer.out.flush()
    except BrokenPipeError:  # `kvwise size ... | head`: the reader has had enough
        _forget_output()
        return EXIT_OK
    except KeyboardInterrupt:
        printer.error(Interrupted("stopped"))
        return Interrupted.exit_code
    except Exception as error:
        if printer.debug:
            raise
        return _report(printer, as_kvwise_error(error))
    return code


def _report(printer: Printer, error: KvwiseError) -> int:
    try:
        printer.error(error)
        printer.out.flush()
    except OSError:  # JSON that cannot be written where it belongs is said beside it
        _forget_output()
        printer.json = False
        with suppress(OSError):  # nor there: there is nowhere left to say it
            printer.error(error)
    return error.exit_code


def _forget_output() -> None:
    """Keep the interpreter from writing what is left once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_command(printer: Printer, arguments: list[str]) -> int:
    group = CommandFolder()
    if "_KVWISE_COMPLETE" in os.environ:  # click's own shell completion
        group.main(prog_name="kvwise")
    try:
        with group.make_context("kvwise", list(arguments), obj=printer) as context:
            result = group.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return result if isinstance(result, int) else EXIT_OK


def as_kvwise_error(error: Exception) -> KvwiseError:
    """Any failure as one that has a sentence."""
    match error:
        case KvwiseError():
            known = error
        case click.Abort():
            known = Interrupted("stopped")
        case click.ClickException():
            known = _usage_error(error)
        case OSError(filename=str() as path):
            reason = reason_of(error)
            known = KvwiseError("{path}: {reason}", path=path, reason=reason, hint=_hint(error))
        case OSError():
            reason = reason_of(error)
            known = KvwiseError("the system said: {reason}", reason=reason, hint=_hint(error))
        case MemoryError():
            known = KvwiseError("not enough memory on this machine for the command itself")
        case _:
            known = KvwiseError(
                "kvwise itself failed: {name}: {text}",
                name=type(error).__name__,
                text=error,
                hint="this is a bug; run it again with --debug and report what it prints",
            )
    return known


def _hint(error: OSError) -> str | None:
    """What helps where a disk is full or a folder of kvwise's own cannot be used."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return template("make room on its disk, or write to another")
    if isinstance(error.filename, str) and paths.is_ours(Path(error.filename)):
        return template("set KVWISE_HOME to a folder that can be written")
    return None


def _usage_error(error: click.ClickException) -> KvwiseError:
    """click's refusals in our words, so that they can be translated."""
    sentence, hint = "{text}", template("`{name} --help` shows what it takes")
    context = error.ctx if isinstance(error, click.UsageError) else None
    fields: dict[str, object] = {
        "name": context.command_path if context else "kvwise",
        "text": error.format_message(),
    }
    match error:
        case click.MissingParameter(param=click.Parameter(type=click.Choice(choices=choices))):
            sentence = template("{what} is missing: one of {values}")
            fields["values"] = ", ".join(map(str, choices))
        case click.MissingParameter():
            sentence = template("{what} is missing")
        case click.BadParameter(param=click.Parameter(type=click.Choice(choices=choices))):
            sentence = template("{what} is one of {values}")
            fields["values"] = ", ".join(map(str, choices))
        case click.BadParameter(param=click.Parameter(type=click.IntRange(min=least, max=most))):
            sentence = template("{what} is a whole number from {least} on")
            if most is not None:
                sentence = template("{what} is a whole number from {least} to {most}")
            fields |= {"least": least, "most": most}
        case click.BadParameter():
            sentence = "{what}: {text}"
        case click.NoSuchCommand():
            sentence = template("unknown command {what}")
            fields |= {"what": error.command_name, "near": ", ".join(error.possibilities or ())}
    if isinstance(error, click.BadParameter):
        fields |= {"what": _called(error), "text": error.message}
    if fields.get("near"):
        hint = template("did you mean {near}?")
    return UsageError(sentence, hint=hint, **fields)


def _called(error: click.BadParameter) -> str:
    if isinstance(error.param, click.Option):
        return error.param.opts[-1]
    return str(error.param_hint or (error.param and error.param.human_readable_name) or "")
