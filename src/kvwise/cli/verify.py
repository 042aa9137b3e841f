"""`kvwise verify`: load and generate for real, and put the engine's figures beside ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._count import model_file
from kvwise.cli._finding import attach, finding_of
from kvwise.cli._request import (
    ENGINE,
    LOGS,
    MODEL,
    TAKEN_UP,
    companions_of,
    model_of,
    read_launch,
    with_model,
)
from kvwise.cli._shapes import Words
from kvwise.cli._taken import remember_taken, show_taken, taken_json
from kvwise.cli.output import Printer
from kvwise.errors import EngineError, UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.text import phrase
from kvwise.units import clock

if TYPE_CHECKING:
    from kvwise.engine.find import Engine
    from kvwise.jobs import Job, Mode, Pace
    from kvwise.verify import Attempt, Verification

EXIT_DIFFERS = 3


@make_command(
    "Load and generate for real: computed, simulated and measured bytes side by side.\n\n"
    "The engine loads the model with exactly these settings and answers a prompt; its own no-alloc "
    "pass stands beside it. Exit code 3 if a weights, cache or output line differs, or if one of "
    "several runs fails.",
    MODEL,
    ENGINE,
    click.Option(
        ["--runs"],
        metavar="N",
        type=click.IntRange(1),
        help="Load N times, and fill the whole context each time. Goes on where it was "
        "interrupted.",
    ),
    click.Option(
        ["--prompt-tokens"],
        metavar="N",
        type=click.IntRange(1),
        help="Send a prompt of N tokens to each slot [default: a short one, with --runs a full "
        "context].",
    ),
    *TAKEN_UP,
    click.Option(["--dry-run"], is_flag=True, help="Print the command instead of running it."),
    click.Option(["--no-simulate"], is_flag=True, help="Leave the engine's own pass out."),
    LOGS,
    examples=(
        "kvwise verify model.gguf -c 8192 -ctk q8_0 -ctv q8_0",
        "kvwise verify model.gguf -c 32768 --engine ./llama-server --runs 100",
    ),
)
def command(
    printer: Printer,
    *,
    words: list[str],
    model: str | None,
    engine: str | None,
    runs: int | None,
    prompt_tokens: int | None,
    resume: bool,
    fresh: bool,
    dry_run: bool,
    no_simulate: bool,
    logs: str | None,
) -> int:
    from kvwise.engine.find import find  # noqa: PLC0415  (help should not load an engine)

    if (resume or fresh) and (runs is None or (resume and fresh)):
        raise UsageError("--resume or --fresh belongs to --runs N")
    ref, reading = read_launch(words, model, engine)
    described = model_of(ref)
    launch = with_model(reading.launch, ref, described)
    place = model_file(described)
    for note in reading.notes:
        printer.remark(note)
    used = find(engine)
    if dry_run:
        return _show_command(printer, place, launch, used)
    asked = _Asked(described, launch, used, runs, prompt_tokens, logs, not no_simulate)
    mode: Mode = "resume" if resume else "fresh" if fresh else "auto"
    verification = _in_job(printer, asked, mode) if runs else _verify(printer, asked, None)
    if not verification.rows:
        raise _not_loaded(verification.attempts[0], logs)
    kept = remember_taken(printer, verification)
    if printer.json:
        from kvwise.verify import verification_json  # noqa: PLC0415

        document = verification_json(verification, printer.language)
        attach(document, verification.attempts, printer.language)
        printer.document(document | {"remembered": taken_json(kept)})
    else:
        from kvwise.cli._verify_view import show  # noqa: PLC0415

        show(printer, verification)
        show_taken(printer, kept)
    return 0 if verification.holds else EXIT_DIFFERS


def _not_loaded(attempt: Attempt, logs: str | None) -> EngineError:
    """Why there is nothing to compare: the doctor's cause, else the engine's own word."""
    found = finding_of(attempt)
    cause = found.cause if found else attempt.error or phrase("it printed no figures")
    hint = "its log is in {log}" if logs else "--logs FOLDER keeps its log"
    fields: dict[str, object] = {"why": cause, "log": attempt.log}
    if found and found.remedies:
        hint, fields["what"] = "{what}", found.remedies[0].text
    return EngineError("the engine did not load the model: {why}", hint=hint, **fields)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be verified, and how."""

    model: Model
    launch: Launch
    engine: Engine
    runs: int | None
    prompt_tokens: int | None
    logs: str | None
    simulate: bool


def _in_job(printer: Printer, asked: _Asked, mode: Mode) -> Verification:
    """All runs as units of a job in kvwise.db, so that they can be taken up again."""
    from kvwise import __version__  # noqa: PLC0415
    from kvwise.jobs import Job  # noqa: PLC0415
    from kvwise.store import Store  # noqa: PLC0415
    from kvwise.verify import identity  # noqa: PLC0415

    about = identity.about(
        asked.model, asked.launch, asked.engine, asked.prompt_tokens, __version__
    )
    with Store() as store, Job.open(store, identity.KIND, asked.model.path, about, mode) as job:
        if job.results:
            printer.remark(
                phrase("{done} of {total} runs are done already",
                       done=len(job.results), total=asked.runs)
            )  # fmt: skip
        if job.changed:
            printer.remark(
                phrase("starting anew: runs that were interrupted had another {what}",
                       what=", ".join(job.changed))
            )  # fmt: skip
        return _verify(printer, asked, job)


def _verify(printer: Printer, asked: _Asked, job: Job | None) -> Verification:
    from kvwise.verify import verify  # noqa: PLC0415

    folder = None
    if asked.logs is not None:
        folder = Path(asked.logs)
        folder.mkdir(parents=True, exist_ok=True)
    runs = asked.runs or 1
    with printer.progress(_doing(asked.engine, None), runs) as advance:
        return verify(
            asked.model,
            asked.launch,
            engine=asked.engine,
            runs=runs,
            full=asked.runs is not None,
            prompt_tokens=asked.prompt_tokens,
            logs=folder,
            simulate=asked.simulate,
            companions=companions_of(asked.launch),
            progress=lambda pace: advance(pace.done, _doing(asked.engine, pace)),
            job=job,
        )


def _doing(engine: Engine, pace: Pace | None) -> Words:
    if pace is None or pace.left_s is None:
        return phrase("loading and generating on {engine}", engine=engine.name)
    return phrase(
        "loading and generating on {engine}: {done} of {total}, {left} left",
        engine=engine.name,
        done=pace.done,
        total=pace.total,
        left=clock(pace.left_s),
    )


def _show_command(printer: Printer, place: str, launch: Launch, engine: Engine) -> int:
    from kvwise.cli._dry_run import show_commands  # noqa: PLC0415
    from kvwise.engine.pretend import Pretend  # noqa: PLC0415

    return show_commands(printer, [Pretend(engine).start(place, launch)])
