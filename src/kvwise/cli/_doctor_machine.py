"""`kvwise doctor` without a log: this machine, one line per thing that was looked at."""

from __future__ import annotations

from kvwise.cli.output import Printer
from kvwise.diagnose.machine import Check, checks
from kvwise.text import Phrase, phrase, template

SCHEMA = "kvwise/machine/1"
_STYLES = {"good": "good", "note": "", "warn": "warn", "bad": "bad"}
_MARKS = {"good": "ok", "note": "-", "warn": "!", "bad": "!!"}
_NAMES = {
    "engine": template("engine"), "build": template("build"), "device": template("device"),
    "devices": template("devices"), "driver": template("driver"), "memory": template("memory"),
    "limit": template("limit"), "variable": template("variable"), "programs": template("programs"),
}  # fmt: skip


def check_machine(printer: Printer, engine: str | None) -> bool:
    """Print every check; True if something is wrong."""
    with printer.working(phrase("looking at this machine")):
        found = list(checks(engine))
    if printer.json:
        printer.document({"schema": SCHEMA, "checks": [_plain(printer, each) for each in found]})
    else:
        for each in found:
            name: Phrase | str = phrase(_NAMES[each.name]) if each.name in _NAMES else each.name
            printer.text(
                phrase("{mark} {name}: {said}", mark=_MARKS[each.level].ljust(2), name=name,
                       said=each.said), _STYLES[each.level],
            )  # fmt: skip
            if each.hint:
                printer.text(phrase("     {hint}", hint=each.hint), "dim")
    return any(each.level in ("warn", "bad") for each in found)


def _plain(printer: Printer, each: Check) -> dict[str, object]:
    return {
        "name": each.name,
        "level": each.level,
        "message": printer.say(each.said),
        "hint": printer.say(each.hint) if each.hint else None,
    }
