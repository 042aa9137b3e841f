"""`kvwise table`: any models on any GPUs, by context and by cache types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from kvwise.cli._build import of_zoo
from kvwise.cli._commands import command as make_command
from kvwise.cli._reporting import REPORT, check_report, write_report
from kvwise.cli._request import (
    DEVICE_OPTIONS,
    called,
    companions_of,
    model_of,
    read_launch,
    with_model,
    with_reserve,
)
from kvwise.cli._request import machine as machine_of
from kvwise.cli.output import Printer
from kvwise.device import Device, Host
from kvwise.errors import UsageError
from kvwise.options.kinds import CONTEXT
from kvwise.plan.table import Entry, Table, make_table, pairs_of, usual_contexts
from kvwise.plan.taken import Machine
from kvwise.text import phrase
from kvwise.units import parse_count, parse_size

FORMATS = ("text", "md", "csv", "json")
USUAL_TYPES = ("f16", "q8_0", "q4_0")
_MOST_MODELS, _MOST_CONTEXTS = 1000, 64


@make_command(
    "Compare models, GPUs, contexts and cache types in one table.\n\n"
    "How much each context takes and what share of the GPU that is; the longest context that "
    "keeps all layers on the GPU; and what a prompt leaves for the answer. Every --gpu is a "
    "machine of its own; GPUs joined by + work together.",
    click.Argument(["models"], nargs=-1, required=False, metavar="MODEL..."),
    click.Option(
        ["--contexts"],
        multiple=True,
        metavar="LIST",
        help="Contexts to list, like 4k,8k,32k [default: 4k and its doubles, or -c].",
    ),
    click.Option(
        ["--types"],
        multiple=True,
        metavar="LIST",
        help="Cache types, like f16,q8_0,q8_0/q4_0 (K/V) or all "
        "[default: f16,q8_0,q4_0, or -ctk and -ctv].",
    ),
    click.Option(["--prompt-tokens"], metavar="N", help="The prompt's length, if it is known."),
    click.Option(
        ["--past-training"],
        is_flag=True,
        help="Look for contexts beyond what a model was trained for, too.",
    ),
    click.Option(
        ["--layers"],
        is_flag=True,
        help="Where not all layers fit beside a context, say how many would.",
    ),
    click.Option(
        ["--format", "form"],
        type=click.Choice(FORMATS),
        default="text",
        help="Text with a heat map on a terminal, Markdown, CSV (a row per context), JSON.",
    ),
    REPORT,
    *DEVICE_OPTIONS,
    click.Option(
        ["--os", "system"],
        type=click.Choice(["linux", "windows", "macos"]),
        help="The system that GPUs of the catalogue run under [default: this one].",
    ),
    click.Option(
        ["--shape"],
        multiple=True,
        metavar="SHAPE",
        help="A model that is only numbers, layers x heads x head size: 24x16x48; see `kvwise "
        "size --help`. Repeatable.",
    ),
    examples=(
        'kvwise table model.gguf --gpu "RTX 4060" --gpu "RTX 4090" --types all',
        'kvwise table a.gguf b.gguf --gpu "GTX 1660 Ti" --contexts 4k,8k,16k,32k --format md',
    ),
)
def command(
    printer: Printer,
    *,
    words: list[str],
    models: Sequence[str],
    contexts: Sequence[str],
    types: Sequence[str],
    prompt_tokens: str | None,
    past_training: bool,
    layers: bool,
    form: str,
    report: str | None,
    system: str | None,
    shape: Sequence[str],
    **devices: Any,
) -> int:
    check_report(report)
    entries, origins = _entries(words, models, shape)
    launch = entries[0].launch
    if contexts:
        lengths = _counts(contexts)
    elif "n_ctx" in origins and launch.n_ctx:
        lengths = (launch.n_ctx,)
    else:
        lengths = usual_contexts([entry.model for entry in entries])
    given = {"type_k", "type_v"} & set(origins)
    pairs = pairs_of(types or ([f"{launch.type_k}/{launch.type_v}"] if given else USUAL_TYPES))
    machines = _machines(system=system, **devices)
    with printer.progress(phrase("models"), len(entries)) as progress:
        table = make_table(
            entries,
            machines,
            pairs,
            lengths,
            prompt_tokens=None if prompt_tokens is None else parse_count(prompt_tokens),
            past_training=past_training,
            layers=layers,
            progress=progress,
        )
    _show(printer, table, "json" if printer.json else form)
    if report is not None:
        from kvwise.report import table_report  # noqa: PLC0415

        write_report(printer, report, table_report(table))
    return 0


def _show(printer: Printer, table: Table, form: str) -> None:
    if form == "json":
        from kvwise.plan.table_report import table_json  # noqa: PLC0415

        printer.document(table_json(table, printer.language))
        return
    from kvwise.cli import _table_view as view  # noqa: PLC0415  (not needed for JSON)

    show = {"text": view.show_text, "md": view.show_markdown, "csv": view.show_csv}[form]
    show(printer, table)


def _entries(
    words: list[str], models: Sequence[str], shapes: Sequence[str]
) -> tuple[list[Entry], set[str]]:
    """The models with their launches, and the launch fields that were asked for."""
    measured = models[0] if models and all(map(of_zoo, models)) else None  # whose build is known
    ref, reading = read_launch(words, measured)
    refs = list(models) or ([ref] if ref and not shapes else [])
    if not refs and not shapes:
        model_of(None)  # raises: no model
    if len(refs) + len(shapes) > _MOST_MODELS:
        raise UsageError("a table of more than {most} models", most=_MOST_MODELS)
    launch = replace(reading.launch, fit=False)
    opened = [(each, model_of(each)) for each in refs]
    opened += [("", model_of(None, shape)) for shape in shapes]
    companions = companions_of(launch)
    entries = [
        Entry(model, with_model(launch, each, model), companions, called(model))
        for each, model in opened
    ]
    return entries, set(reading.origins)


def _machines(
    *,
    gpu: Sequence[str],
    cpu_only: bool,
    ram: str | None,
    reserve: str | None,
    device_file: str | None,
    system: str | None,
) -> list[Machine]:
    """The machine of a probe's file and every --gpu alone; neither: this machine.

    The memory of a host is a limit only where it is known.
    """
    if gpu and cpu_only:
        raise UsageError("--gpu and --cpu-only exclude each other")
    machines = []
    if device_file is not None or not gpu:
        there = machine_of((), cpu_only, ram, device_file=device_file)
        machines.append(Machine(there.devices, there.host))
    given = None if ram is None else Host.of(ram)
    machines += [Machine(_joined(text, system), given) for text in gpu]
    if reserve is None:
        return machines
    kept = parse_size(reserve)
    return [
        replace(each, devices=tuple(with_reserve(gpu, kept) for gpu in each.devices))
        for each in machines
    ]


def _joined(text: str, system: str | None) -> tuple[Device, ...]:
    """`RTX 3090 + RTX 3060`: GPUs of one machine."""
    return tuple(
        Device.of(part.strip(), os=system, index=index)
        for index, part in enumerate(text.split(" + "))
    )


def _counts(texts: Sequence[str]) -> tuple[int, ...]:
    """Contexts, each once, in order. Raises UsageError."""
    try:
        found = dict.fromkeys(CONTEXT.read(word) for text in texts for word in text.split(","))
    except UsageError as error:
        raise UsageError("{flag}: {problem}", flag="--contexts", problem=error.phrase,
                         hint=error.hint) from error  # fmt: skip
    if 0 in found:
        raise UsageError("a context of no tokens")
    if len(found) > _MOST_CONTEXTS:
        raise UsageError("more than {most} contexts", most=_MOST_CONTEXTS)
    return tuple(found)
