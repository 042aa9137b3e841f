"""`kvwise inspect`: what is this file."""

from __future__ import annotations

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli.output import Printer


@make_command(
    "Say what a model file is.",
    click.Argument(["model"]),
    examples=("kvwise inspect model.gguf",),
    engine=False,
)
def command(printer: Printer, model: str) -> int:
    printer.text(model)
    return 0
