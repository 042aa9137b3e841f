"""A script for Windows PowerShell and PowerShell 7."""

from __future__ import annotations

from kvwise.export import Written, _block, _script
from kvwise.export.settings import Settings, spoken
from kvwise.plan import commands
from kvwise.text import phrase, template

ABOUT = template("a script for Windows PowerShell and PowerShell 7")
FILE = "start.ps1"
PLACE = template("run it with `powershell -ExecutionPolicy Bypass -File {file}`")
ENCODING = "utf-8-sig"  # Windows PowerShell takes a file without the mark for the ANSI code page
NEWLINE = "\r\n"


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a script that is not kvwise's."""
    parts = [" ".join(map(commands.powershell_word, words)) for words in _script.lines(settings)]
    body = "& " + " `\n  ".join([*parts, "@args"]) + "\n"
    block = f"# {_script.about(settings)}\n{body}"
    notes = []
    if any('"' in word or not word for each in spoken(settings) for word in each.words):
        notes.append(phrase("an argument with a double quote reaches programs only from "
                            "PowerShell 7.3 on"))  # fmt: skip
    return Written(_block.merge(old, block, settings.name, comment="#"), notes=tuple(notes))
