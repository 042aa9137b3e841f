"""The patterns of `-ot`: C++'s regular expressions as Python's.

llama.cpp hands them to `std::regex` (ECMAScript grammar, no locale). Python's grammar has more
(look-behind, flags in the pattern) and lacks named classes (`[[:digit:]]`); a pattern is
translated, or refused where the engine would refuse it.

Source: src/llama-model-loader.cpp create_tensor, b10605; libstdc++ regex_scanner.tcc and
regex_compiler.tcc.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from kvwise.errors import UsageError
from kvwise.text import Phrase, phrase

_NAMED: Final = {
    "digit": "0-9", "d": "0-9", "alpha": "a-zA-Z", "alnum": "a-zA-Z0-9", "upper": "A-Z",
    "lower": "a-z", "space": r"\s", "s": r"\s", "w": r"\w", "xdigit": "0-9a-fA-F",
    "blank": r"\ \t", "punct": r"!-/:-@\[-`{-~", "print": " -~", "graph": "!-~",
    "cntrl": r"\x00-\x1f\x7f",
}  # fmt: skip
_REPEAT = re.compile(r"[*+?]|\{(\d{1,5})(,(\d{0,5}))?\}", re.ASCII)
_CODED = re.compile(r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}")
_SAME_IN_BOTH: Final = "bBdDsSwWfnrtv123456789"
_MOST_DEEP = 64  # groups in groups; Python's own reader gives up at some 300
_LONG = 16  # times; a longer repeat is as bad as one without end
_MOST_ENDLESS = 8  # a name has up to 63 letters: each such repeat may try them all


class _Bad(Exception):
    """Why a text is no pattern."""

    def __init__(self, why: Phrase) -> None:
        super().__init__(str(why))
        self.why = why


@lru_cache(maxsize=1024)
def compiled(text: str) -> re.Pattern[str]:
    """What finds the names that `std::regex_search` finds with `text`. Raises UsageError.

    A repeat of repeats without an end (`(a+)+`) is refused: both engines may take years over it.
    """
    try:
        return re.compile(_Reader(text).translated(), re.ASCII)
    except _Bad as bad:
        why: Phrase | str = bad.why
    except (re.error, OverflowError, RecursionError) as error:
        why = str(error)
    raise UsageError("{text!r} is not a pattern: {why}", text=text[:200], why=why, hint="see -ot")


class _Reader:
    """Reads a pattern once from left to right."""

    __slots__ = ("_at", "_endless", "_text")

    def __init__(self, text: str) -> None:
        self._text, self._at, self._endless = text, 0, 0

    def translated(self) -> str:
        made, _ = self._alternatives(0)
        if self._at < len(self._text):
            raise _Bad(phrase("a ) closes nothing"))
        if self._endless > _MOST_ENDLESS:
            raise _Bad(phrase("so many repeats can take for ever"))
        return made

    def _alternatives(self, depth: int) -> tuple[str, bool]:
        """(Python's spelling up to the closing parenthesis, whether a repeat in it is endless)."""
        if depth > _MOST_DEEP:
            raise _Bad(phrase("groups are too deep"))
        made, endless = [], False
        while self._at < len(self._text) and self._text[self._at] != ")":
            atom, inner = self._atom(depth)
            repeat, more = self._repeat()
            if repeat and atom.startswith(("(?=", "(?!")):
                raise _Bad(phrase("a repeat has nothing before it"))
            if more and inner:
                raise _Bad(phrase("a repeat of repeats can take for ever"))
            made.append(atom + repeat)
            endless = endless or inner or more
        return "".join(made), endless

    def _atom(self, depth: int) -> tuple[str, bool]:
        letter = self._next()
        if letter == "(":
            return self._group(depth)
        if letter in "*+?{":
            raise _Bad(phrase("a repeat has nothing before it"))
        readers: dict[str, Callable[[], str]] = {"[": self._class, "\\": self._escape}
        if letter in readers:
            return readers[letter](), False
        return letter if letter in ".^$|" else re.escape(letter), False

    def _group(self, depth: int) -> tuple[str, bool]:
        opening = "("
        if self._text.startswith("?", self._at):
            opening = self._text[self._at - 1 : self._at + 2]
            if opening not in {"(?:", "(?=", "(?!"}:
                raise _Bad(phrase("{opening} is not known to C++", opening=opening))
            self._at += 2
        inside, endless = self._alternatives(depth + 1)
        if self._at >= len(self._text):
            raise _Bad(phrase("a ( is not closed"))
        self._at += 1
        return f"{opening}{inside})", endless

    def _repeat(self) -> tuple[str, bool]:
        """(the repeat that follows, whether it has no end)."""
        match = _REPEAT.match(self._text, self._at)
        if not match:
            if self._text.startswith("{", self._at):
                raise _Bad(phrase("{{ does not begin a repeat"))
            return "", False
        self._at = match.end()
        made = match[0]
        if self._text.startswith("?", self._at):  # as few as possible
            self._at += 1
            made += "?"
        if _REPEAT.match(self._text, self._at):
            raise _Bad(phrase("a repeat of repeats can take for ever"))
        most = match[3] if match[2] else match[1]
        endless = made[0] in "*+" or most == "" or int(most or 0) > _LONG
        self._endless += endless
        return made, endless

    def _escape(self) -> str:
        letter = self._next()
        if letter in _SAME_IN_BOTH:
            return f"\\{letter}"
        if letter == "0":
            return r"\x00"
        if letter in "xu":
            match = _CODED.match(self._text, self._at - 1)
            if not match:
                raise _Bad(phrase("\\{letter} lacks its digits", letter=letter))
            self._at = match.end()
            return f"\\{match[0]}"
        return re.escape(letter)

    def _class(self) -> str:
        text, negative = self._text, self._text.startswith("^", self._at)
        self._at += negative
        made: list[str] = []
        while not text.startswith("]", self._at):
            if text.startswith(("[:", "[.", "[="), self._at):
                made.append(self._named())
                continue
            made.append(self._member())
            if text.startswith("-", self._at) and not text.startswith("-]", self._at):
                self._at += 1  # from one to another, each written so that it is only itself
                made.append("-" + self._member())
        self._at += 1
        if not made:
            return r"[\s\S]" if negative else r"[^\s\S]"
        return f"[{'^' if negative else ''}{''.join(made)}]"

    def _member(self) -> str:
        letter = self._next()
        if letter != "\\":
            return re.escape(letter)
        if self._text[self._at : self._at + 1] in "123456789":
            raise _Bad(phrase("it refers to a group inside of [ ]"))
        return self._escape()

    def _named(self) -> str:
        end = self._text.find(":]", self._at + 2)
        name = self._text[self._at + 2 : end] if end > 0 else ""
        if self._text[self._at + 1] != ":" or name not in _NAMED:
            raise _Bad(phrase("a class of letters is not known"))
        self._at = end + 2
        return _NAMED[name]

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise _Bad(phrase("it ends too early"))
        self._at += 1
        return self._text[self._at - 1]
