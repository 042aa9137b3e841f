"""A log in any form -> its diagnosis, one for each load it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kvwise.diagnose.case import Builder, Case
from kvwise.diagnose.finding import Diagnosis, Finding
from kvwise.diagnose.judge import judge
from kvwise.diagnose.scan import Said, Scanner

if TYPE_CHECKING:
    from kvwise.device import Device, Host
    from kvwise.gguf.model import Model
    from kvwise.launch import Launch

_CHUNK = 1 << 20
_FIRST_CHUNK = 1 << 16

Log = str | bytes | Path | BinaryIO | Iterable[str] | Iterable[bytes]


def diagnose(
    log: Log,
    *,
    model: Model | None = None,
    launch: Launch | None = None,
    settings: Mapping[str, object] | None = None,
    devices: Sequence[Device] = (),
    host: Host | None = None,
    exit_code: int | None = None,
    numbers: bool = True,
) -> Diagnosis:
    """What a log says went wrong.

    `log` is its text, its lines, bytes, pieces of bytes, an open binary file, or a path. `model`,
    `launch`, `devices` and `host` say what the log may not; without them it is read from the log as
    far as it goes. `settings` are fields of the launch that are known better than the log tells
    them; the others stay as the log has them. `exit_code` is the process' status, if it is known
    (negative or 128 + n for a signal): a system that takes memory away leaves no word in the log.
    With `numbers` False nothing is recomputed. Raises OSError for a file that cannot be read.
    """
    scanner = Scanner()
    builder = Builder()
    for chunk in _chunks(log):
        for record in scanner.feed(chunk):
            builder.add(record)
    for record in scanner.close():
        builder.add(record)
    builder.ended(exit_code)
    found = of_cases(builder.cases, scanner.said)
    if not numbers:
        return found
    from kvwise.diagnose.numbers import with_numbers  # noqa: PLC0415  (the arithmetic is large)

    return with_numbers(
        found, model=model, launch=launch, settings=settings, devices=devices, host=host
    )


def of_cases(cases: Sequence[Case], said: Said) -> Diagnosis:
    """One diagnosis for all loads of a log; each is in `loads` when there are several."""
    for case in cases:
        case.said = Said(said.lines, said.tail, said.suspects)
    each = [judge(case) for case in cases]
    if len(each) == 1:
        return each[0]
    main = _main(each)
    kinds: dict[str, Finding] = {}
    for one in (main, *reversed(each)):
        for finding in one.findings:
            known = kinds.get(finding.kind)
            if known is None:
                kinds[finding.kind] = finding
    ordered = [*main.findings]
    rest = [kinds[kind] for kind in kinds if kind not in {f.kind for f in main.findings}]
    ordered += sorted(rest, key=lambda finding: -finding.confidence)
    ordered.sort(key=lambda finding: -finding.confidence)
    return replace(main, findings=tuple(ordered), loads=tuple(each))


def _main(each: Sequence[Diagnosis]) -> Diagnosis:
    """The load that matters: the last that a rule blames, else the last."""
    blamed = [one for one in each if any(not found.guessed for found in one.blamed)]
    sure = [one for one in blamed if one.blamed[0].confidence >= 0.6 and one.blamed[0].reason_known]
    return (sure or blamed or list(each))[-1]


def _chunks(log: Log) -> Iterable[bytes]:
    if isinstance(log, str):
        yield log.encode("utf-8", "surrogateescape")
    elif isinstance(log, bytes):
        yield log
    elif isinstance(log, Path):
        with log.open("rb") as file:
            yield from _pieces(file)
    elif hasattr(log, "read"):
        yield from _pieces(log)  # type: ignore[arg-type]
    else:
        for piece in log:
            if isinstance(piece, str):
                text = piece if piece.endswith("\n") else piece + "\n"
                yield text.encode("utf-8", "surrogateescape")
            else:
                yield piece


def _pieces(file: BinaryIO) -> Iterable[bytes]:
    size = _FIRST_CHUNK
    while chunk := file.read(size):
        yield chunk
        size = _CHUNK
