"""`kvwise bench --quality`: fidelity of the settings that were measured, beside their speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvwise.cli._shapes import Cell, Column, Progress, Table, Words
from kvwise.cli.output import Printer
from kvwise.text import phrase
from kvwise.units import clock

if TYPE_CHECKING:
    from kvwise.bench.remarks import Remark
    from kvwise.bench.run import Sweep
    from kvwise.bench.summary import Line
    from kvwise.jobs import Job, Mode, Pace
    from kvwise.results import Measurement
    from kvwise.store import Store

SENSITIVE, BROKEN = "k_v_sensitivity", "broken_but_fast"
_SAME = ("type_k", "type_v", "flash_attn", "n_ubatch", "offload_kqv", "n_gpu_layers", "swa_full")
"""What a fidelity has in common with the setting it is about; its context is its own."""
_STYLES = {"lossless": "good", "high": "good", "medium": "warn", "broken": "bad"}


def measure_quality(
    printer: Printer,
    store: Store,
    sweep: Sweep,
    lines: Sequence[Line],
    *,
    sweep_job: Job,
    mode: Mode,
    text: str | None,
) -> list[Measurement]:
    """One measurement for each setting that could be measured. Each model is a job of its own: it
    goes on where it was interrupted, and is kept while those of the other models are measured.

    Raises UsageError, SourceError, EngineError, Interrupted.
    """
    from kvwise.quality import Request, measure, text_of  # noqa: PLC0415

    found: list[Measurement] = []
    content = text_of(text)
    for number, model in enumerate(sweep.models):
        mine = [line for line in lines if line.case.model == number and line.state == "ok"]
        launches = tuple(dict.fromkeys(line.case.launch for line in mine))
        if not launches:
            continue
        request = Request(
            model, launches, sweep.means.engine, content, threads=sweep.means.threads,
            devices=sweep.means.devices, host=sweep.means.host,
        )  # fmt: skip
        with printer.progress(_doing(None), len(launches) + 2) as advance:
            found += measure(
                request,
                store,
                mode=mode if mode == "fresh" else "auto",
                part_of=sweep_job,
                progress=_Told(advance, len(launches) + 2),
            )
    return found


class _Told:
    """Tells a bar of `room` steps how far a job of any number of units is."""

    def __init__(self, advance: Progress, room: int) -> None:
        self.advance, self.room = advance, room

    def __call__(self, pace: Pace) -> None:
        self.advance(pace.done * self.room // max(pace.total, 1), _doing(pace))


def _doing(pace: Pace | None) -> Words:
    if pace is None or pace.left_s is None:
        return phrase("comparing with f16")
    return phrase(
        "comparing with f16: {done} of {total}, {left} left",
        done=pace.done, total=pace.total, left=clock(pace.left_s),
    )  # fmt: skip


def by_line(
    sweep: Sweep, lines: Sequence[Line], found: Sequence[Measurement]
) -> dict[str, Measurement]:
    """The fidelity of each setting by `Case.key`."""
    from kvwise.quality.run import CHUNK_TOKENS  # noqa: PLC0415
    from kvwise.quality.scorers import for_chunks  # noqa: PLC0415
    from kvwise.results import model_seen  # noqa: PLC0415

    prints = [model_seen(model).fingerprint for model in sweep.models]
    known = {(each.model.fingerprint, _settings(each.settings)): each for each in found}
    wanted = {
        line.case.key: (
            prints[line.case.model],
            _settings(for_chunks(line.case.launch, CHUNK_TOKENS).as_dict()),
        )
        for line in lines
    }
    return {key: known[name] for key, name in wanted.items() if name in known}


def _settings(settings: Any) -> tuple[Any, ...]:
    return tuple(settings.get(name) for name in _SAME)


def noticed(lines: Sequence[Line], quality: Mapping[str, Measurement]) -> list[Remark]:
    """K against V, and settings whose speed looks fine while their text is broken."""
    from kvwise.bench.remarks import Remark  # noqa: PLC0415
    from kvwise.quality import quick_but_broken, sensitivity  # noqa: PLC0415

    told: list[Remark] = []
    for model in dict.fromkeys(line.case.model for line in lines):
        mine = [line for line in lines if line.case.model == model]
        found = {line.case.key: quality[line.case.key] for line in mine if line.case.key in quality}
        told += [
            Remark(SENSITIVE, each.sentence, tuple(_keys(mine, each.type)))
            for each in sensitivity(found.values())
            if each.resolved
        ]
        speeds = {line.types: line.figures[-1].median for line in mine if line.figures}
        for key, measured in found.items():
            told += [Remark(BROKEN, text, (key,)) for text in quick_but_broken([measured], speeds)]
    return told


def _keys(lines: Sequence[Line], kind: str) -> list[str]:
    return [line.case.key for line in lines if line.types in ((kind, "f16"), ("f16", kind))]


def show_quality(
    printer: Printer, sweep: Sweep, lines: Sequence[Line], quality: Mapping[str, Measurement]
) -> None:
    """What the settings of each model cost in fidelity, with the model's own noise beside it, and
    what is to be noticed."""
    told = noticed(lines, quality)
    for number, model in enumerate(sweep.models):
        mine = [line for line in lines if line.case.model == number and line.case.key in quality]
        if not mine:
            continue
        printer.text()
        printer.text(phrase("{model}, against f16 for K and V", model=model.called), "title")
        printer.table(Table(_columns(), [_row(line, quality[line.case.key]) for line in mine]))
        keys = {line.case.key for line in mine}
        printer.bullets([each.message for each in told if keys & set(each.keys)], "warn")


def _columns() -> list[Column]:
    return [
        Column(phrase("setting")),
        Column(phrase("divergence"), right=True),
        Column(phrase("of it noise"), right=True),
        Column(phrase("worst 1 %"), right=True),
        Column(phrase("same top, %"), right=True),
        Column(phrase("perplexity"), right=True),
        Column(phrase("verdict")),
    ]


def _row(line: Line, found: Measurement) -> list[Cell | Words]:
    figures = found.figures
    verdict = str(figures.get("verdict") or found.state)
    same = figures.get("same_top")
    return [
        line.case.label or "/".join(line.types),
        _number(figures.get("kl_mean"), 4),
        _number(figures.get("noise_kl_mean"), 4),
        _number(figures.get("kl_p99"), 3),
        _number(100 * same if isinstance(same, int | float) else None, 1),
        _number(figures.get("ppl_ratio"), 4),
        Cell(_said(verdict), _STYLES.get(verdict, "bad")),
    ]


def _said(verdict: str) -> Words:
    """The verdict, or `failed` where a state stands in its place."""
    from kvwise.results.called import VERDICTS  # noqa: PLC0415

    if verdict == "lossless":
        return phrase("lossless within noise")
    return VERDICTS.get(verdict, phrase("failed"))


def _number(value: object, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) else ""
