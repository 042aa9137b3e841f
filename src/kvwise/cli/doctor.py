"""`kvwise doctor`: what a log says went wrong, and what to do; or how this machine is."""

from __future__ import annotations

import codecs
import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._request import DEVICE_OPTIONS, machine, model_of, read_launch
from kvwise.cli.output import Printer
from kvwise.errors import SourceError, UsageError
from kvwise.oserrors import reason_of
from kvwise.text import Phrase, phrase, template

if TYPE_CHECKING:
    from kvwise.device import Device, Host
    from kvwise.diagnose import Diagnosis
    from kvwise.gguf.model import Model

EXIT_FOUND = 3
_NOT_LOGS = frozenset({".gguf", ".bin", ".safetensors", ".zip", ".png", ".jpg", ".pdf", ".so",
                       ".exe", ".dll", ".py", ".pyc", ".db"})  # fmt: skip
_MOST_FILES = 1000
_PIECE = 1 << 20
_SAMPLE = 4096
_CONTROLS = "\t\n\r\v\f\b\x1b"
_ODD = 0.3
"""Share of characters that are none: a log in another encoding has fewer, other files have more."""
_GZIP = b"\x1f\x8b"
_NO_LOGS: dict[bytes, tuple[str, str]] = {
    b"GGUF": (template("{path} is a model, not a log"), template("-m names the model")),
    b"\x7fELF": (template("{path} is a program, not a log"), template("keep what it says")),
    b"MZ\x90\0": (template("{path} is a program, not a log"), template("keep what it says")),
    b"PK\x03\x04": (template("{path} is packed"), template("unpack it first")),
    b"\x28\xb5\x2f\xfd": (template("{path} is packed"), template("unpack it first")),
    b"\xfd7zX": (template("{path} is packed"), template("unpack it first")),
    b"BZh9": (template("{path} is packed"), template("unpack it first")),
    b"SQLi": (template("{path} is a database, not a log"), template("name the log beside it")),
}  # fmt: skip
"""How files begin that people take for a log -> what they are, and what to do."""


@make_command(
    "Say from a log what failed, why, and what to do.\n\n"
    "LOG is a file, a folder, or - for standard input: what llama.cpp, Ollama, LM Studio, LocalAI, "
    "llama-cpp-python or text-generation-webui printed, whole or in parts, of any size. With the "
    "model (-m) and its flags the ledger is recomputed, and a plan that fits is made. Without LOG "
    "this machine is checked: engine, devices, memory, variables that change a run.",
    click.Argument(["log"], required=False),
    click.Option(
        ["--fail-on-findings"],
        is_flag=True,
        help="Exit code 3 if something is wrong; warnings that are harmless do not count.",
    ),
    click.Option(
        ["--exit-code"],
        type=int,
        metavar="N",
        help="How the process ended, if you know: -9 or 137 was killed, -11 or 139 crashed.",
    ),
    click.Option(
        ["--engine"],
        metavar="PATH",
        help="Without LOG: the llama-server to check [default: as for other commands].",
    ),
    *DEVICE_OPTIONS,
    examples=(
        "kvwise doctor server.log",
        "kvwise doctor server.log -m model.gguf -c 32768 --gpu 'RTX 4060'",
        "docker logs llama 2>&1 | kvwise doctor - --json",
        "kvwise doctor",
    ),
)
def command(
    printer: Printer,
    *,
    words: list[str],
    log: str | None,
    fail_on_findings: bool,
    exit_code: int | None,
    engine: str | None,
    **devices: Any,
) -> int:
    if log is None:
        from kvwise.cli._doctor_machine import check_machine  # noqa: PLC0415

        bad = check_machine(printer, engine)
        return EXIT_FOUND if bad and fail_on_findings else 0
    from kvwise.diagnose import diagnose  # noqa: PLC0415

    model, settings, given = _asked(words, devices)
    found: dict[str, Diagnosis] = {}
    unread: dict[str, Phrase] = {}
    names = _names(log)
    for name in names:
        try:
            found[name] = diagnose(
                _not_empty(_stdin() if name == "-" else _file(name), name, exit_code),
                model=model,
                settings=settings,
                devices=given[0],
                host=given[1],
                exit_code=exit_code,
            )
        except (OSError, SourceError) as error:
            if len(names) == 1:
                raise
            unread[name] = _why(name, error)
    if unread and not found:
        raise SourceError("{why}", why=next(iter(unread.values())))
    if not found:
        raise SourceError("{path} holds no file that could be a log", path=log)
    _show(printer, found, unread)
    blamed = any(not one.guessed for each in found.values() for one in each.blamed)
    return EXIT_FOUND if blamed and fail_on_findings else 0


def _why(name: str, error: OSError | SourceError) -> Phrase:
    """Why one file of a folder was left out."""
    if isinstance(error, SourceError):
        return error.phrase
    return phrase("{path}: {reason}", path=name, reason=reason_of(error))


