"""`kvwise results`: what was measured, to look at, compare and carry to another machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kvwise.cli._commands import command as make_command
from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.export import files as export_files
from kvwise.results import Measurement, compare, files, select, to_json
from kvwise.results.record import KINDS, STATES
from kvwise.results.select import Wanted
from kvwise.store import Store, as_it_is
from kvwise.text import phrase

_SHOWN = 100
_FORMATS = ("jsonl", "csv")


@dataclass(frozen=True, slots=True)
class Asked:
    """What stands on the command line, read."""

    words: tuple[str, ...]
    wanted: Wanted
    all: bool
    out: str | None
    form: str | None
    anonymous: bool
    report: str | None
    title: str | None


@make_command(
    "List, compare, report, export and import what was measured.\n\n"
    "`list` shows the newest; `show RESULT` everything about one; `compare A B` two builds, "
    "machines, models, settings (n_ubatch=512, q8_0/f16) or results, and whether they differ by "
    "more than noise; `report` draws them; `export` writes JSON lines or CSV; `import FILE...` "
    "takes another machine's JSON lines in, each result once.",
    click.Argument(["action"], type=click.Choice(
        ["list", "show", "compare", "report", "export", "import"])),
    click.Argument(["what"], nargs=-1, required=False, metavar="[WHAT...]"),
    click.Option(["--model"], metavar="NAME", help="Only of models with this in their name."),
    click.Option(["--kind"], type=click.Choice(KINDS), help="Only of this kind."),
    click.Option(["--engine"], metavar="BUILD",
                 help="Only by this build (b10605), tool (llama-bench), or binary, embedded."),
    click.Option(["--machine"], metavar="NAME", help="Only of machines with this name or id."),
    click.Option(["--state"], type=click.Choice(STATES), help="Only those that ended so."),
    click.Option(["--age"], metavar="AGE", help="Only newer than this: 12h, 7d, 4w."),
    click.Option(["--all", "everything"], is_flag=True, help="List more than the newest 100."),
    click.Option(["--out"], metavar="FILE", help="Write the export to a file."),
    click.Option(["--format", "form"], type=click.Choice(_FORMATS),
                 help="Of the export [default: by the end of --out, else jsonl]."),
    click.Option(["--anonymous"], is_flag=True,
                 help="Export without the machine's name and without folders."),
    click.Option(["--report"], metavar="FILE",
                 help="Write the report there: .html, .md, .png, .csv or .json."),
    click.Option(["--title"], metavar="TEXT", help="The report's title."),
    engine=False,
    examples=(
        "kvwise results list --kind speed --age 7d",
        "kvwise results compare b10605 b11549 --model SmolLM2",
        "kvwise results report --report speeds.html --model SmolLM2",
        "kvwise results export --out desk.jsonl",
    ),
)  # fmt: skip
def command(
    printer: Printer,
    *,
    action: str,
    what: Sequence[str],
    model: str | None,
    kind: str | None,
    engine: str | None,
    machine: str | None,
    state: str | None,
    age: str | None,
    everything: bool,
    out: str | None,
    form: str | None,
    anonymous: bool,
    report: str | None,
    title: str | None,
) -> int:
    age_s = None if age is None else select.seconds(age)
    wanted = Wanted(model or "", kind or "", engine or "", machine or "", state or "", age_s)
    asked = Asked(tuple(what), wanted, everything, out, form, anonymous, report, title)
    _only(action, out="export", form="export", report="report", title="report", given=asked)
    if what and action not in ("show", "compare", "import"):
        raise UsageError("one word too many: {word}", word=what[0][:80])
    with Store() as store:
        if store.read_only:
            printer.remark(as_it_is(store))
        return _ACTIONS[action](printer, store, asked)


def _only(action: str, *, given: Asked, **belongs: str) -> None:
    """An option of another action is a mistake, not nothing."""
    for name, wanted in belongs.items():
        if getattr(given, name) is not None and action != wanted:
            option = "format" if name == "form" else name
            raise UsageError("--{option} belongs to `kvwise results {wanted}`",
                             option=option, wanted=wanted)  # fmt: skip


def _found(store: Store, asked: Asked) -> list[Measurement]:
    """What the filters leave. Raises UsageError when that is nothing, although there is some."""
    found = select.select(store, asked.wanted)
    if not found and select.select(store, Wanted()):
        raise UsageError("no result is like that", hint="`kvwise results list` shows what there is")
    return found


def _some(store: Store, asked: Asked) -> list[Measurement]:
    """The same. Raises UsageError where nothing was measured either."""
    found = _found(store, asked)
    if not found:
        raise UsageError("nothing was measured yet", hint="`kvwise bench MODEL` measures")
    return found


def _list(printer: Printer, store: Store, asked: Asked) -> int:
    found = _found(store, asked)
    if printer.json:
        rows = [to_json(each) for each in found]
        printer.document({"schema": "kvwise/result-list/1", "results": rows})
        return 0
    from kvwise.cli import _results_view as view  # noqa: PLC0415

    if not found:
        printer.text(phrase("nothing was measured yet"))
        printer.remark(phrase("hint: `kvwise bench MODEL` measures"))
        return 0
    shown = found if asked.all else found[-_SHOWN:]
    view.show_list(printer, shown)
    if len(shown) < len(found):
        printer.remark(phrase("{count} older ones are not shown: --all", count=len(found) - _SHOWN))
    return 0


def _show(printer: Printer, store: Store, asked: Asked) -> int:
    if len(asked.words) != 1:
        raise UsageError(
            "the result to show is missing", hint="like `kvwise results show 3f2a91c0`"
        )
    found = select.starting(_found(store, asked), asked.words[0])
    if printer.json:
        rows = [to_json(each) for each in found]
        printer.document({"schema": "kvwise/result-list/1", "results": rows})
        return 0
    from kvwise.cli import _results_view as view  # noqa: PLC0415

    view.show_one(printer, found)
    return 0


def _compare(printer: Printer, store: Store, asked: Asked) -> int:
    found = _some(store, asked)
    first, second = compare.sides(found, asked.words)
    pairs = compare.pairs(found, first, second)
    if not pairs:
        raise UsageError(
            "{a} and {b} have no measurement in common", a=first.word, b=second.word,
            hint="the same settings of the same model must have been measured with both",
        )  # fmt: skip
    from kvwise.cli import _results_view as view  # noqa: PLC0415

    if printer.json:
        printer.document(view.comparison_json(first, second, pairs))
    else:
        view.show_comparison(printer, first, second, pairs)
    return 0


def _report(printer: Printer, store: Store, asked: Asked) -> int:
    from kvwise.cli._reporting import check_report, save_report  # noqa: PLC0415

    if asked.report is None:
        raise UsageError("the report's file is missing", hint="give --report report.html")
    check_report(asked.report)
    found = _some(store, asked)
    made = save_report(printer, asked.report, found, title=asked.title)
    if printer.json and made is not None:
        printer.document(dict(made.document))
    return 0


def _export(printer: Printer, store: Store, asked: Asked) -> int:
    form = asked.form or ("csv" if (asked.out or "").lower().endswith(".csv") else "jsonl")
    path = None if asked.out is None else Path(asked.out)
    if path is not None:
        export_files.check(path)
    found = _found(store, asked)
    if not found:
        printer.remark(phrase("nothing was measured yet"))
    if asked.anonymous:
        found = [files.anonymous(each) for each in found]
    text = files.csv_text(found) if form == "csv" else files.json_lines(found)
    if path is None:
        printer.content(text)
        return 0
    backup = _write(path, text)
    if printer.json:
        kept = str(backup) if backup else None
        printer.document({"schema": "kvwise/results-export/1", "file": str(path),
                          "results": len(found), "backup": kept})  # fmt: skip
        return 0
    printer.text(phrase("{path} is written: {count} results", path=str(path), count=len(found)))
    if backup:
        printer.remark(phrase("the file that was there is {backup}", backup=str(backup)))
    return 0


def _write(path: Path, text: str) -> Path | None:
    """The backup of a file that was there and is not the same."""
    content = text.encode("utf-8")
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return None
    return export_files.write(path, content)


def _import(printer: Printer, store: Store, asked: Asked) -> int:
    if not asked.words:
        raise UsageError(
            "the files to import are missing", hint="`kvwise results export` writes them"
        )
    count, new = files.merge(store, asked.words)
    if printer.json:
        printer.document({"schema": "kvwise/results-import/1", "results": count, "new": new})
    else:
        printer.text(phrase("{count} results, {new} of them new", count=count, new=new))
    return 0


_ACTIONS: dict[str, Callable[[Printer, Store, Asked], int]] = {
    "list": _list,
    "show": _show,
    "compare": _compare,
    "report": _report,
    "export": _export,
    "import": _import,
}
