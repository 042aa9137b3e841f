"""`kvwise export`: settings for a UI or launcher."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli._exporting import settings_for
from kvwise.cli._planning import GOAL_OPTIONS
from kvwise.cli._request import DEVICE_OPTIONS, ENGINE
from kvwise.cli._shapes import Column, Table
from kvwise.cli.output import Printer
from kvwise.errors import SourceError, UsageError
from kvwise.export import Written, files, names, target
from kvwise.export.settings import Settings, as_json
from kvwise.text import Phrase, phrase
from kvwise.units import show

EXPORT = "kvwise/export/1"


def _targets(_context: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    return [name for name in names() if name.startswith(begun)]


@make_command(
    "Write settings for a UI or launcher.\n\n"
    "They are planned as `plan` does, or taken as they are given. A file that is already there "
    "keeps its other models, keys and comments; a backup stays beside it. What the target cannot "
    "be told is said.",
    click.Argument(["target_name"], metavar="TARGET", required=False, shell_complete=_targets),
    click.Argument(["model"], metavar="MODEL", required=False),
    click.Option(["--list", "list_them"], is_flag=True, help="Show all targets."),
    click.Option(["--out"], metavar="FILE", help="Write the file instead of showing it."),
    click.Option(["--dry-run"], is_flag=True, help="Show what would change in the file of --out."),
    click.Option(["--name"], metavar="NAME", help="What the target calls the model."),
    click.Option(["--as-given"], is_flag=True, help="Take exactly the flags that are given."),
    click.Option(["--plan", "saved"], metavar="FILE",
                 help="Take a plan that `kvwise plan --json` printed."),
    click.Option(["--model-path"], metavar="PATH",
                 help="Where the model will be, if that is not where it is now."),
    click.Option(["--program"], metavar="PATH",
                 help="The llama-server to start there [default: llama-server]."),
    *GOAL_OPTIONS,
    *DEVICE_OPTIONS,
    ENGINE,
    examples=(
        'kvwise export llama-swap model.gguf --gpu "RTX 4060" --out config.yaml --dry-run',
        "kvwise export ollama model.gguf --as-given -c 8192 -ngl 30 -np 1",
    ),
)  # fmt: skip
def command(
    printer: Printer,
    *,
    target_name: str | None,
    list_them: bool,
    out: str | None,
    dry_run: bool,
    name: str | None,
    program: str | None,
    model_path: str | None,
    **options: Any,
) -> int:
    if list_them:
        return _show_targets(printer)
    if target_name is None:
        raise UsageError("no target", hint="`kvwise export --list` shows all")
    if dry_run and out is None:
        raise UsageError("--dry-run needs --out FILE")
    chosen = target(target_name)
    path = None if out is None else Path(out)
    if path is not None:
        files.check(path)
    old = None if path is None else files.read(path)
    if getattr(chosen, "SCRIPT", False):
        words = _plan_words(options)
        stand_ins: dict[str, Phrase] = {}
        written = chosen.write_script(_kvwise(), words, old.text if old else None)
        name = name or ""
    else:
        settings = settings_for(printer, name, program, model_path, options)
        written = _written(chosen, settings, path, old)
        if settings.misses_by_bytes:
            lacking = phrase("these settings do not fit here: {size} are missing",
                             size=show(settings.misses_by_bytes))  # fmt: skip
            written = replace(written, notes=(lacking, *written.notes))
        stand_ins = _stand_ins(settings, written.text)
        written = replace(written, notes=(*stand_ins.values(), *written.notes))
        name = settings.name
    outcome = _store(chosen, written, path, old, dry=dry_run)
    place = _place(chosen, out or chosen.FILE, name)
    _report(printer, (target_name, name), place, written, outcome, stand_ins=list(stand_ins))
    return 0


def _stand_ins(settings: Settings, text: str) -> dict[str, Phrase]:
    """What stands in the text for a file that is not here, and what to do about it."""
    shown: dict[str, list[str]] = {}
    for each in settings.stand_ins:
        shown.setdefault(each.shown_in(text), []).append(each.flag)
    return {
        name: phrase("{name} stands for a file whose header alone is known: put its path there, "
                     "or give it with {flag}", name=name, flag=", ".join(flags))
        for name, flags in shown.items() if name
    }  # fmt: skip


def _store(
    chosen: ModuleType, written: Written, path: Path | None, old: files.Old | None, *, dry: bool
) -> Outcome:
    """Write the file if there is one to write and it changes."""
    content = _bytes(chosen, written, old)
    outcome = Outcome(path, old.text if old else None, written.text, None, written=False)
    if path is None or dry or not outcome.changed:
        return outcome
    return replace(outcome, backup=files.write(path, content), written=True)


def _written(
    chosen: ModuleType, settings: Settings, path: Path | None, old: files.Old | None
) -> Written:
    try:
        made = chosen.write(settings, old.text if old else None)
    except SourceError as error:
        raise SourceError("{path}: {problem}; nothing was changed", path=str(path),
                          problem=error.phrase, hint=error.hint) from error  # fmt: skip
    assert isinstance(made, Written)  # noqa: S101  (a target that makes another thing is our bug)
    return made


def _bytes(chosen: ModuleType, written: Written, old: files.Old | None) -> bytes:
    try:
        return files.encode(
            written.text,
            old,
            encoding=getattr(chosen, "ENCODING", "utf-8"),
            newline=getattr(chosen, "NEWLINE", "\n"),
        )
    except UnicodeEncodeError:
        raise UsageError("a file name that is not Unicode cannot be written there") from None


def _kvwise() -> list[str]:
    """How a script starts this very kvwise."""
    return [sys.executable, "-m", "kvwise"]


def _plan_words(options: dict[str, Any]) -> list[str]:
    """The options of a plan as they would be typed again, for a script that plans later."""
    words: list[str] = []
    for option in (*GOAL_OPTIONS, *DEVICE_OPTIONS, ENGINE):
        value = options.get(option.name or "")
        for each in value if isinstance(value, tuple) else (value,):
            if each is True:
                words.append(option.opts[-1])
            elif each not in (None, False):
                words += [option.opts[-1], str(each)]
    return [*words, *options["words"]]


def _show_targets(printer: Printer) -> int:
    found = [(name, target(name)) for name in names()]
    if printer.json:
        rows = [
            {
                "target": name,
                "about": printer.say(phrase(each.ABOUT)),
                "file": each.FILE,
                "place": printer.say(_place(each, each.FILE)),
            }
            for name, each in found
        ]
        printer.document({"schema": "kvwise/export-targets/1", "targets": rows})
        return 0
    columns = [Column(phrase("target")), Column(phrase("what is written"))]
    printer.table(Table(columns, [[name, phrase(each.ABOUT)] for name, each in found]))
    return 0


def _place(chosen: ModuleType, file: str, name: str = "NAME") -> Phrase:
    return phrase(chosen.PLACE, file=file, name=name, model="MODEL.gguf")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a file (`path` None: the text is only shown)."""

    path: Path | None
    old: str | None
    new: str
    backup: Path | None
    written: bool

    @property
    def changed(self) -> bool:
        return self.old is None or self.old != self.new

    @property
    def diff(self) -> str:
        return files.diff(self.path, self.old, self.new) if self.path and self.changed else ""