def _show(printer: Printer, found: dict[str, Diagnosis], unread: dict[str, Phrase]) -> None:
    from kvwise.diagnose.document import diagnosis_json  # noqa: PLC0415

    if printer.json:
        name, first = max(found.items(), key=lambda each: _weight(each[1]))
        document = diagnosis_json(first, printer.language)
        if len(found) > 1 or unread:
            document["path"] = name
            document["files"] = [
                {"path": path, **diagnosis_json(each, printer.language)}
                for path, each in found.items()
            ]
        document["unread"] = [
            {"path": path, "reason": printer.say(why)} for path, why in unread.items()
        ]
        printer.document(document)
        return
    from kvwise.cli._doctor_view import show_diagnosis  # noqa: PLC0415  (not needed for --json)

    for number, (name, each) in enumerate(found.items()):
        if number:
            printer.text()
        show_diagnosis(printer, each, name if len(found) > 1 else None)
    for why in unread.values():
        printer.text(phrase("left out: {why}", why=why), "warn")


def _weight(found: Diagnosis) -> float:
    return found.blamed[0].confidence if found.blamed else 0.0


def _asked(
    words: list[str], devices: dict[str, Any]
) -> tuple[Model | None, dict[str, object], tuple[tuple[Device, ...], Host | None]]:
    """The model and what its flags set on the line, and the devices if any were named.

    What this shell's variables set is not what the log's engine got.
    """
    ref, reading = read_launch(words, None)
    named = any(devices[name] for name in ("gpu", "cpu_only", "device_file", "ram"))
    on = (
        machine(**devices | {"cpu_only": devices["cpu_only"] or not devices["gpu"]})
        if named
        else None
    )
    given: tuple[tuple[Device, ...], Host | None] = (on.devices, on.host) if on else ((), None)
    settings = {
        name: getattr(reading.launch, name)
        for name, origin in reading.origins.items()
        if name != "model" and origin.startswith("-")
    }
    return model_of(ref) if ref else None, settings, given


def _names(log: str) -> list[str]:
    """The files that are meant: one, or all of a folder that can be logs."""
    if log in ("-", ""):  # "" is no folder, though a path makes it the one we are in
        return [log]
    path = Path(log)
    if not path.is_dir():
        return [log]
    files = sorted(each for each in path.rglob("*") if each.is_file())
    names = [str(each) for each in files if each.suffix.lower() not in _NOT_LOGS]
    if len(names) > _MOST_FILES:
        raise UsageError("{path} holds {count} files", path=log, count=len(names),
                         hint="name one of them, or a folder with at most 1000")  # fmt: skip
    return names


def _not_empty(pieces: Iterator[bytes], name: str, exit_code: int | None) -> Iterator[bytes]:
    """The pieces; nothing at all is no log, unless how the process ended is known."""
    first = next((piece for piece in pieces if piece), None)
    if first is None and exit_code is None:
        hint = "if the engine wrote nothing, say how it ended: --exit-code N"
        raise SourceError("{path} is empty", path=_shown(name), hint=hint)
    if first is not None:
        yield first
        yield from pieces


def _shown(name: str) -> str | Phrase:
    return phrase("standard input") if name == "-" else name


def _stdin() -> Iterator[bytes]:
    if sys.stdin is None:
        raise UsageError("standard input is closed", hint="name a file instead of -")
    yield from _pieces(sys.stdin.buffer, "-")


def _file(name: str) -> Iterator[bytes]:
    if not os.path.lexists(name):
        raise SourceError("there is no file {path}", path=name)
    with open(name, "rb") as file:  # noqa: PTH123  (Path("") would be the folder)
        if file.peek(2)[:2] == _GZIP:
            yield from _unpacked(file, name)
        else:
            yield from _pieces(file, name)


def _unpacked(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The bytes in a gzip file; one that was cut off is a log that was cut off."""
    whole = bytearray()
    try:
        with gzip.open(file, "rb") as packed:
            while piece := packed.read1(_PIECE):  # `read` would lose what comes before the cut
                whole += piece
                if len(whole) >= _PIECE:
                    yield bytes(whole)
                    whole.clear()
    except EOFError:
        pass
    except (gzip.BadGzipFile, zlib.error):
        raise SourceError("{path} is damaged: its packed data cannot be read", path=name) from None
    yield bytes(whole)


def _pieces(file: BinaryIO, name: str) -> Iterator[bytes]:
    begun = False
    while piece := file.read(_PIECE):
        if not begun:
            _no_log(piece, name)
        begun = True
        yield piece


def _no_log(begins: bytes, name: str) -> None:
    """Raise SourceError for what begins as no log does."""
    if begins[:4] in _NO_LOGS:
        what, hint = _NO_LOGS[begins[:4]]
        raise SourceError(what, hint=hint, path=name)
    sample = begins[:_SAMPLE]
    if sample[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or _half_zeros(sample):
        return  # UTF-16, as shells of Windows write it
    text = sample.decode("utf-8", "replace")
    odd = sum(char == "\ufffd" or (char < " " and char not in _CONTROLS) for char in text)
    if odd > _ODD * len(text):
        raise SourceError(
            "{path} is no text", path=_shown(name), hint="name what the engine printed"
        )


def _half_zeros(sample: bytes) -> bool:
    return max(sample[::2].count(0), sample[1::2].count(0)) > len(sample) // 6
