"""`kvwise digest`: documents of any size to chunks, vectors, answers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._count import model_file
from kvwise.cli._digest_refine import TASKS, Start, Wanted, refine
from kvwise.cli._digest_run import Done, LeftOut, Work, embedded
from kvwise.cli._request import (
    DEVICE_OPTIONS,
    ENGINE,
    Machine,
    machine,
    model_of,
    read_launch,
    with_model,
)
from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.oserrors import reason_of
from kvwise.text import phrase

if TYPE_CHECKING:
    from kvwise.digest.fitting import Settings
    from kvwise.digest.session import Asked, Session
    from kvwise.digest.shelf import Remembered, Shelf
    from kvwise.engine.find import Engine
    from kvwise.gguf.model import Model

_OPTIONS = (
    click.Argument(["documents"], nargs=-1, required=False, metavar="DOC..."),
    click.Option(["--embed-model"], metavar="MODEL", help="The model that makes the vectors "
                 "[default: the one that FOLDER was made with]."),
    click.Option(["--out"], metavar="FOLDER",
                 help="Where chunks and vectors are kept [default: DOC.digest]."),
    click.Option(["--chunk-tokens"], metavar="N", type=click.IntRange(2),
                 help="Tokens of a chunk at most, with what the model adds [default: 512, or what "
                 "the model was trained for]."),
    click.Option(["--overlap"], metavar="N", type=click.IntRange(0),
                 help="Tokens of a chunk that the next one repeats [default: 0]."),
    click.Option(["--borders"], type=click.Choice(("sentence", "paragraph", "none")),
                 help="Where a chunk should end; none = as full as can be "
                 "[default: sentence]."),
    click.Option(["--encoding"], metavar="NAME",
                 help="Encoding of the documents [default: recognised]."),
    click.Option(["--chunk-prefix"], metavar="TEXT",
                 help="What the model wants before each chunk, such as search_document:"),
    click.Option(["--query-prefix"], metavar="TEXT", default="",
                 help="What it wants before a question, such as search_query:"),
    click.Option(["--normalize"], type=click.Choice(("euclidean", "none")),
                 help="Vectors of length 1, or as the model gives them [default: euclidean]."),
    click.Option(["--servers"], metavar="URL,URL",
                 help="llama-servers that run already with this model and --embedding."),
    click.Option(["--on"], metavar="ray[:ADDRESS]",
                 help="Embed on a Ray cluster, one engine per GPU."),
    click.Option(["--search"], metavar="TEXT", help="Show the chunks nearest to a text."),
    click.Option(["--top"], metavar="N", type=click.IntRange(1, 1000),
                 help="How many; for --ask how many the generator gets [default: 5; for --ask with "
                 "less than a billion parameters 1]."),
    click.Option(["--model"], metavar="MODEL", help="The generator that reads and writes."),
    click.Option(["--ask"], metavar="TEXT",
                 help="Answer a question from the chunks that fit, with where it stands."),
    click.Option(["--task"], type=click.Choice(TASKS),
                 help="summarize: chunks, then sections, then the document."),
    click.Option(["--classify"], metavar="LABEL,LABEL",
                 help="Which label fits; by similarity without a generator."),
    click.Option(["--budget"], metavar="N", type=click.IntRange(64),
                 help="Context of the generator in tokens [default: 4096]."),
    click.Option(["--answer-tokens"], metavar="N", type=click.IntRange(1),
                 help="Tokens of an answer [default: 256], of a summary [192]."),
    ENGINE,
    *DEVICE_OPTIONS,
    click.Option(["--vectors"], is_flag=True,
                 help="With --json: the pooled vectors too; digest.json has them always."),
    click.Option(["--fresh"], is_flag=True, help="Forget what the folder has and begin again."),
    click.Option(["--dry-run"], is_flag=True, help="Count the chunks and say what it takes."),
    click.Option(["--explain"], is_flag=True,
                 help="The same, and what one context of --model for all of the text would cost."),
)  # fmt: skip
_ASKING = ("search", "ask", "task", "classify")
_NORMALIZE = {"euclidean": 2, "none": -1}


@make_command(
    "Cut documents into chunks, embed them, pool them, search them.\n\n"
    "Text, Markdown, HTML, PDF, DOCX, folders of them, or - for standard input. Chunks are exact "
    "in the model's own tokens and end with sentences; each vector is on the disk when made, so "
    "the same command goes on after any interruption, and only what changed is done again.",
    *_OPTIONS,
    examples=(
        "kvwise digest book.txt --embed-model embed.gguf",
        'kvwise digest book.txt --embed-model embed.gguf --search "who built the ark?"',
        "kvwise digest papers/ --embed-model embed.gguf --chunk-tokens 256 --overlap 32",
    ),
)
def command(
    printer: Printer, *, words: list[str], documents: Sequence[str], **given: object
) -> int:
    asked = _Asked.of(words, documents, given)
    return _run(printer, asked)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The command line, checked."""

    words: list[str]
    documents: tuple[str, ...]
    folder: Path
    embed_model: str
    options: dict[str, object]
    before: Remembered  # what the line does not say is as it was

    @classmethod
    def of(cls, words: list[str], documents: Sequence[str], given: dict[str, object]) -> _Asked:
        """Raises UsageError, StoreError."""
        from kvwise.digest.shelf import Remembered  # noqa: PLC0415

        out = given["out"]
        if not documents and not isinstance(out, str):
            raise UsageError("no document", hint="name files or folders, or - for standard input")
        _check_asked(given, documents)
        _check_refining(given)
        folder = Path(str(out)) if out else Path(_folder_name(documents[0]))
        if folder.exists() and not folder.is_dir():
            raise UsageError("--out {path} is no folder", path=str(folder))
        if not documents and not folder.is_dir():
            raise UsageError("{path} holds no digest", path=str(folder))
        before = Remembered.of(folder) if not given["fresh"] else Remembered({})
        return cls(words, tuple(documents), folder, _embed_model(given, folder, before),
                   dict(given), before)  # fmt: skip

    def text(self, name: str) -> str:
        value = self.options[name]
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int | None:
        value = self.options[name]
        return value if isinstance(value, int) else None

    def kept(self, option: str, setting: str, usual: Any) -> Any:
        """As the line says, else as the folder was made, else as usual."""
        value = self.options[option]
        return value if value is not None else self.before.about.get(setting, usual)

    def engine(self) -> str:
        """As the line says, else what the folder was made with, if that is still there."""
        before = self.before.engine
        return self.text("engine") or (before if Path(before).is_file() else "")

    def ray(self) -> str | None:
        """The address behind `--on ray:`. Raises UsageError."""
        on = self.text("on")
        if on and self.text("servers"):
            raise UsageError("--on and --servers exclude each other")
        where, _, address = on.partition(":")
        if on and where != "ray":
            raise UsageError("--on {on}: only ray or ray:ADDRESS", on=on)
        return address if on else None

    def machine(self, engine: Engine) -> Machine:
        """The devices and the memory to plan with."""
        gpu = self.options["gpu"]
        return machine(
            gpu if isinstance(gpu, tuple) else (), bool(self.options["cpu_only"]),
            self.text("ram") or None, self.text("reserve") or None,
            self.text("device_file") or None, engine=engine,
        )  # fmt: skip

    def how(self, threads: int) -> Asked:
        """What the session needs to know."""
        from kvwise.digest.session import Asked  # noqa: PLC0415

        servers = tuple(url.strip() for url in self.text("servers").split(",") if url.strip())
        return Asked(
            overlap=self.kept("overlap", "overlap", 0),
            borders=self.kept("borders", "borders", "sentence"),
            normalize=_NORMALIZE[self.text("normalize")]
            if self.text("normalize")
            else self.kept("normalize", "normalize", 2),
            chunk_prefix=self.kept("chunk_prefix", "chunk prefix", ""),
            query_prefix=self.text("query_prefix"),
            threads=threads,
            servers=servers,
            ray=self.ray(),
        )


