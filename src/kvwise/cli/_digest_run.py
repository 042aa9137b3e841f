"""`kvwise digest` at work: what is ahead, how far it is, how quick it was."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvwise.cli._shapes import Words
from kvwise.cli.output import Printer
from kvwise.store import StoreError
from kvwise.text import Phrase, phrase
from kvwise.units import clock
from kvwise.units import show as show_size

if TYPE_CHECKING:
    from kvwise.digest.forecast import Forecast
    from kvwise.digest.run import Pace, Summary
    from kvwise.digest.session import Session
    from kvwise.digest.shelf import Shelf
    from kvwise.digest.sources import Source
    from kvwise.results import Measurement


_NAMED = 3
"""Names of what is left out that are told for a reason."""


@dataclass(frozen=True, slots=True)
class Work:
    """What documents are embedded with, and where it goes."""

    session: Session
    shelf: Shelf
    folder: Path
    encoding: str | None


class LeftOut:
    """What was left out of the folders that were named, by its reason."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Phrase, list[str]]] = {}

    def __call__(self, name: str, why: Phrase) -> None:
        self._found.setdefault(str(why), (why, []))[1].append(name)

    def tell(self, printer: Printer) -> None:
        """A line for each reason."""
        for why, names in self._found.values():
            said = ", ".join(names[:_NAMED])
            if len(names) > _NAMED:
                more = len(names) - _NAMED
                printer.remark(
                    phrase("left out: {names} and {more} more: {why}", names=said, more=more,
                           why=why)
                )  # fmt: skip
            else:
                printer.remark(phrase("left out: {name}: {why}", name=said, why=why))


@dataclass(frozen=True, slots=True)
class Done:
    """What was embedded, and the files that were written."""

    summary: Summary
    written: Sequence[str]


def embedded(printer: Printer, work: Work, found: Sequence[Source]) -> Done:
    """All documents, and the files of the folder; no other process works on it meanwhile."""
    from kvwise.cli import _digest_view as view  # noqa: PLC0415
    from kvwise.digest.outputs import document_json, write_document  # noqa: PLC0415

    with work.shelf.lock("digest"):
        summary = _embed(printer, work, found)
        written = view.write(printer, work.shelf, work.folder)
        made = view.made_json(work.session, summary)
        write_document(document_json(work.shelf, made), work.folder)
    return Done(summary, written)


def _embed(printer: Printer, work: Work, found: Sequence[Source]) -> Summary:
    """All documents, with what is ahead, a bar, and the speed kept for the next time. The caller
    holds the folder's lock."""
    from kvwise.digest.forecast import LEAST, UNIT, keep, measurement  # noqa: PLC0415
    from kvwise.digest.place import TEXTS  # noqa: PLC0415
    from kvwise.digest.run import Digest  # noqa: PLC0415
    from kvwise.engine.watch import Watch  # noqa: PLC0415
    from kvwise.results import Sample  # noqa: PLC0415

    session = work.session
    total = sum(source.size for source in found)
    question, rate = _question(printer, session)
    with printer.progress(phrase("cutting"), total) as bar:

        def tell(pace: Pace) -> None:
            bar(pace.done, _pace(pace))

        run = Digest(
            work.shelf, work.folder / TEXTS, session.tokenizer, session.rules, session.stations,
            encoding=work.encoding, progress=tell,
            tell_plan=lambda ahead: printer.remark(_ahead(ahead, session, rate)),
        )  # fmt: skip
        with Watch() as watch:
            watch.follow(session.pid)
            began = time.monotonic()
            summary = run.run(found)
            share = watch.between(began, time.monotonic())
    if question is not None and summary.embedded >= LEAST:
        cores = os.cpu_count() or 1
        flags = share.flags(cores - (session.asked.threads or cores))
        sample = Sample(summary.tokens / max(summary.seconds, 1e-9), UNIT, time.time(), flags)
        try:
            keep(measurement(session, sample, summary.embedded))
        except StoreError as error:  # what was asked for is done and kept
            _not_kept(printer, error)
    return summary


def _question(printer: Printer, session: Session) -> tuple[Measurement | None, float | None]:
    """What is to be measured on this machine, None where others embed or it cannot be kept; and how
    many tokens per second it was before, None where that is unknown."""
    from kvwise.digest.forecast import earlier_rate, measurement  # noqa: PLC0415

    if session.asked.servers or session.asked.ray is not None:
        return None, None
    question = measurement(session)
    try:
        return question, earlier_rate(question)
    except StoreError as error:
        _not_kept(printer, error)
        return None, None


def _not_kept(printer: Printer, error: StoreError) -> None:
    printer.remark(phrase("the speed is not kept: {why}", why=error.phrase), "warn")


def _ahead(ahead: Forecast, session: Session, rate: float | None) -> Words:
    """The plan in one line."""
    if not ahead.chunks:
        return phrase("{size}: there is no text to embed", size=show_size(ahead.size))
    seconds = ahead.seconds(rate)
    fields = {
        "size": show_size(ahead.size), "chunks": ahead.chunks, "limit": session.rules.limit,
        "there": ahead.there, "tokens": ahead.tokens,
    }  # fmt: skip
    if seconds is None:
        return phrase(
            "{size}: about {chunks:,} chunks of at most {limit:,} tokens, {there:,} of them done; "
            "about {tokens:,} tokens to embed", **fields,
        )  # fmt: skip
    return phrase(
        "{size}: about {chunks:,} chunks of at most {limit:,} tokens, {there:,} of them done; "
        "about {tokens:,} tokens to embed, {time} at the {rate:.0f} tokens/s measured here before",
        **fields, time=clock(seconds), rate=rate,
    )  # fmt: skip


def _pace(pace: Pace) -> Words:
    if pace.left_s is None:
        return phrase("{document}: {chunks:,} chunks", document=pace.document, chunks=pace.chunks)
    return phrase(
        "{document}: {chunks:,} chunks, {rate:.0f} tokens/s, {left} left",
        document=pace.document, chunks=pace.chunks, left=clock(pace.left_s),
        rate=pace.tokens / max(pace.seconds, 1e-9),
    )  # fmt: skip
