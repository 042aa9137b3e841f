"""`kvwise bench`: speed and sizes of a matrix of settings, measured side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvwise.cli._bench_request import MATRICES, Asked, sweep_of
from kvwise.cli._commands import command as make_command
from kvwise.cli._reporting import REPORT, check_report, save_report
from kvwise.cli._request import DEVICE_OPTIONS, ENGINE, LOGS, TAKEN_UP
from kvwise.cli._shapes import Words
from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.text import phrase
from kvwise.units import clock

if TYPE_CHECKING:
    from kvwise.bench.ruled import Ruled
    from kvwise.bench.run import Result, Sweep
    from kvwise.bench.summary import Line
    from kvwise.jobs import Job, Mode, Pace
    from kvwise.results import Measurement
    from kvwise.store import Store

EXIT_NOTHING_MEASURED = 3
_WHOLE = 1000
"""Steps of the bar: how many starts there are is known after the first ones."""

_OPTIONS = (
    click.Argument(["models"], nargs=-1, required=False, metavar="MODEL..."),
    click.Option(
        ["--matrix"],
        type=click.Choice(MATRICES),
        help="Pairs of cache types: kv has the six usual ones and then every other legal pair, six "
        "has only those.",
    ),
    click.Option(
        ["--vary"],
        multiple=True,
        metavar="LIST",
        help="llama.cpp's options and the values to try, all combinations of them: "
        "ctk=f16,q8_0;fa=on,off;ub=128,512;d=0,4096. Repeatable.",
    ),
    click.Option(["-p", "--n-prompt", "prompt"], metavar="N,...",
                 help="Read N random tokens; 0 leaves it out [default: 512]."),
    click.Option(["-n", "--n-gen", "decode"], metavar="N,...",
                 help="Generate N tokens one by one; 0 leaves it out [default: 128]."),
    click.Option(["-d", "--n-depth", "depth"], metavar="N,...",
                 help="Behind N tokens that are in the cache already [default: 0]."),
    click.Option(["-r", "--repetitions", "repetitions"], metavar="N", type=click.IntRange(1, 1000),
                 default=5, help="Measure everything N times [default: 5]."),
    ENGINE,
    *DEVICE_OPTIONS,
    click.Option(["--retries"], metavar="N", type=click.IntRange(0, 100), default=2,
                 help="Take a sample again up to N times when something else ran meanwhile "
                 "[default: 2]."),
    click.Option(["--force"], is_flag=True, help="Start also what memory cannot hold."),
    *TAKEN_UP,
    click.Option(["--dry-run"], is_flag=True,
                 help="Print the settings and how long it will take instead of measuring; also for "
                 "the machine that --gpu, --cpu-only, --device-file and --ram name."),
    click.Option(["--quality"], is_flag=True,
                 help="Then measure what each setting costs in fidelity against f16."),
    click.Option(["--text"], metavar="FILE",
                 help="With --quality: the text to read [default: one that comes with kvwise]."),
    REPORT,
    LOGS,
)  # fmt: skip


@make_command(
    "Measure settings side by side: speed, sizes, and what does not work.\n\n"
    "Prompt and decode speed by llama-bench's definitions, in rounds over all settings, with the "
    "spread; the engine's memory beside the computed one. By llama-bench where the engine has one, "
    "else by its server. Interrupt it whenever you like: the same command goes on. A setting that "
    "fails is a row with its cause.",
    *_OPTIONS,
    examples=(
        "kvwise bench model.gguf --matrix six -d 0,4096",
        'kvwise bench model.gguf --vary "ctk=f16,q8_0;ctv=f16,q8_0;ub=128,512" -fa on -r 10',
    ),
)
def command(
    printer: Printer,
    *,
    words: list[str],
    models: Sequence[str],
    matrix: str | None,
    vary: Sequence[str],
    prompt: str | None,
    decode: str | None,
    depth: str | None,
    repetitions: int,
    engine: str | None,
    retries: int,
    force: bool,
    resume: bool,
    fresh: bool,
    dry_run: bool,
    quality: bool,
    text: str | None,
    report: str | None,
    logs: str | None,
    **on: Any,
) -> int:
    if resume and fresh:
        raise UsageError("--resume and --fresh exclude each other")
    if text is not None and not quality:
        raise UsageError("--text belongs to --quality")
    if any(on.values()) and not dry_run:
        raise UsageError(
            "{option} is for --dry-run: bench measures on this machine",
            option=", ".join(f"--{name.replace('_', '-')}" for name, value in on.items() if value),
            hint="--device none or -ngl 0 measure without the GPU",
        )
    check_report(report)
    if quality:
        from kvwise.quality import text_of  # noqa: PLC0415

        text_of(text)  # it is needed last: what is wrong with it is said first
    lengths = {"-p": prompt, "-n": decode, "-d": depth}
    folder = Path(logs) if logs else None
    asked = Asked(
        tuple(models), matrix, vary, lengths, engine, repetitions, retries, force, folder,
        dry_run, on if any(on.values()) else None,
    )  # fmt: skip
    sweep = sweep_of(printer, words, asked)
    if quality and any(each.case.launch.embeddings for each in sweep.ruled):
        raise UsageError("--quality compares what a model generates, and this one makes vectors")
    if dry_run:
        from kvwise.cli._bench_view import show_plan  # noqa: PLC0415

        return show_plan(printer, sweep)
    mode: Mode = "resume" if resume else "fresh" if fresh else "auto"
    return _measure(printer, sweep, _After(mode, quality, text, report))


@dataclass(frozen=True, slots=True)
class _After:
    """How to begin, and what to do once speeds are measured."""

    mode: Mode
    quality: bool
    text: str | None
    report: str | None


def _measure(printer: Printer, sweep: Sweep, after: _After) -> int:
    """All units as a job in kvwise.db, so that they can be taken up again."""
    from kvwise.bench import identity  # noqa: PLC0415
    from kvwise.bench.run import KIND, run  # noqa: PLC0415
    from kvwise.bench.summary import lines_of  # noqa: PLC0415
    from kvwise.jobs import Job  # noqa: PLC0415
    from kvwise.store import Store  # noqa: PLC0415

    if sweep.logs:
        sweep.logs.mkdir(parents=True, exist_ok=True)
    about, subject = identity.about(sweep), identity.subject(sweep)
    with Store() as store, Job.open(store, KIND, subject, about, after.mode) as job:
        _say_begun(printer, sweep, job)
        with printer.progress(_doing(None), _WHOLE) as advance:
            results = run(
                sweep,
                job,
                lambda pace: advance(_WHOLE * pace.done // max(pace.total, 1), _doing(pace)),
                _saver(store, sweep),
            )
        lines = lines_of(sweep, results)
        _tell(printer, job, sweep, lines, after)
        _report(printer, store, sweep, results, after)
        job.finish()
    return 0 if any(line.state == "ok" for line in lines) else EXIT_NOTHING_MEASURED


def _say_begun(printer: Printer, sweep: Sweep, job: Job) -> None:
    from kvwise.cli._bench_view import means_sentence  # noqa: PLC0415

    if job.results:
        printer.remark(phrase("{done} starts are done already", done=len(job.results)))
    if job.changed:
        what = ", ".join(job.changed)
        printer.remark(phrase("starting anew: what was interrupted had another {what}", what=what))
    if printer.json:  # else it stands above the answer
        printer.remark(means_sentence(sweep))


def _tell(printer: Printer, job: Job, sweep: Sweep, lines: Sequence[Line], after: _After) -> None:
    """The answer; with --quality after that has been measured, too."""
    from kvwise.cli import _bench_quality as quality  # noqa: PLC0415
    from kvwise.cli._bench_view import show  # noqa: PLC0415

    if not printer.json and after.quality:
        show(printer, sweep, lines)  # what is known already need not wait
    found: list[Measurement] = []
    if after.quality:
        found = quality.measure_quality(
            printer, job.store, sweep, lines, sweep_job=job, mode=after.mode, text=after.text
        )
    known = quality.by_line(sweep, lines, found)
    if printer.json:
        from kvwise.bench.documents import sweep_json  # noqa: PLC0415

        noticed = quality.noticed(lines, known)
        printer.document(sweep_json(sweep, lines, printer.language, known, noticed))
    elif after.quality:
        quality.show_quality(printer, sweep, lines, known)
    else:
        show(printer, sweep, lines)


def _report(
    printer: Printer,
    store: Store,
    sweep: Sweep,
    results: Mapping[str, Result],
    after: _After,
) -> None:
    if after.report is None:
        return
    from kvwise.bench.record import all_measurements  # noqa: PLC0415
    from kvwise.results import load, machine_seen  # noqa: PLC0415

    machine = machine_seen(sweep.means.devices)
    found = all_measurements(sweep, results, machine)
    if after.quality:
        for print_ in {each.model.fingerprint for each in found}:
            found += load(store, kind="fidelity", fingerprint=print_, machine=machine.id)
    save_report(printer, after.report, found)


def _saver(store: Store, sweep: Sweep) -> Callable[[Ruled, Mapping[str, Result]], object]:
    from kvwise.bench.record import measurements  # noqa: PLC0415
    from kvwise.results import machine_seen, save  # noqa: PLC0415

    machine = machine_seen(sweep.means.devices)
    return lambda ruled, results: save(store, *measurements(sweep, ruled, results, machine))


def _doing(pace: Pace | None) -> Words:
    if pace is None or pace.left_s is None:
        return phrase("measuring")
    return phrase(
        "measuring: {done} of {total} starts, {left} left",
        done=pace.done, total=pace.total, left=clock(pace.left_s),
    )  # fmt: skip
