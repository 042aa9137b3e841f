"""A part of a script that is kvwise's: written between two comments, replaced there later."""

from __future__ import annotations

import re

from kvwise.errors import SourceError


def merge(old: str | None, block: str, name: str, *, comment: str, head: str = "") -> str:
    """The script with the block of that name in it; a new script starts with `head`.

    (No `<` or `>` in the comments: cmd.exe takes them for redirections even there.)
    Raises SourceError for a script that has no such block: two commands that each start a server
    cannot be put into one.
    """
    begin, end = f"{comment} --- kvwise {name} begins", f"{comment} --- kvwise {name} ends"
    mine = f"{begin}\n{block}{end}\n"
    if old is None or not old.strip():
        return head + mine
    lines = old.splitlines(keepends=True)
    marks = [at for at, line in enumerate(lines) if line.strip() in (begin, end)]
    if len(marks) != 2 or lines[marks[0]].strip() != begin:
        if re.search(rf"^{re.escape(comment)} --- kvwise ", old, re.MULTILINE):
            raise SourceError(
                "the script starts another model", hint="give --name or another --out"
            )
        raise SourceError("the script was not written by kvwise", hint="give another --out")
    return "".join(lines[: marks[0]]) + mine + "".join(lines[marks[1] + 1 :])