def _embed_model(given: dict[str, object], folder: Path, before: Remembered) -> str:
    named = given["embed_model"] or before.model
    if not isinstance(named, str) or not named:
        raise UsageError(
            "no model to embed with", hint="--embed-model names a .gguf file, or hf:owner/repo"
        )
    if not given["embed_model"] and not Path(named).is_file():
        raise UsageError(
            "{model}, the model that {folder} was made with, is not there any more",
            model=named, folder=str(folder), hint="--embed-model names where it is now",
        )  # fmt: skip
    return named


def _check_asked(given: dict[str, object], documents: Sequence[str]) -> None:
    """That there is something to do. Raises UsageError."""
    for name in _ASKING:
        value = given[name]
        if isinstance(value, str) and not value.strip():
            raise UsageError("--{option} says nothing", option=name)
    if isinstance(given["encoding"], str):
        from kvwise.digest.extract.encodings import known  # noqa: PLC0415

        known(given["encoding"])
    if not documents and not any(given[name] for name in (*_ASKING, "dry_run", "explain")):
        raise UsageError(
            "nothing to do: no document, and no question about those that are there",
            hint="name documents, or --search, --ask, --task or --classify",
        )  # fmt: skip


def _check_refining(given: dict[str, object]) -> None:
    """What can be told before hours of work. Raises UsageError."""
    if (given["ask"] or given["task"]) and not given["model"]:
        raise UsageError(
            "a generator is needed to write", hint="--model names one; --search needs none"
        )
    if isinstance(given["classify"], str):
        from kvwise.digest.refine.classify import labels_of  # noqa: PLC0415

        labels_of(given["classify"])


