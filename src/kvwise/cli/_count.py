"""Counting a text by the model's own tokenizer, with progress."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kvwise.cli._request import called
from kvwise.cli.output import Printer
from kvwise.errors import SourceError, UsageError
from kvwise.gguf.model import Model
from kvwise.text import phrase

if TYPE_CHECKING:
    from kvwise.engine.tokens import TokenCount


_HINT = "give a .gguf file on this machine"


def is_header(model: Model) -> bool:
    """Whether there are no weights of it on this machine."""
    name = model.path
    return not name or not Path(name).is_file() or name.endswith((".json", ".json.gz"))


def say_if_header(printer: Printer, model: Model) -> None:
    """Beside a dry run: its command names a file that is not here."""
    if is_header(model):
        printer.remark(
            phrase(
                "{name} is only a header here: the command needs its .gguf file", name=called(model)
            )
        )


def model_file(model: Model, hint: str = _HINT) -> str:
    """The file of a model that an engine can load. Raises UsageError when there is none here."""
    if is_header(model):
        raise UsageError(
            "{name} is only a header here; its tokenizer and weights are needed",
            name=called(model),
            hint=hint,
        )
    return model.path


def count_text(
    printer: Printer,
    model: Model,
    file: str,
    *,
    engine: str | None = None,
    add_special: bool = True,
    parse_special: bool = True,
) -> TokenCount:
    """Tokens of a file (`-` is stdin), as llama-server would count it as a prompt."""
    from kvwise.engine.find import find  # noqa: PLC0415  (no other command of ours needs these)
    from kvwise.engine.tokens import Counter, read_text  # noqa: PLC0415

    place = model_file(model)
    text = _standard_input() if file == "-" else read_text(file)
    doing = phrase("counting the tokens of {count:,} characters", count=len(text))
    with printer.working(doing), Counter.start(place, engine=find(engine)) as counter:
        return counter.count(text, add_special=add_special, parse_special=parse_special)


def _standard_input() -> str:
    if sys.stdin is None:  # kvwise was started with it closed
        raise UsageError("there is nothing to read: stdin is closed")
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError("stdin is not UTF-8 text (byte {at})", at=error.start) from error
