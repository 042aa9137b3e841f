"""What a command that is replaced asked for beside memory: `--jinja` and the like stay."""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.export.settings import Settings, spoken
from kvwise.options.row import SERVER
from kvwise.options.table import normal, spellings


def kept(
    old: Sequence[str], settings: Settings, own: frozenset[str] = frozenset()
) -> list[tuple[str, ...]]:
    """The options of an old command, each with its values, that the new one does not decide.

    Options that set memory are the plan's; `own` are long names that the target sets itself. What
    llama.cpp does not know stays as well: a fork may.
    """
    known = spellings(SERVER)
    said = {each.option for each in spoken(settings)}
    found: list[tuple[str, ...]] = []
    at = 0
    while at < len(old):
        word = old[at]
        option = known.get(normal(word))
        values = _values(old, at + 1) if option is None else option.kind.takes
        whole = tuple(old[at : at + 1 + values])
        at += 1 + values
        if option is None:
            found += [whole] if word.startswith("-") else []
        elif option.passed_on and option not in said and option.name not in own:
            found.append(whole)
    return found


def _values(words: Sequence[str], begin: int) -> int:
    count = 0
    for word in words[begin:]:
        if word.startswith("-"):
            break
        count += 1
    return count
