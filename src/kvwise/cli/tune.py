"""`kvwise tune`: a measured search around the plan, within a budget of time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._count import model_file, say_if_header
from kvwise.cli._reporting import REPORT, check_report, save_report
from kvwise.cli._request import (
    DEVICE_OPTIONS,
    ENGINE,
    LOGS,
    MODEL,
    TAKEN_UP,
    companions_of,
    read_launch,
)
from kvwise.cli._shapes import Words
from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.plan.choose import Impossible
from kvwise.plan.goal import PURPOSES
from kvwise.plan.quality import QUALITIES
from kvwise.text import phrase
from kvwise.units import clock, percent

if TYPE_CHECKING:
    from kvwise.cli._planning import Planned
    from kvwise.jobs import Job, Mode
    from kvwise.results import Measurement
    from kvwise.store import Store
    from kvwise.tune.knobs import Point
    from kvwise.tune.measure import Taken
    from kvwise.tune.run import Asked, Now, Tuned

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@make_command(
    "Measure which settings are fastest here: threads, batches, polling, offload, cache types.\n\n"
    "Starts from the plan and searches within a budget of time what arithmetic cannot know. The "
    "best is measured again beside the start; a gain within noise is not recommended. Needs "
    "optuna: pip install 'kvwise[tune]'.",
    MODEL,
    click.Option(
        ["--budget"], metavar="TIME", help="How long it may take: 90s, 10m, 1h [default: 10m]."
    ),
    click.Option(
        ["--evaluations"], metavar="N", type=click.IntRange(4),
        help="Measure at most N times [default: a fifth of the full grid].",
    ),
    click.Option(
        ["--knobs"], metavar="NAME,...",
        help="Turn only these: t, tb, ub, b, poll, fa, cache, ngl, ncmoe.",
    ),
    click.Option(
        ["--goal"], type=click.Choice(list(PURPOSES)),
        help="What it is for; weighs reading prompts against generating [default: chat].",
    ),
    click.Option(["--prompt-tokens"], metavar="N", help="Tokens of a typical prompt."),
    click.Option(["-n", "--predict", "--n-predict"], "predict", metavar="N",
                 help="Tokens of a typical answer."),
    click.Option(["--slots"], metavar="N", type=click.IntRange(1),
                 help="Requests at the same time."),
    click.Option(
        ["--min-quality"], type=click.Choice(QUALITIES),
        help="The least quality of cache types to try [default: that of the plan's].",
    ),
    click.Option(["--seed"], metavar="N", type=int, default=0, help="Of the search [default: 0]."),
    ENGINE,
    *DEVICE_OPTIONS,
    *TAKEN_UP,
    click.Option(["--dry-run"], is_flag=True, help="Print what would be searched."),
    LOGS,
    REPORT,
    examples=(
        "kvwise tune model.gguf --budget 10m",
        "kvwise tune model.gguf --goal document --knobs t,ub --engine ./llama-server",
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
    from kvwise.cli._planning import planned, refuse  # noqa: PLC0415
    from kvwise.tune.search import check_installed  # noqa: PLC0415

    if not given["dry_run"]:
        check_installed()
    if given["resume"] and given["fresh"]:
        raise UsageError("--resume and --fresh exclude each other")
    check_report(given["report"])
    devices = {"gpu": gpu, "cpu_only": cpu_only, "ram": ram, "reserve": reserve,
               "device_file": device_file}  # fmt: skip
    try:
        made = planned(
            printer, words=words, model=model, shape=None, engine=engine, devices=devices,
            goal=given["goal"], prompt=None, prompt_tokens=given["prompt_tokens"],
            predict=given["predict"], turns=None, tokens_per_turn=None, slots=given["slots"],
            min_quality=given["min_quality"], never_offload=False,
        )  # fmt: skip
    except Impossible as impossible:
        return refuse(printer, impossible)
    fields = set(read_launch(words, model, engine)[1].origins)
    asked = _asked(printer, made, given, fields, engine)
    if given["dry_run"]:
        return _show_space(printer, asked)
    done = _in_job(printer, asked, given)
    if printer.json:
        from kvwise.tune.documents import tuned_json  # noqa: PLC0415

        printer.document(tuned_json(done, printer.language))
    else:
        from kvwise.cli._tune_view import show  # noqa: PLC0415

        show(printer, done)
    return 0


def _asked(
    printer: Printer, made: Planned, given: dict[str, Any], fields: set[str], engine: str | None
) -> Asked:
    from kvwise.engine.find import find  # noqa: PLC0415
    from kvwise.probe.cores import cores  # noqa: PLC0415
    from kvwise.tune.hunt import Limits  # noqa: PLC0415
    from kvwise.tune.knobs import given as given_knobs  # noqa: PLC0415
    from kvwise.tune.knobs import space_of  # noqa: PLC0415
    from kvwise.tune.measure import REQUESTS, Meter, Request  # noqa: PLC0415
    from kvwise.tune.run import BUDGET_S, Asked  # noqa: PLC0415

    if given["dry_run"]:
        say_if_header(printer, made.model)
    else:
        model_file(made.model)
    used = find(engine)
    choice, goal = made.plan.choice, made.plan.goal
    base = used.ruled(choice.launch)
    usual = REQUESTS[goal.purpose]
    request = Request(goal.prompt_tokens or usual[0], goal.predict_tokens or usual[1])
    logical = os.cpu_count() or 1
    physical = min(cores() or logical, logical)
    knobs = [name.strip() for name in (given["knobs"] or "").split(",") if name.strip()]
    space = space_of(
        made.model, base, made.on.devices, cores=physical, logical=logical,
        floor=given["min_quality"] or _floor(base.type_k, base.type_v),
        prompt_tokens=request.prompt, fixed=given_knobs(fields, base.extra), only=knobs,
    )  # fmt: skip
    seconds = _seconds(given["budget"]) if given["budget"] else BUDGET_S
    return Asked(
        meter=Meter(made.model, used, request, logical), base=base, space=space,
        devices=made.on.devices, host=made.on.host,
        limits=Limits.of(space, seconds, given["evaluations"]), seed=given["seed"],
        companions=companions_of(base),
    )  # fmt: skip


def _floor(type_k: str, type_v: str) -> str:
    """The quality that the plan chose: nothing worse is tried unless it is asked for."""
    from kvwise.plan.quality import quality_of  # noqa: PLC0415

    quality = quality_of(type_k, type_v)
    return quality if quality in QUALITIES else "any"


def _seconds(text: str) -> float:
    unit = _UNITS.get(text[-1:].lower())
    try:
        found = float(text[:-1]) * unit if unit else 0.0
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError(
            "--budget {text}: no time with a unit", text=text, hint="like 90s, 10m or 1h"
        )
    return found


def _show_space(printer: Printer, asked: Asked) -> int:
    if printer.json:
        from kvwise.tune.documents import SCHEMA, space_json  # noqa: PLC0415

        printer.document({"schema": SCHEMA, "space": space_json(asked)})
    else:
        from kvwise.cli._tune_view import show_space  # noqa: PLC0415

        show_space(printer, asked)
    return 0


def _in_job(printer: Printer, asked: Asked, given: dict[str, Any]) -> Tuned:
    """Every evaluation in kvwise.db, so that the search can be taken up again."""
    from kvwise import __version__  # noqa: PLC0415
    from kvwise.jobs import Job  # noqa: PLC0415
    from kvwise.store import Store  # noqa: PLC0415
    from kvwise.tune.run import KIND  # noqa: PLC0415
    from kvwise.verify import identity  # noqa: PLC0415

    request, model = asked.meter.request, asked.meter.model
    about = identity.about(model, asked.base, asked.meter.engine, request.prompt, __version__)
    about |= {"answer": request.answer, "seed": asked.seed, "start": list(asked.space.start),
              "knobs": [[knob.name, list(knob.values)] for knob in asked.space.knobs]}  # fmt: skip
    mode: Mode = "resume" if given["resume"] else "fresh" if given["fresh"] else "auto"
    with Store() as store, Job.open(store, KIND, model.path, about, mode) as job:
        if job.results:
            printer.remark(phrase("{done} evaluations are done already", done=len(job.results)))
        if job.changed:
            printer.remark(
                phrase("starting anew: what was interrupted had another {what}",
                       what=", ".join(job.changed))
            )  # fmt: skip
        done, found = _measure(printer, asked, given["logs"], store, job)
    save_report(printer, given["report"], found)
    return done


def _measure(
    printer: Printer, asked: Asked, logs: str | None, store: Store, job: Job
) -> tuple[Tuned, list[Measurement]]:
    from kvwise.engine.scratch import scratch  # noqa: PLC0415
    from kvwise.results import load, model_seen, save  # noqa: PLC0415
    from kvwise.tune.keep import measurements  # noqa: PLC0415
    from kvwise.tune.run import tune  # noqa: PLC0415

    found: list[Measurement] = []

    def keep(units: Sequence[tuple[Point, Taken]]) -> None:
        found[:] = measurements(asked, units)
        save(store, *found)

    with scratch() as own:
        folder = Path(logs or own)
        folder.mkdir(parents=True, exist_ok=True)
        with printer.progress(_doing(asked, None), asked.limits.most) as advance:
            done = tune(
                asked, job, logs=folder,
                progress=lambda now: advance(now.evaluations, _doing(asked, now)),
                after=keep,
            )  # fmt: skip
    if not found:  # all of it was done before
        seen = model_seen(asked.meter.model)
        found = load(store, kind="tune", fingerprint=seen.fingerprint)
    return done, found


def _doing(asked: Asked, now: Now | None) -> Words:
    if now is None:
        return phrase("measuring on {engine}", engine=asked.meter.engine.name)
    from kvwise.tune.knobs import key_of  # noqa: PLC0415

    left = clock(max(0.0, asked.limits.seconds - now.spent_s))
    if now.best is None:
        return phrase("trying {point}, {left} left", point=key_of(now.point), left=left)
    return phrase(
        "trying {point}, {left} left; the best so far takes {share} of the start's time",
        point=key_of(now.point), left=left, share=percent(now.best),
    )  # fmt: skip
