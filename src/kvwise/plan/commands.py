"""A command line as each shell must see it, so that it can be pasted.

Rules: POSIX sh quoting; PowerShell `about_Quoting_Rules` and `about_Parsing` (7.3 and later pass
embedded double quotes on untouched); cmd.exe's own `^` and `%`, around the rules by which a
Windows program splits its command line (CommandLineToArgvW).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

_POWERSHELL_SAFE = re.compile(
    r"^(?:--?[A-Za-z][A-Za-z0-9-]*|-?[0-9]+|[A-Za-z0-9_/\\][\w/\\:.=+-]*)$", re.ASCII
)
_POWERSHELL_QUOTES = re.compile("(['\u2018\u2019\u201a\u201b])")
_CMD_SAFE = re.compile(r"^[\w./\\:=+,@~-]+$")
_CMD_SPECIAL = re.compile(r'([()%!^"<>&|])')


def bash(argv: Sequence[str]) -> str:
    """For bash, zsh and every POSIX shell."""
    return shlex.join(argv)


def powershell(argv: Sequence[str]) -> str:
    """For Windows PowerShell and PowerShell 7."""
    words = [powershell_word(word) for word in argv]
    call = "& " if words and words[0] != argv[0] else ""
    return call + " ".join(words)


def powershell_word(word: str) -> str:
    """One argument as PowerShell must see it."""
    if _POWERSHELL_SAFE.match(word):
        return word
    # PowerShell ends a single-quoted string at a typographic quote too
    return "'" + _POWERSHELL_QUOTES.sub(r"\1\1", word) + "'"


def cmd(argv: Sequence[str]) -> str:
    """For the cmd.exe prompt (a batch file needs `%%` for each `%`)."""
    return " ".join(cmd_word(word) for word in argv)


def cmd_word(word: str) -> str:
    """One argument as the cmd.exe prompt must see it."""
    if _CMD_SAFE.match(word):
        return word
    # backslashes count double before a quote, and so at the end, before the closing one
    quoted = re.sub(r'(\\*)"', r'\1\1\\"', word)
    quoted = '"' + re.sub(r"(\\+)$", r"\1\1", quoted) + '"'
    if not re.search(r'[%!"]', word):
        return quoted  # inside plain quotes cmd leaves ^ & | < > ( ) alone
    return _CMD_SPECIAL.sub(r"^\1", quoted)


def all_shells(argv: Sequence[str]) -> dict[str, object]:
    """The `commands` object of kvwise/plan/1."""
    return {
        "bash": bash(argv),
        "powershell": powershell(argv),
        "cmd": cmd(argv),
        "argv": list(argv),
    }
