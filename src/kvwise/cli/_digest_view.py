"""What `kvwise digest` shows: the plan, what was done, what a search found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvwise.cli._shapes import Cell, Column, Table
from kvwise.cli.output import Printer
from kvwise.text import phrase
from kvwise.units import clock

if TYPE_CHECKING:
    from kvwise.digest.run import Summary
    from kvwise.digest.search import Hit
    from kvwise.digest.session import Session
    from kvwise.digest.shelf import Row, Shelf

_SHOWN = 400  # characters of a hit


def made_json(session: Session, summary: Summary | None) -> dict[str, Any]:
    """How it was made, and what this run did."""
    settings = session.settings
    run = None if summary is None else {
        "chunks": summary.chunks, "embedded": summary.embedded, "kept": summary.kept,
        "tokens": summary.tokens, "seconds": summary.seconds,
        "skipped": [{"document": name, "why": str(why)} for name, why in summary.skipped],
    }  # fmt: skip
    return {
        "pooling": {"mode": settings.pooling, "chosen_by": settings.pooled_by},
        "special_tokens": session.rules.special, "run": run,
    }  # fmt: skip


def write(printer: Printer, shelf: Shelf, folder: Path) -> list[str]:
    """Files for other programs; returns their names."""
    from kvwise.digest import outputs  # noqa: PLC0415

    if not outputs.can_write():
        printer.remark(
            phrase("vectors.npy and chunks.parquet are written with pip install 'kvwise[digest]'")
        )
        return [outputs.DOCUMENT]
    outputs.write_vectors(shelf, folder)
    outputs.write_chunks(shelf, folder)
    return [outputs.VECTORS, outputs.CHUNKS, outputs.DOCUMENT]


def show(
    printer: Printer, session: Session, shelf: Shelf, summary: Summary, written: Sequence[str]
) -> None:
    """What was done."""
    from kvwise.digest.place import pages_without_text  # noqa: PLC0415

    settings = session.settings
    documents = shelf.documents()
    printer.text(
        phrase(
            "chunks: {chunks:,} of at most {limit:,} tokens; documents: {documents}",
            chunks=summary.chunks, limit=session.rules.limit, documents=len(documents),
        ),
        "title",
    )  # fmt: skip
    if summary.embedded:
        printer.text(
            phrase(
                "embedded: {embedded:,}, {tokens:,} tokens in {time} ({rate:.0f} tokens/s)",
                embedded=summary.embedded, tokens=summary.tokens, time=clock(summary.seconds),
                rate=summary.tokens / max(summary.seconds, 1e-9),
            )
        )  # fmt: skip
    if summary.kept:
        printer.text(phrase("there already: {kept:,}", kept=summary.kept))
    printer.text(
        phrase(
            "pooling {pooling}, chosen by {who}", pooling=settings.pooling, who=settings.pooled_by
        ),
        "dim",
    )
    for name, why in summary.skipped:
        printer.text(phrase("left out: {name}: {why}", name=name, why=why), "warn")
    for document in documents:
        empty = pages_without_text(shelf.path.parent, document)
        if empty:
            printer.text(
                phrase(
                    "{name}: {count} page(s) without text, pictures perhaps: {pages}",
                    name=document.name, count=len(empty), pages=ranges(empty),
                ), "warn",
            )  # fmt: skip
    for lost in session.stations.lost_names:
        printer.text(phrase("{url} was lost on the way", url=lost), "warn")
    if len(documents) > 1:
        printer.table(
            Table(
                columns=(Column(phrase("document")), Column(phrase("chunks"), right=True),
                         Column(phrase("tokens"), right=True)),
                rows=[(Cell(each.name), Cell(f"{each.chunks:,}"), Cell(f"{each.tokens:,}"))
                      for each in documents],
            )
        )  # fmt: skip
    folder = str(shelf.path.parent)
    printer.text(phrase("in {folder}: {files}", folder=folder, files=", ".join(written)), "dim")


def ranges(numbers: Sequence[int]) -> str:
    """`1, 4-7` of ascending numbers."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ", ".join("-".join(map(str, each)) for each in found)


def place_of(row: Row, start: int, end: int) -> str:
    """Document, bytes, page, headings."""
    place = f"{row.document} {start}-{end}"
    if row.page is not None:
        place += f" p. {row.page}"
    return f"{place} [{row.section}]" if row.section else place


def shortened(text: str) -> str:
    """In one line, not too long to look at."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[:_SHOWN] + " ..."


def search(
    printer: Printer, shelf: Shelf, session: Session, question: str, number: int
) -> list[Hit]:
    """The nearest chunks, each by its best passage."""
    from kvwise.digest.search import Finder  # noqa: PLC0415

    with printer.working(phrase("searching")):
        return Finder(shelf, session.question(question)).passages(number)


def hits_json(shelf: Shelf, question: str, hits: Sequence[Hit]) -> dict[str, Any]:
    """A search and what it found, with the text."""
    from kvwise.digest.search import text_of  # noqa: PLC0415

    return {
        "question": question,
        "hits": [
            {
                "document": hit.row.document, "chunk": hit.row.seq, "start": hit.row.start,
                "end": hit.row.end, "section": hit.row.section, "page": hit.row.page,
                "score": round(hit.score, 6), "words": round(hit.words, 6),
                "text": text_of(shelf, hit.row),
                "passage": {"start": hit.start, "end": hit.end, "text": hit.text},
            }
            for hit in hits
        ],
    }  # fmt: skip


def show_hits(printer: Printer, question: str, hits: Sequence[Hit]) -> None:
    """Each with where it is, so that it can be found in the document."""
    printer.text()
    printer.text(phrase("nearest to: {question}", question=question), "title")
    if not hits:
        printer.text(phrase("nothing: there are no chunks"), "warn")
    for number, hit in enumerate(hits, 1):
        place = place_of(hit.row, hit.start, hit.end)
        printer.text(f"{number}. {hit.score:.3f}  {place}", "good")
        printer.text(shortened(hit.text))


def say_unfinished(printer: Printer, shelf: Shelf) -> None:
    """What was stopped is asked all the same, as far as it came; but not without a word."""
    from kvwise.digest.shelf import FINISHED  # noqa: PLC0415

    names = [each.name for each in shelf.documents() if each.state != FINISHED]
    if names:
        text = phrase(
            "{name} is not finished ({count} such): what is missing is not found; name it on the "
            "line to go on",
            name=names[0], count=len(names),
        )  # fmt: skip
        printer.remark(text, "warn")


def say_outdated(printer: Printer, shelf: Shelf, *, by_vectors: bool) -> list[str]:
    """What is kept of a document answers even if its file is another by now; but not without a
    word, and its name is returned. `by_vectors`: no text is read. Where the file itself is read,
    that is refused."""
    from kvwise.digest.search import outdated  # noqa: PLC0415

    found = []
    for document in shelf.documents():
        said = outdated(document) if by_vectors or document.text is not None else None
        if said is not None:
            printer.remark(said, "warn")
            found.append(document.name)
    return found
