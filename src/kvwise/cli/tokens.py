"""`kvwise tokens`: exact token count of a text, and what is left of a context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._count import count_text
from kvwise.cli._request import ENGINE, model_of, read_launch
from kvwise.cli.output import Printer
from kvwise.memory.context import resolve
from kvwise.memory.placement import place
from kvwise.text import Phrase, phrase

if TYPE_CHECKING:
    from kvwise.engine.tokens import TokenCount

EXIT_TOO_LONG = 3


@make_command(
    "Count the tokens of a text exactly, and say what is left of a context.\n\n"
    "By the model's own tokenizer; - is stdin. Exit code 3 if the text does not fit the context "
    "that -c asks for.",
    click.Argument(["model"]),
    click.Argument(["file"]),
    click.Option(["--no-special"], is_flag=True,
                 help="Without what the model adds, and special tokens as plain text."),
    ENGINE,
    examples=(
        "kvwise tokens model.gguf report.txt -c 32768",
        "cat *.md | kvwise tokens model.gguf - --json",
    ),
)  # fmt: skip
def command(
    printer: Printer, *, words: list[str], model: str, file: str, no_special: bool,
    engine: str | None,
) -> int:  # fmt: skip
    _, reading = read_launch(words, model)
    described = model_of(model)
    launch = reading.launch
    asked = "n_ctx" in reading.origins
    context = resolve(described, launch, place(described, launch, ()), ())
    slot = min(context.n_ctx_seq, described.n_ctx_train or context.n_ctx_seq)
    count = count_text(
        printer, described, file,
        engine=engine, add_special=not no_special, parse_special=not no_special,
    )  # fmt: skip
    fits = count.tokens < slot
    if printer.json:
        printer.document(
            {
                "schema": "kvwise/tokens/1",
                "model": described.path,
                "file": file,
                "bytes": count.bytes,
                "characters": count.characters,
                "tokens": count.tokens,
                "special_tokens": count.special,
                "n_ctx": context.n_ctx,
                "n_ctx_seq": context.n_ctx_seq,
                "n_ctx_train": described.n_ctx_train,
                "left": slot - count.tokens,
                "fits": fits,
                "basis": "measured",
            }
        )
    else:
        known = phrase("the {n_ctx:,} tokens the model was trained for", n_ctx=slot)
        if asked and launch.n_ctx:  # 0 is what the model was trained for
            known = phrase("-c {n_ctx}", n_ctx=launch.n_ctx)
            if slot != launch.n_ctx:
                known = phrase("the {slot:,} tokens that a slot has with {c}", slot=slot, c=known)
        _show(printer, count, slot, known)
    return EXIT_TOO_LONG if asked and not fits else 0


def _show(printer: Printer, count: TokenCount, slot: int, context: Phrase) -> None:
    printer.text(
        phrase(
            "{tokens:,} tokens in {bytes:,} bytes ({ratio:.2f} bytes per token)",
            tokens=count.tokens,
            bytes=count.bytes,
            ratio=count.bytes / max(1, count.tokens),
        ),
        "title",
    )
    if count.special:
        printer.text(phrase("the model adds {count} of them itself", count=count.special), "dim")
    left = slot - count.tokens
    if left > 0:
        printer.text(phrase("{left:,} are left of {context}", left=left, context=context), "good")
        return
    printer.text(
        phrase(
            "{over:,} too many for {context}: a prompt must leave room for one token",
            over=1 - left,
            context=context,
        ),
        "bad",
    )