def _folder_name(document: str) -> str:
    return "stdin.digest" if document == "-" else f"{Path(document).name or 'folder'}.digest"


def _run(printer: Printer, asked: _Asked) -> int:
    from kvwise.digest.failures import explained  # noqa: PLC0415
    from kvwise.digest.place import LOG  # noqa: PLC0415
    from kvwise.digest.session import Session, open_shelf  # noqa: PLC0415
    from kvwise.digest.sources import sources  # noqa: PLC0415
    from kvwise.engine.find import find  # noqa: PLC0415
    from kvwise.engine.scratch import scratch  # noqa: PLC0415

    engine = find(asked.engine() or None)
    model, settings, threads = _settings(printer, asked, engine)
    planned = bool(asked.options["dry_run"] or asked.options["explain"])
    with ExitStack() as stack:
        folder = asked.folder
        if planned:  # leaves nothing behind
            folder = stack.enter_context(scratch())
        wanted = None if planned else _wanted(asked, engine, threads)
        left_out = LeftOut()
        found = sources(asked.documents, folder, left_out)  # a wrong name leaves no folder
        left_out.tell(printer)
        _make(folder)
        log = folder / LOG
        stack.enter_context(explained(log, model, settings.launch))
        with printer.working(phrase("loading {name}", name=model.called)):
            session = Session(model, settings, asked.how(threads), engine, log)
        stack.enter_context(session)
        if planned:
            from kvwise.cli._digest_explain import show_plan  # noqa: PLC0415

            beside = _beside(asked, engine) if asked.options["explain"] else None
            return show_plan(printer, session, found, beside, asked.text("encoding") or None)
        with open_shelf(asked.folder, session, fresh=bool(asked.options["fresh"])) as shelf:
            work = Work(session, shelf, asked.folder, asked.text("encoding") or None)
            done = embedded(printer, work, found) if found else None
            return _show(printer, asked, session, shelf, done, wanted)


