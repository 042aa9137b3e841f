"""`kvwise speculate`: does a draft model, an n-gram or MTP make this model faster here?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._count import is_header, say_if_header
from kvwise.cli._reporting import REPORT, check_report, save_report
from kvwise.cli._request import (
    DEVICE_OPTIONS,
    ENGINE,
    LOGS,
    MODEL,
    TAKEN_UP,
    Machine,
    machine,
    model_of,
    read_launch,
    with_model,
)
from kvwise.cli._shapes import Words
from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.text import Phrase, phrase
from kvwise.units import clock

if TYPE_CHECKING:
    from kvwise.jobs import Job, Mode, Pace
    from kvwise.speculate.run import Asked, Speculation
    from kvwise.speculate.vocabulary import Compatibility

EXIT_INCOMPATIBLE = 3
_OWN_CONTEXT = "n_ctx"


@make_command(
    "Plain generation against speculative decoding: does it pay on this machine?\n\n"
    "Whether the two vocabularies agree is decided from the headers (exit code 3 if they do not), "
    "then the memory of both together; then plain, the draft at several depths, the n-gram kinds "
    "and MTP generate from the same prompts, interleaved and repeated. Recommends a depth, or to "
    "leave it off, by tokens per second.",
    MODEL,
    click.Option(
        ["--draft"], metavar="MODEL",
        help="The draft: a path, hf:owner/repo or ollama:name. Without one: n-gram kinds and MTP.",
    ),
    click.Option(
        ["--depths"], metavar="N,N...",
        help="Tokens drafted at once [default: 1,2,3,4,6,8,16].",
    ),
    click.Option(
        ["--kinds"], metavar="KIND,...",
        help="Only these kinds of --spec-type, such as draft-simple,ngram-mod.",
    ),
    click.Option(
        ["--prompts"], metavar="FILE",
        help="Your prompts: one per line, JSON lines, or a folder of texts [default: code, prose "
        "and a summary].",
    ),
    click.Option(["--raw"], is_flag=True, help="Send prompts without the model's chat template."),
    click.Option(
        ["-n", "--predict", "--n-predict"], "predict", metavar="N", type=click.IntRange(2),
        help="Tokens of each answer [default: 128].",
    ),
    click.Option(
        ["--rounds"], metavar="N", type=click.IntRange(1),
        help="How often all of it is repeated [default: 3].",
    ),
    click.Option(
        ["--check"], is_flag=True, help="Only vocabulary and memory; nothing is loaded."
    ),
    ENGINE,
    *DEVICE_OPTIONS,
    *TAKEN_UP,
    click.Option(["--dry-run"], is_flag=True, help="Print the commands instead of running them."),
    click.Option(["--no-simulate"], is_flag=True, help="Leave the engine's own pass out."),
    LOGS,
    REPORT,
    examples=(
        "kvwise speculate model.gguf --draft small.gguf",
        "kvwise speculate model.gguf --draft small.gguf --depths 4,8 --prompts mine.txt -c 8192",
    ),
)  # fmt: skip
def command(
    printer: Printer,
    *,
    words: list[str],
    model: str | None,
    engine: str | None,
    gpu: tuple[str, ...],
    cpu_only: bool,
    ram: str | None,
    reserve: str | None,
    device_file: str | None,
    **given: Any,
) -> int:
    from kvwise.engine.find import find  # noqa: PLC0415  (help should not load an engine)

    if given["resume"] and given["fresh"]:
        raise UsageError("--resume and --fresh exclude each other")
    check_report(given["report"])
    ref, reading = read_launch(words, model, engine)
    described = model_of(ref)
    for note in reading.notes:
        printer.remark(note)
    options = Options(**given)
    launch = with_model(reading.launch, ref, described)
    draft = _draft(options.draft, launch)
    slots_given = "n_seq_max" in reading.origins
    context_given = _OWN_CONTEXT in reading.origins
    named = None if options.check or engine is None else find(engine)
    on = machine(gpu, cpu_only, ram, reserve, device_file, engine=named)
    asked = _asked(described, draft, launch, on, options, engine=engine)
    asked = _sized(asked, slots=slots_given, context=context_given)
    return _answer(printer, asked, options)


@dataclass(frozen=True, slots=True)
class Options:
    """Our own options as click read them."""

    draft: str | None
    depths: str | None
    kinds: str | None
    prompts: str | None
    raw: bool
    predict: int | None
    rounds: int | None
    check: bool
    resume: bool
    fresh: bool
    dry_run: bool
    no_simulate: bool
    logs: str | None
    report: str | None


def _draft(named: str | None, launch: Launch) -> Model | None:
    ref = named or launch.model_draft
    if named and launch.model_draft and launch.model_draft != named:
        raise UsageError("two drafts: {one} and {other}", one=named, other=launch.model_draft)
    return model_of(ref) if ref else None


def _asked(
    model: Model,
    draft: Model | None,
    launch: Launch,
    on: Machine,
    options: Options,
    *,
    engine: str | None,
) -> Asked:  # fmt: skip
    from kvwise.engine.find import Engine, find  # noqa: PLC0415
    from kvwise.speculate.kinds import (  # noqa: PLC0415
        DEPTHS,
        SIMPLE,
        check_generates,
        kind_of_draft,
        variants,
    )
    from kvwise.speculate.prompts import built_in, distinct, read_prompts  # noqa: PLC0415
    from kvwise.speculate.run import N_PREDICT, ROUNDS, Asked  # noqa: PLC0415

    check_generates(model)
    if draft is not None:
        check_generates(draft, draft=True)
    depths = _numbers(options.depths) if options.depths else DEPTHS
    kinds = [kind.strip() for kind in (options.kinds or "").split(",") if kind.strip()]
    prompts = read_prompts(options.prompts) if options.prompts else built_in()
    compatible = None
    if draft is not None and kind_of_draft(draft) == SIMPLE:
        compatible = _compatibility(model, draft)
    used = Engine("embedded") if options.check else find(engine)
    plain = replace(launch, spec_types=(), model_draft="")
    return Asked(
        model=model, draft=draft, draft_path=draft.path if draft else "",
        launch=used.ruled(plain), engine=used, devices=on.devices, host=on.host,
        variants=variants(model, draft, depths, kinds), prompts=distinct(prompts),
        n_predict=options.predict or N_PREDICT, rounds=options.rounds or ROUNDS,
        chat=not options.raw and _has_template(model), compatibility=compatible,
    )  # fmt: skip


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in text.split(",") if each.strip())
    except ValueError:
        raise UsageError(
            "--depths takes numbers with commas between them, not {text}", text=text
        ) from None


def _has_template(model: Model) -> bool:
    return isinstance(model.header.metadata.get("tokenizer.chat_template"), str)


def _compatibility(model: Model, draft: Model) -> Compatibility:
    from kvwise.gguf.open import open_header  # noqa: PLC0415
    from kvwise.speculate.vocabulary import TOKENS, Vocabulary, compare  # noqa: PLC0415

    one, other = (
        Vocabulary.of(open_header(each.path, arrays=(TOKENS,))) for each in (model, draft)
    )
    return compare(one, other)


def _sized(asked: Asked, *, slots: bool, context: bool) -> Asked:
    """One slot and a context with room for every prompt, where the line does not say."""
    from kvwise.options.resolve import change  # noqa: PLC0415
    from kvwise.speculate.run import context_for  # noqa: PLC0415

    changes: dict[str, object] = {}
    if not slots:
        changes |= {"n_seq_max": 1, "kv_unified": False}
    if not context:
        changes["n_ctx"] = context_for(asked.prompts, asked.n_predict, asked.model.n_ctx_train)
    return replace(asked, launch=change(asked.launch, **changes))


def _answer(printer: Printer, asked: Asked, options: Options) -> int:
    from kvwise.speculate.kinds import warnings  # noqa: PLC0415

    told = list(warnings(asked.model, asked.draft))
    missing = _not_here(asked)
    found = asked.compatibility
    if found is not None and found.holds is False:
        _show_check(printer, asked, told)
        return EXIT_INCOMPATIBLE
    if options.dry_run:
        for model in (asked.model, asked.draft):
            if model is not None:
                say_if_header(printer, model)
        return _show_commands(printer, asked)
    if options.check or missing is not None:
        if missing is not None and not options.check:
            printer.remark(missing)
        _show_check(printer, asked, told)
        return 0
    done = _in_job(printer, asked, options)
    if printer.json:
        from kvwise.speculate.documents import speculation_json  # noqa: PLC0415

        printer.document(speculation_json(done, told, printer.language))
    else:
        from kvwise.cli._speculate_view import show  # noqa: PLC0415

        show(printer, done, told)
    return 0


def _not_here(asked: Asked) -> Phrase | None:
    """Why nothing can be measured: a model that is only a header on this machine."""
    for model in (asked.model, asked.draft):
        if model is None:
            continue
        if is_header(model):
            return phrase("not measured: {name} is only a header here", name=model.called)
    return None


def _show_check(printer: Printer, asked: Asked, told: list[Phrase]) -> None:
    ledger = asked.ledger(asked.largest)
    if printer.json:
        from kvwise.speculate.documents import check_json  # noqa: PLC0415

        printer.document(check_json(asked, told, ledger, printer.language))
        return
    from kvwise.cli._speculate_view import show_check  # noqa: PLC0415

    show_check(printer, asked, told, ledger)


def _show_commands(printer: Printer, asked: Asked) -> int:
    from kvwise.cli._dry_run import show_commands  # noqa: PLC0415
    from kvwise.engine.pretend import Pretend  # noqa: PLC0415

    pretend = Pretend(asked.engine)
    would = [pretend.start(asked.model.loadable, asked.launch_of(each)) for each in asked.variants]
    return show_commands(printer, would)


def _in_job(printer: Printer, asked: Asked, options: Options) -> Speculation:
    """Every unit in kvwise.db, so that it can be taken up again; results too."""
    from kvwise import __version__  # noqa: PLC0415
    from kvwise.jobs import Job  # noqa: PLC0415
    from kvwise.speculate.run import KIND  # noqa: PLC0415
    from kvwise.store import Store  # noqa: PLC0415
    from kvwise.verify import identity  # noqa: PLC0415

    named = replace(asked.launch, model_draft=asked.draft_path)
    about = identity.about(asked.model, named, asked.engine, asked.n_predict, __version__)
    about |= {"prompts": [each.digest for each in asked.prompts], "chat": asked.chat}
    mode: Mode = "resume" if options.resume else "fresh" if options.fresh else "auto"
    with Store() as store, Job.open(store, KIND, asked.model.path, about, mode) as job:
        total = len(asked.variants) * asked.rounds
        if job.results:
            printer.remark(
                phrase("{done} of {total} are done already", done=len(job.results), total=total)
            )
        if job.changed:
            printer.remark(
                phrase("starting anew: what was interrupted had another {what}",
                       what=", ".join(job.changed))
            )  # fmt: skip
        return _measure(printer, asked, options, store, job)


def _measure(printer: Printer, asked: Asked, options: Options, store: Any, job: Job) -> Speculation:
    from kvwise.engine.scratch import scratch  # noqa: PLC0415
    from kvwise.results import save  # noqa: PLC0415
    from kvwise.speculate.keep import measurements  # noqa: PLC0415
    from kvwise.speculate.run import speculate, threads_of  # noqa: PLC0415

    asked = replace(asked, threads=job.note("threads", threads_of(asked.launch)))
    total = len(asked.variants) * asked.rounds
    with scratch() as own:
        folder = Path(options.logs or own)
        folder.mkdir(parents=True, exist_ok=True)
        with printer.progress(_doing(asked, None), total) as advance:
            done = speculate(
                asked, job, logs=folder, simulate=not options.no_simulate,
                progress=lambda pace: advance(pace.done, _doing(asked, pace)),
                after=lambda units: save(store, *measurements(asked, units)),
            )  # fmt: skip
    units = [unit for summary in done.summaries for unit in summary.units]
    found = measurements(asked, units)
    save(store, *found)
    save_report(printer, options.report, found)
    return done


def _doing(asked: Asked, pace: Pace | None) -> Words:
    if pace is None or pace.left_s is None:
        return phrase("generating on {engine}", engine=asked.engine.name)
    return phrase(
        "generating on {engine}: {done} of {total}, {left} left",
        engine=asked.engine.name, done=pace.done, total=pace.total, left=clock(pace.left_s),
    )  # fmt: skip
