"""`kvwise size`: the ledger for exactly these settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._request import (
    DEVICE_OPTIONS,
    MODEL,
    SHAPE,
    companions_of,
    machine,
    model_of,
    read_launch,
    with_model,
)
from kvwise.cli.output import Printer
from kvwise.device import Host
from kvwise.errors import Refused, UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.memory.report import ledger_json
from kvwise.memory.reserves import keeping
from kvwise.options import Reading
from kvwise.text import phrase

EXIT_DOES_NOT_FIT = 3
_ENCODING = "utf-8-sig"  # Windows tools put a mark before the first line
_LONGEST_LINE = 1 << 20


@make_command(
    "Account for every byte of exactly these settings.\n\n"
    "Weights, KV cache, compute and output buffers, device by device. Exit code 3 if it does not "
    "fit or llama.cpp would refuse it.",
    MODEL,
    *DEVICE_OPTIONS,
    SHAPE,
    click.Option(
        ["--compute-mode"],
        type=click.Choice(["reserved", "no-alloc"]),
        default="reserved",
        help="Compute buffers as really reserved, or as llama.cpp's own --fit pass sees them.",
    ),
    click.Option(
        ["--configs"],
        metavar="FILE",
        help="Answer one configuration per line of a JSON-lines file (- = stdin), one line each; "
        "-md, --mmproj, --lora, -cram and the like count for every line.",
    ),
    click.Option(["--explain"], is_flag=True, help="Say the rule behind every figure."),
    examples=(
        'kvwise size model.gguf -c 32768 -ctk q8_0 -ctv q8_0 --gpu "RTX 4060"',
        "kvwise size hf:Qwen/Qwen3-8B-GGUF:Q4_K_M -c 8192 -ngl 30 --gpu 6GiB --explain",
    ),
)
def command(
    printer: Printer,
    *,
    words: list[str],
    model: str | None,
    shape: str | None,
    compute_mode: str,
    configs: str | None,
    explain: bool,
    **devices: Any,
) -> int:
    ref, reading = read_launch(words, model)
    if configs is not None:
        asked = _Asked.of(printer, reading, compute_mode)
        return size_configs(printer, model_of(ref, shape), configs, asked)
    described = model_of(ref, shape)
    on = machine(**devices)
    ledger = account(
        described,
        with_model(reading.launch, ref, described),
        on.devices,
        host=on.host,
        compute_mode="no-alloc" if compute_mode == "no-alloc" else "reserved",
        companions=companions_of(reading.launch),
    )
    ledger = keeping(ledger)
    if printer.json:
        document = ledger_json(ledger, printer.language)
        printer.document(document | {"speed": _speed_json(ledger, on.host, printer.language)})
    else:
        from kvwise.cli._ledger_view import show_ledger  # noqa: PLC0415  (not needed for --json)

        for note in reading.notes:
            printer.remark(note)
        show_ledger(printer, ledger, explain=explain)
        _say_speed(printer, ledger, on.host)
    return 0 if ledger.fits else EXIT_DOES_NOT_FIT


def _say_speed(printer: Printer, ledger: Ledger, host: Host) -> None:
    """How fast it is with a full slot, if it fits and that is known."""
    from kvwise.plan.speed import estimate  # noqa: PLC0415  (reads the catalogue)
    from kvwise.plan.speed.words import sentence  # noqa: PLC0415

    if ledger.fits and ledger.model.header.tensor_bytes:
        said = sentence(estimate(ledger, ledger.context.n_ctx_seq, host=host))
        if said is not None:
            printer.text(said, "dim")


def _speed_json(ledger: Ledger, host: Host, language: str) -> dict[str, Any] | None:
    """The `speed` object with a full slot; None for a model without weights."""
    from kvwise.plan.speed import estimate  # noqa: PLC0415
    from kvwise.plan.speed.document import speed_json  # noqa: PLC0415

    if not ledger.model.header.tensor_bytes:
        return None
    return speed_json(estimate(ledger, ledger.context.n_ctx_seq, host=host), language)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says for all lines of `--configs`: what stands beside the model, and
    what a line that is silent has for build and compute mode."""

    defaults: dict[str, Any] = field(default_factory=dict)
    beside: Launch | None = None
    companions: Companions = NONE

    @classmethod
    def of(cls, printer: Printer, reading: Reading, compute_mode: str) -> _Asked:
        from kvwise.memory.zoo_config import BESIDE  # noqa: PLC0415

        launch, plain = reading.launch, Launch()
        for name, flag in reading.origins.items():
            if name not in (*BESIDE, "model", "build", "tool") and flag.startswith("-"):
                printer.remark(
                    phrase("{flag} is left out: each line has its own settings", flag=flag)
                )
        defaults = {"compute_mode": compute_mode}
        if "build" in reading.origins:
            defaults["engine_build"] = launch.build
        if all(getattr(launch, name) == getattr(plain, name) for name in BESIDE):
            return cls(defaults)
        return cls(defaults, launch, companions_of(launch))


def size_configs(printer: Printer, model: Model, path: str, asked: _Asked) -> int:
    """One ledger, refusal or error per line; 2 if a line was not a configuration."""
    from kvwise.cli._main import as_kvwise_error  # noqa: PLC0415  (it finds this module)

    code = 0
    name = "--configs" if path == "-" else path
    with _lines(path) as lines:
        for number, text in lines:
            if not text.strip():
                continue
            try:
                answer = _of_config(printer, model, text, asked)
            except Refused as refused:
                answer = printer.error_document(refused)
            except Exception as error:  # noqa: BLE001  (one line must not end the stream)
                known = as_kvwise_error(error)
                known.phrase = phrase(
                    "{path}, line {number}: {problem}",
                    path=name, number=number, problem=known.phrase,
                )  # fmt: skip
                answer = printer.error_document(known)
                code = known.exit_code
            printer.json_line(answer)
    return code


def _of_config(printer: Printer, model: Model, text: str, asked: _Asked) -> dict[str, Any]:
    from kvwise.memory.zoo_config import read_config  # noqa: PLC0415

    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("not JSON: {why}", why=str(error)) from None
    if not isinstance(fields, dict):
        raise UsageError("a configuration is a JSON object, not {kind}", kind=type(fields).__name__)
    config = read_config(asked.defaults | fields, asked.beside)
    ledger = account(
        model,
        config.launch,
        config.devices,
        compute_mode=config.compute_mode,
        companions=asked.companions,
    )
    return ledger_json(ledger, printer.language)


@contextmanager
def _lines(path: str) -> Iterator[Iterator[tuple[int, str]]]:
    if path == "-":
        if sys.stdin is None:  # kvwise was started with it closed
            raise UsageError("there is nothing to read: stdin is closed")
        if hasattr(sys.stdin, "reconfigure"):  # whatever the locale, JSON is UTF-8
            sys.stdin.reconfigure(encoding=_ENCODING, errors="replace")
        yield _short(sys.stdin)
    else:
        with Path(path).open(encoding=_ENCODING, errors="replace") as file:
            yield _short(file)


def _short(file: TextIO) -> Iterator[tuple[int, str]]:
    """Lines one by one with their numbers; a file without line ends must not fill the memory."""
    for number, text in enumerate(iter(lambda: file.readline(_LONGEST_LINE), ""), 1):
        if len(text) == _LONGEST_LINE and not text.endswith("\n"):
            raise UsageError(
                "line {number} is longer than {count:,} characters",
                number=number, count=_LONGEST_LINE,
            )  # fmt: skip
        yield number, text
