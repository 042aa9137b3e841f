"""`kvwise digest --ask, --task, --classify`: what a generator makes of the chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvwise.cli._digest_reply import reply_json, show_reply
from kvwise.cli.output import Printer
from kvwise.text import phrase
from kvwise.units import percent

if TYPE_CHECKING:
    from kvwise.cli._request import Machine
    from kvwise.digest.refine.classify import Verdict
    from kvwise.digest.refine.generator import Generator
    from kvwise.digest.refine.summarize import Tree
    from kvwise.digest.search import Hit
    from kvwise.digest.session import Session
    from kvwise.digest.shelf import Document, Shelf
    from kvwise.engine.find import Engine
    from kvwise.gguf.model import Model
    from kvwise.launch import Launch

TASKS = ("summarize",)
_LOG = "generator.log"
_LOOKED_AT = 5  # passages that an answer may be from


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to make of the chunks. `start` loads the generator."""

    question: str
    labels: str
    task: str
    top: int | None
    answer_tokens: int | None
    start: Start | None


@dataclass(frozen=True, slots=True)
class Start:
    """How to load a generator, once the embedding engine has left the memory."""

    model: Model
    launch: Launch
    engine: Engine
    threads: int

    @classmethod
    def of(cls, name: str, budget: int | None, on: Machine, engine: Engine, threads: int) -> Start:
        """Raises Refused for a model that does not generate, UsageError, DoesNotFit."""
        from kvwise.cli._count import model_file  # noqa: PLC0415
        from kvwise.cli._request import model_of  # noqa: PLC0415
        from kvwise.digest.refine.generator import launch_of  # noqa: PLC0415
        from kvwise.speculate.kinds import check_generates  # noqa: PLC0415

        model = model_of(name)
        check_generates(model)
        model_file(model)
        return cls(model, launch_of(model, budget, on.devices, on.host), engine, threads)

    @contextmanager
    def generator(self, printer: Printer, folder: Path) -> Iterator[Generator]:
        """Raises what loading raises; what ends it later says why."""
        from kvwise.digest.failures import explained  # noqa: PLC0415
        from kvwise.digest.refine.generator import Generator  # noqa: PLC0415

        log = folder / _LOG
        with explained(log, self.model, self.launch):
            with printer.working(phrase("loading {name}", name=self.model.called)):
                started = Generator(self.model, self.launch, self.engine, log, self.threads)
            if not started.chats:
                printer.remark(
                    phrase(
                        "{name} has no chat template: it goes on with a text instead of following "
                        "instructions; a model made for chat answers better",
                        name=self.model.called,
                    ), "warn",
                )  # fmt: skip
            with started:
                yield started


def refine(printer: Printer, session: Session, shelf: Shelf, wanted: Wanted) -> dict[str, Any]:
    """Everything that was asked for, shown; returns it for the JSON document.

    The vectors of the question and the labels are made first; then the embedding engine is ended,
    because the memory may hold one model only.
    """
    if wanted.start is not None and (wanted.labels or wanted.task):
        from kvwise.digest.search import check_unchanged  # noqa: PLC0415

        for document in shelf.documents():
            check_unchanged(document)
    hits: Sequence[Hit] = ()
    vectors: dict[str, Sequence[float]] = {}
    labels: tuple[str, ...] = ()
    if wanted.question:
        from kvwise.digest.search import Finder  # noqa: PLC0415

        with printer.working(phrase("searching")):
            found = Finder(shelf, session.question(wanted.question))
            hits = found.passages(wanted.top or _LOOKED_AT)
    if wanted.labels:
        from kvwise.digest.refine.classify import labels_of  # noqa: PLC0415

        labels = labels_of(wanted.labels)
        if wanted.start is None:
            vectors = {label: session.query(label) for label in labels}
    session.close()
    if wanted.start is None:
        return {"labels": _similar(printer, shelf, vectors)}
    made: dict[str, Any] = {}
    folder = shelf.path.parent
    with wanted.start.generator(printer, folder) as generator:
        if wanted.question:
            made["answer"] = _ask(printer, shelf, generator, wanted, hits)
        if labels:
            made["labels"] = _classified(printer, shelf, generator, labels)
        if wanted.task:
            made["summaries"] = _summaries(printer, shelf, generator, wanted)
    return made


