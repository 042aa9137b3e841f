"""Old and odd spellings of llama.cpp's flags: what they mean today, and what is said about them.

A command line that people have may be years old. What a build no longer has is named, its
successor taken where the meaning is the same, and everything else that is unknown is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvwise.errors import UsageError
from kvwise.options.row import Option
from kvwise.options.table import find, normal, spellings
from kvwise.text import Phrase, phrase

_FLASH = ("-fa", "--flash-attn")
_FLASH_VALUES = {"on", "off", "auto", "0", "1", "-1", "true", "false", "enabled", "disabled"}
_RENAMED = {"--draft-max": "--spec-draft-n-max", "--draft": "--spec-draft-n-max",
            "--draft-n": "--spec-draft-n-max", "--draft-min": "--spec-draft-n-min",
            "--draft-n-min": "--spec-draft-n-min"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Repaired:
    """Words that today's llama.cpp takes, and what was changed to get there."""

    words: tuple[str, ...]
    notes: tuple[Phrase, ...]


def repair(words: Sequence[str], tool: str, build: str) -> Repaired:
    """Raises nothing: what cannot be understood is left out and named."""
    good: list[str] = []
    notes: list[Phrase] = []
    rest = list(_apart(words, tool, notes))
    at = 0
    while at < len(rest):
        flag = normal(rest[at])
        values = rest[at + 1 :]
        if flag in _RENAMED and flag not in _known(tool, build, flag):
            notes.append(phrase("{old} is {new} now", old=flag, new=_RENAMED[flag]))
            flag = _RENAMED[flag]
        if flag in _FLASH and (not values or values[0] not in _FLASH_VALUES):
            notes.append(phrase("{flag} wants a value now: on, off or auto", flag=flag))
            good += [flag, "on"]
            at += 1
            continue
        option = _option(flag, tool, build, notes)
        if option is None:
            at += 1 + _foreign_values(values)
            continue
        takes = option.kind_in(tool).takes
        if len(values) < takes:
            notes.append(phrase("{flag} needs a value", flag=flag))
            break
        at += 1 + takes
        if takes and option.passed_on and not _readable(option, tool, values[0]):
            notes.append(phrase("left out: {flag} {value}", flag=flag, value=values[0][:80]))
            continue
        good += [flag, *values[:takes]]
    return Repaired(tuple(good), tuple(notes))


def _apart(words: Sequence[str], tool: str, notes: list[Phrase]) -> Iterator[str]:
    """`--flag=value` is two words; llama.cpp itself does not take it as one."""
    known = spellings(tool)
    for word in words:
        flag, equals, value = word.partition("=")
        if equals and word.startswith("-") and normal(word) not in known and normal(flag) in known:
            notes.append(phrase("llama.cpp takes no = after {flag}", flag=flag))
            yield from (flag, value)
        else:
            yield word


def _known(tool: str, build: str, flag: str) -> tuple[str, ...]:
    try:
        return (flag,) if find(flag, tool, build) else ()
    except UsageError:
        return ()


def _option(flag: str, tool: str, build: str, notes: list[Phrase]) -> Option | None:
    try:
        return find(flag, tool, build)
    except UsageError as error:
        if error.hint:
            notes.append(phrase("left out: {problem} ({hint})", problem=error.phrase,
                                hint=error.hint))  # fmt: skip
        else:
            notes.append(phrase("left out: {problem}", problem=error.phrase))
        return None


def _readable(option: Option, tool: str, value: str) -> bool:
    """False for `--port $PORT`: what changes no byte need not stop the rest."""
    try:
        option.kind_in(tool).read(value)
    except UsageError:
        return False
    return True


def _foreign_values(values: Sequence[str]) -> int:
    """How many words behind an unknown flag are likely its values."""
    count = 0
    for word in values:
        if word.startswith("-") and not word.lstrip("-").replace(".", "").isdecimal():
            break
        count += 1
    return count
