"""A batch file for cmd.exe."""

from __future__ import annotations

from kvwise.errors import UsageError
from kvwise.export import Written, _block, _script
from kvwise.export.settings import Settings, one_line
from kvwise.plan import commands
from kvwise.text import phrase, template

ABOUT = template("a batch file for cmd.exe")
FILE = "start.bat"
PLACE = template("double-click it, or run it from a prompt")
NEWLINE = "\r\n"

_LONGEST = 8191  # characters of a command line, from Microsoft's documentation of cmd
_HEAD = "@echo off\nsetlocal DisableDelayedExpansion\nchcp 65001 >nul\n"


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is not kvwise's, UsageError for what cmd cannot hold."""
    lines = [[_word(word) for word in words] for words in _script.lines(settings)]
    body = " ^\n  ".join([*(" ".join(words) for words in lines), "%*"]) + "\n"
    if len(body) > _LONGEST:
        raise UsageError("a command of cmd.exe has at most {most:,} characters, this one {count:,}",
                         most=_LONGEST, count=len(body))  # fmt: skip
    block = f"rem {_script.about(settings)}\n{body}"
    return Written(_block.merge(old, block, settings.name, comment="rem", head=_HEAD))


def _word(word: str) -> str:
    """A word of a batch file, where a percent sign is written twice."""
    return commands.cmd_word(one_line(word, phrase("a batch file"))).replace("%", "%%")