def _make(folder: Path) -> None:
    """Raises StoreError."""
    from kvwise.store import StoreError  # noqa: PLC0415

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            "{path} cannot be made: {why}", path=str(folder), why=reason_of(error),
            hint="--out FOLDER names another place",
        ) from error  # fmt: skip


def _beside(asked: _Asked, engine: Engine) -> tuple[Model, Machine]:
    """The model and the devices of one context for everything; a header is enough."""
    return model_of(asked.text("model") or asked.embed_model), asked.machine(engine)


def _settings(printer: Printer, asked: _Asked, engine: Engine) -> tuple[Model, Settings, int]:
    """The model, the launch that fits, threads."""
    from kvwise.digest.fitting import settings as settings_of  # noqa: PLC0415
    from kvwise.probe.cores import cores as physical_cores  # noqa: PLC0415

    ref, reading = read_launch(asked.words, asked.embed_model, asked.engine() or None)
    model = model_of(ref)
    model_file(model, "digest runs the real model: give a .gguf file on this machine")
    launch = with_model(reading.launch, ref, model)
    there = asked.machine(engine)
    tokens = asked.kept("chunk_tokens", "chunk tokens", None)
    made = settings_of(model, launch, tokens, there.devices, there.host)
    pooling = asked.before.about.get("pooling", made.pooling)
    if "pooling" not in reading.origins and made.pooling != pooling:
        launch = replace(launch, pooling=pooling)
        made = settings_of(model, launch, tokens, there.devices, there.host)
    for note in (*reading.notes, *made.notes):
        printer.remark(note)
    said = [value for flag, value in zip(launch.extra, launch.extra[1:], strict=False)
            if flag in ("-t", "--threads")]  # fmt: skip
    return model, made, int(said[0]) if said else physical_cores() or 0


def _show(  # noqa: PLR0917 (one place calls it)
    printer: Printer, asked: _Asked, session: Session, shelf: Shelf, done: Done | None,
    wanted: Wanted | None,
) -> int:  # fmt: skip
    from kvwise.cli import _digest_view as view  # noqa: PLC0415
    from kvwise.digest.outputs import document_json  # noqa: PLC0415

    made = view.made_json(session, done.summary if done else None)
    document: dict[str, object] = {}
    if printer.json:
        document = document_json(shelf, made, vectors=bool(asked.options["vectors"]))
    if done is None:
        view.say_unfinished(printer, shelf)
    elif not printer.json:
        view.show(printer, session, shelf, done.summary, done.written)
    if any(asked.text(name) for name in _ASKING):
        kept = asked.text("classify") and not asked.text("model")
        document["outdated"] = view.say_outdated(printer, shelf, by_vectors=bool(kept))
    document |= _searched(printer, asked, session, shelf)
    if wanted is not None:
        document |= refine(printer, session, shelf, wanted)
    if printer.json:
        printer.document(document)
    return 0


def _searched(printer: Printer, asked: _Asked, session: Session, shelf: Shelf) -> dict[str, object]:
    from kvwise.cli import _digest_view as view  # noqa: PLC0415

    question = asked.text("search")
    if not question:
        return {}
    hits = view.search(printer, shelf, session, question, asked.number("top") or 5)
    if not printer.json:
        view.show_hits(printer, question, hits)
    return {"search": view.hits_json(shelf, question, hits)}


def _wanted(asked: _Asked, engine: Engine, threads: int) -> Wanted | None:
    """What a generator is to make, None if nothing. Raises what makes a model none, before anything
    is loaded."""
    question, labels, task = asked.text("ask"), asked.text("classify"), asked.text("task")
    if not (question or labels or task):
        return None
    model = asked.text("model")
    start = None
    if model:
        there = asked.machine(engine)
        start = Start.of(model, asked.number("budget"), there, engine, threads)
    return Wanted(question, labels, task, asked.number("top"),
                  asked.number("answer_tokens"), start)  # fmt: skip
