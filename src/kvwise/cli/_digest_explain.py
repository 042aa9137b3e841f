"""`kvwise digest --explain` and `--dry-run`: chunks counted exactly, memory, and what one context
for the same text would cost."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvwise.cli._shapes import Cell, Column, Table
from kvwise.cli.output import Printer
from kvwise.text import phrase
from kvwise.units import show as size_of

if TYPE_CHECKING:
    from kvwise.cli._request import Machine
    from kvwise.digest.explain import OneContext
    from kvwise.digest.session import Session
    from kvwise.digest.sources import Source
    from kvwise.gguf.model import Model

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Counted:
    """A document and what it comes to."""

    source: Source
    chunks: int
    tokens: int


def show_plan(
    printer: Printer, session: Session, found: Sequence[Source],
    beside: tuple[Model, Machine] | None = None, encoding: str | None = None,
) -> int:  # fmt: skip
    """Nothing is embedded. `beside` = the model and the devices of a context to compare with."""
    counted = [_counted(session, source, encoding) for source in found]
    chunks, tokens = sum(each.chunks for each in counted), sum(each.tokens for each in counted)
    contexts = _contexts(beside, tokens) if beside else []
    if printer.json:
        printer.document(_document(session, counted, beside, contexts))
        return 0
    printer.text(
        phrase(
            "chunks: {chunks:,} of at most {limit:,} tokens; {tokens:,} tokens in all",
            chunks=chunks, limit=session.rules.limit, tokens=tokens,
        ),
        "title",
    )  # fmt: skip
    width = session.model.n_embd_out
    printer.text(phrase("memory of the engine, whatever the length of the text (computed):"))
    for line in session.settings.ledger.lines:
        printer.text(f"  {line.device or line.buffer}: {size_of(line.total_bytes)}")
    printer.text(phrase("vectors on the disk: {size}", size=size_of(4 * width * chunks)))
    if beside:
        _show_contexts(printer, beside[0], contexts)
    return 0


def _counted(session: Session, source: Source, encoding: str | None) -> Counted:
    from kvwise.digest.chunker import Chunker  # noqa: PLC0415
    from kvwise.digest.extract import headings, prepare  # noqa: PLC0415
    from kvwise.digest.reading import Window  # noqa: PLC0415

    chunks = tokens = 0
    with tempfile.TemporaryDirectory() as folder:
        text, marks = prepare(source.path, Path(folder), source.name, encoding)
        with Window(text) as window:
            for chunk in Chunker(
                window, session.tokenizer, session.rules, headings=headings(marks)
            ):
                chunks, tokens = chunks + 1, tokens + chunk.tokens
    return Counted(source, chunks, tokens)


def _contexts(beside: tuple[Model, Machine], tokens: int) -> list[OneContext]:
    from kvwise.digest.explain import one_context  # noqa: PLC0415

    model, there = beside
    return [
        each
        for length in sorted({tokens, MILLION})
        for each in one_context(model, length, there.devices, there.host)
    ]


def _show_contexts(printer: Printer, model: Model, contexts: Sequence[OneContext]) -> None:
    printer.text()
    title = phrase("the same in one context of {name} (computed)", name=model.called)
    if min(each.tokens for each in contexts) < MILLION:
        title = phrase(
            "the same in one context of {name}, and 1,000,000 tokens, for scale (computed)",
            name=model.called,
        )
    printer.text(title, "title")
    if not any(each.cache_bytes for each in contexts):
        printer.text(phrase("this model keeps no context; --model names one that does"))
        return
    rows = []
    for each in contexts:
        if each.refused is not None:
            rows.append((Cell(f"{each.tokens:,}"), Cell(each.type), Cell(each.refused), Cell(""),
                         Cell("")))  # fmt: skip
            continue
        fits = phrase("fits") if each.fits else phrase("does not fit")
        good = "good" if each.fits else "bad"
        rows.append((Cell(f"{each.tokens:,}"), Cell(each.type), Cell(size_of(each.cache_bytes)),
                     Cell(size_of(each.total_bytes)), Cell(fits, good)))  # fmt: skip
    printer.table(
        Table(
            columns=(Column(phrase("tokens"), right=True), Column(phrase("K and V")),
                     Column(phrase("caches"), right=True), Column(phrase("everything"), right=True),
                     Column(phrase("here"))),
            rows=rows,
        )
    )  # fmt: skip
    if model.n_ctx_train and model.n_ctx_train < max(each.tokens for each in contexts):
        printer.text(
            phrase("it was trained for {trained:,} tokens: beyond them its answers are not to be "
                   "trusted, whatever fits", trained=model.n_ctx_train),
            "warn",
        )  # fmt: skip


def _document(
    session: Session, counted: Sequence[Counted], beside: tuple[Model, Machine] | None,
    contexts: Sequence[OneContext],
) -> dict[str, Any]:  # fmt: skip
    chunks = sum(each.chunks for each in counted)
    return {
        "schema": "kvwise/digest-plan/1",
        "chunk_tokens": session.rules.limit,
        "special_tokens": session.rules.special,
        "chunks": chunks,
        "tokens": sum(each.tokens for each in counted),
        "vector_bytes": 4 * session.model.n_embd_out * chunks,
        "memory": [
            {"buffer": line.buffer, "device": line.device, "total_bytes": line.total_bytes,
             "basis": "computed"}
            for line in session.settings.ledger.lines
        ],
        "documents": [
            {"name": each.source.name, "bytes": each.source.size, "chunks": each.chunks,
             "tokens": each.tokens}
            for each in counted
        ],
        "one_context": [
            {"model": beside[0].called if beside else None, "tokens": each.tokens,
             "type_k": each.type, "type_v": each.type, "cache_bytes": each.cache_bytes,
             "total_bytes": each.total_bytes, "fits": each.fits,
             "refused": str(each.refused) if each.refused else None, "basis": "computed"}
            for each in contexts
        ],
    }  # fmt: skip
