"""Command lines as one string: how each system joins words and takes them apart again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from kvwise.errors import SourceError

_WINDOWS_SAFE = re.compile(r'[^\s"]+')


def lines_of(text: str) -> list[str]:
    """The lines of a file. `str.splitlines` also cuts at form feeds and at separators of Unicode,
    which are no line ends to the programs that read these files.

    >>> lines_of("a\\fb\\n\\n"), lines_of("")
    (['a\\x0cb', ''], [])
    """
    return text.removesuffix("\n").split("\n") if text else []


def windows_join(words: Sequence[str]) -> str:
    """By the rules that Windows programs split by (CommandLineToArgvW)."""
    return " ".join(map(_windows_word, words))


def _windows_word(word: str) -> str:
    if _WINDOWS_SAFE.fullmatch(word) and not word.endswith("\\"):
        return word
    quoted = re.sub(r'(\\*)"', r'\1\1\\"', word)
    return '"' + re.sub(r"(\\+)$", r"\1\1", quoted) + '"'


def windows_split(line: str) -> list[str]:
    """The words of a Windows command line; 2n backslashes before a quote are n.

    >>> windows_split(r'a "b c\\\\" d\\"e')
    ['a', 'b c\\\\', 'd"e']
    """
    words: list[str] = []
    word: list[str] = []
    begun = quoted = False
    at = 0
    while at < len(line):
        char = line[at]
        if char == "\\":
            end = at
            while line[end : end + 1] == "\\":
                end += 1
            before_quote = line[end : end + 1] == '"'
            run, at, begun = end - at, end, True
            word.append("\\" * (run // 2 if before_quote else run))
            if before_quote and run % 2:
                word.append('"')
                at += 1
            continue
        at += 1
        if char == '"':
            begun = True
            if quoted and line[at : at + 1] == '"':
                word.append('"')
                at += 1
            else:
                quoted = not quoted
        elif char in " \t\n" and not quoted:
            if begun:
                words.append("".join(word))
            word, begun = [], False
        else:
            word.append(char)
            begun = True
    if quoted:
        raise SourceError("a quotation mark is never closed")
    return [*words, "".join(word)] if begun else words


def posix_split(line: str, *, comments: bool = False) -> list[str]:
    """The words of a POSIX command line. Raises SourceError for a quote that is never closed."""
    try:
        return shlex.split(line, comments=comments)
    except ValueError:
        raise SourceError("a quotation mark is never closed") from None