def _report(
    printer: Printer,
    called: tuple[str, str],
    place: Phrase,
    written: Written,
    outcome: Outcome,
    *,
    stand_ins: list[str],
) -> None:
    if printer.json:
        printer.document({
            "schema": EXPORT,
            "target": called[0],
            "name": called[1],
            "file": str(outcome.path) if outcome.path else None,
            "changed": outcome.changed,
            "written": outcome.written,
            "backup": str(outcome.backup) if outcome.backup else None,
            "text": outcome.new,
            "diff": outcome.diff,
            "left_out": as_json(written.left_out, printer.say),
            "notes": [printer.say(note) for note in written.notes],
            "stand_ins": stand_ins,
            "place": printer.say(place),
            "values": dict(written.values),
        })  # fmt: skip
        return
    if outcome.path is None:
        printer.content(outcome.new)
    elif outcome.changed and not outcome.written:
        printer.content(outcome.diff)
    else:
        printer.text(_outcome(outcome.path, outcome))
    for each in written.left_out:
        flags = " ".join(each.words)
        printer.remark(phrase("left out: {flags}: {why}", flags=flags, why=each.why), "warn")
    for note in written.notes:
        printer.remark(note)
    printer.remark(place)


def _outcome(path: Path, outcome: Outcome) -> Phrase:
    if not outcome.changed:
        return phrase("{path} says so already", path=str(path))
    if outcome.backup is None:
        return phrase("{path} is written", path=str(path))
    return phrase("{path} is changed; the old one is {backup}",
                  path=str(path), backup=str(outcome.backup))  # fmt: skip