def _ask(
    printer: Printer, shelf: Shelf, generator: Generator, wanted: Wanted, hits: Sequence[Hit]
) -> dict[str, Any]:
    from kvwise.digest.refine.ask import ANSWER_TOKENS, ask  # noqa: PLC0415

    tokens = wanted.answer_tokens or ANSWER_TOKENS
    with printer.working(phrase("answering")):
        reply = ask(shelf, generator, wanted.question, hits, tokens, most=wanted.top)
    if not printer.json:
        show_reply(printer, reply)
    return reply_json(reply)


def _similar(
    printer: Printer, shelf: Shelf, vectors: dict[str, Sequence[float]]
) -> list[dict[str, Any]]:
    from kvwise.digest.refine.classify import by_similarity, classify  # noqa: PLC0415

    vote, labels = by_similarity(shelf, vectors), tuple(vectors)
    found = [classify(shelf, each, vote, labels, "similarity") for each in shelf.documents()]
    return _verdicts(printer, found)


def _classified(
    printer: Printer, shelf: Shelf, generator: Generator, labels: tuple[str, ...]
) -> list[dict[str, Any]]:
    from kvwise.digest.refine.classify import by_generator, classify  # noqa: PLC0415

    documents = shelf.documents()
    total = sum(document.chunks for document in documents)
    vote = by_generator(shelf, generator, labels)
    done = 0
    with printer.progress(phrase("labelling"), total) as bar:

        def counted(row: Any) -> str:
            nonlocal done
            label = vote(row)
            done += 1
            bar(done)
            return label

        found = [classify(shelf, each, counted, labels, "generator") for each in documents]
    return _verdicts(printer, found)


def _verdicts(printer: Printer, found: Sequence[Verdict]) -> list[dict[str, Any]]:
    if not printer.json:
        printer.text()
        for each in found:
            shares = ", ".join(f"{label} {percent(share)}" for label, share in each.shares.items())
            printer.text(f"{each.document}: {each.label}", "title")
            votes = phrase("by {by}, votes of the chunks: {shares}", by=each.by, shares=shares)
            printer.text(votes, "dim")
    return [
        {"document": each.document, "label": each.label, "shares": each.shares, "by": each.by,
         "chunks": [{"chunk": number, "label": label} for number, label in each.chunks]}
        for each in found
    ]  # fmt: skip


def _summaries(
    printer: Printer, shelf: Shelf, generator: Generator, wanted: Wanted
) -> list[dict[str, Any]]:
    found = []
    for document in shelf.documents():
        if document.chunks:
            tree = _summarized(printer, shelf, generator, document, wanted.answer_tokens)
            found.append(_tree_json(tree))
            if not printer.json:
                _show_tree(printer, tree)
    return found


def _summarized(
    printer: Printer, shelf: Shelf, generator: Generator, document: Document, tokens: int | None
) -> Tree:
    from kvwise.digest.refine.summarize import SUMMARY_TOKENS, Summarizer  # noqa: PLC0415

    last = max(row.end for row in shelf.chunks(document.name))
    with printer.progress(phrase("summarising {name}", name=document.name), last) as bar:

        def tell(_number: int, end: int | None) -> None:
            bar(last if end is None else end)

        maker = Summarizer(shelf, generator, tokens or SUMMARY_TOKENS, tell)
        return maker.summarize(document)


def _tree_json(tree: Tree) -> dict[str, Any]:
    return {
        "document": tree.document, "summary": tree.top.text,
        "nodes": [asdict(node) | {"of": list(node.of), "sections": list(node.sections)}
                  for node in tree.nodes],
    }  # fmt: skip


def _show_tree(printer: Printer, tree: Tree) -> None:
    printer.text()
    printer.text(phrase("summary of {name}", name=tree.document), "title")
    printer.text(tree.top.text)
    below = [node for node in tree.nodes if not node.of]
    printer.text(
        phrase(
            "made of {below} summaries of the text in {levels} levels; --json has all of them with "
            "their byte offsets",
            below=len(below), levels=tree.top.level + 1,
        ),
        "dim",
    )  # fmt: skip
    cut = sum(node.cut for node in tree.nodes)
    if cut:
        printer.text(phrase("{cut} summaries were cut at their token limit", cut=cut), "warn")
