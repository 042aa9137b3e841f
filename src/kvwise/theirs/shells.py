"""A pasted command line, taken apart as its shell would: words, variables set before, operators.

Nothing is run and nothing is filled in: `$HOME` and `%PATH%` stay as they are written. Which shell
it is for is guessed from what only one of them has. PowerShell rules: about_Parsing and
about_Quoting_Rules; cmd.exe's: `^`, `%NAME%`, then the rules of Windows programs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from kvwise.errors import SourceError
from kvwise.export._words import windows_split

BASH, POWERSHELL, CMD = "bash", "powershell", "cmd"
LONGEST = 64 * 1024

_PROMPT = re.compile(
    r"\A(?:PS [^>\n]{0,200}> ?|[A-Za-z]:\\[^>\n]{0,200}> ?|[$>%] |"
    r"[\w.-]+@[\w.-]+[: ][^$#\n]{0,200}[$#] )"
)
"""What a terminal shows before the line, and people paste with it."""

_OPERATORS = re.compile(r"[();<>|&]+")
_NUMBERED = re.compile(r"(?<=\s)[0-9](?=>)")  # the 2 of `2>`, which is not the 2 of `-np 2 >`
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PS_ASSIGNED = re.compile(r"\$env:(\w+)\s*=\s*(.*)", re.IGNORECASE | re.DOTALL)
_SET = re.compile(r'set\s+"?([A-Za-z_]\w*)=([^"\n]*)"?\s*', re.IGNORECASE)
_QUOTES = "'\u2018\u2019\u201a\u201b"
_DOUBLE = '"\u201c\u201d\u201e'


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: its words, and the variables that hold for it."""

    words: tuple[str, ...]
    environ: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    """What was pasted, as the commands of one shell."""

    shell: str
    commands: tuple[Command, ...]


def parse(text: str) -> Line:
    """The commands of a pasted line or script. Raises SourceError."""
    if len(text) > LONGEST:
        raise SourceError("a command of {size:,} characters is too long", size=len(text))
    if "\0" in text:
        raise SourceError("a command holds no NUL character")
    text = _PROMPT.sub("", text.replace("\r\n", "\n").strip())
    shell = guess(text)
    parts = {BASH: _bash, POWERSHELL: _powershell, CMD: _cmd}[shell](text)
    environ: dict[str, str] = {}
    commands = []
    for words, own in parts:
        environ |= own
        rest, before = _assignments(words)
        if rest and rest[0] == "export" and shell == BASH:
            environ |= _assignments(rest[1:])[1]
        elif rest:
            commands.append(Command(tuple(rest), {**environ, **before}))
        else:
            environ |= before
    return Line(shell, tuple(commands))


def guess(text: str) -> str:
    """The shell that a line was written for."""
    if re.search(r"`\s*\n|^\s*&\s|\$env:|@args\b", text, re.IGNORECASE):
        return POWERSHELL
    if re.search(
        r"\^\s*\n|^\s*@?(set|echo off|rem|start)\b\s*\S*=?", text, re.IGNORECASE | re.MULTILINE
    ):
        return CMD
    if re.search(r"%\w+%|(^|[\s\"=])([A-Za-z]:\\|\\\\\w|\.\\)", text):
        return POWERSHELL if re.search("'[^']*'", text) else CMD
    return BASH


def _assignments(words: list[str]) -> tuple[list[str], dict[str, str]]:
    environ: dict[str, str] = {}
    at = 0
    while at < len(words) and (match := _ASSIGNED.fullmatch(words[at])):
        environ[match[1]] = match[2]
        at += 1
    return words[at:], environ


def _bash(text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    text = _NUMBERED.sub("", re.sub(r"\\\n", " ", "\n".join(lines)))
    for line in text.split("\n"):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            words = list(lexer)
        except ValueError:
            words = _whole(text)
            yield from _split(words)
            return
        yield from _split(words)


def _whole(text: str) -> list[str]:
    """A quotation that goes over several lines."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        raise SourceError("a quotation mark is never closed") from None


def _split(words: list[str]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Commands between operators; where output goes is no part of them."""
    command: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif _OPERATORS.fullmatch(word):
            if re.search("[<>]", word):
                skip = True
                continue
            yield command, {}
            command = []
        else:
            command.append(word)
    yield command, {}


def _powershell(text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    text = re.sub(r"`\s*\n", " ", text)
    for statement in _statements(text):
        match = _PS_ASSIGNED.fullmatch(statement.strip())
        if match:
            value = list(_powershell_words(match[2]))
            yield [], {match[1]: value[0] if value else ""}
            continue
        words = [word for word in _powershell_words(statement) if word != "@args"]
        yield (words[1:] if words[:1] in (["&"], ["."]) else words), {}


def _statements(text: str) -> Iterator[str]:
    """Parts between `;`, `|` and line ends that stand outside quotes; comments are dropped."""
    begin, at, quote = 0, 0, ""
    while at < len(text):
        char = text[at]
        if quote:
            if char in (_QUOTES if quote == "'" else _DOUBLE):
                quote = ""
        elif char in _QUOTES:
            quote = "'"
        elif char in _DOUBLE:
            quote = '"'
        elif char in ";|\n":
            yield text[begin:at]
            begin = at + 1
        elif char == "#" and (at == 0 or text[at - 1].isspace()):
            yield text[begin:at]
            end = text.find("\n", at)
            at = begin = len(text) if end < 0 else end
        at += 1
    yield text[begin:]


def _powershell_words(text: str) -> Iterator[str]:
    word: list[str] | None = None
    quotes = ""  # those that end the string we are in
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if quotes and char in quotes:
            if text[at : at + 1] and text[at] in quotes:  # twice is once
                word = _more(word, char)
                at += 1
            else:
                quotes = ""
        elif char == "`" and quotes != _QUOTES and at < len(text):
            word = _more(word, text[at])
            at += 1
        elif not quotes and char in _QUOTES + _DOUBLE:
            quotes = _QUOTES if char in _QUOTES else _DOUBLE
            word = _more(word, "")
        elif char.isspace() and not quotes:
            if word is not None:
                yield "".join(word)
            word = None
        else:
            word = _more(word, char)
    if quotes:
        raise SourceError("a quotation mark is never closed")
    if word is not None:
        yield "".join(word)


def _more(word: list[str] | None, piece: str) -> list[str]:
    word = [] if word is None else word
    word.append(piece)
    return word


def _cmd(text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    text = _NUMBERED.sub("", re.sub(r"\^\s*\n\s*", " ", text))
    for row in text.split("\n"):
        line = row.strip().lstrip("@")
        if re.match(
            r"(rem\b|::|echo\b|setlocal\b|chcp\b|endlocal\b|pause\b|$)", line, re.IGNORECASE
        ):
            continue
        for part in _cmd_parts(line):
            match = _SET.fullmatch(part.strip())
            if match:
                yield [], {match[1]: match[2]}
                continue
            yield _no_redirects([each for each in windows_split(part) if each != "%*"]), {}


def _no_redirects(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if word in ("<", ">"):
            skip = True
        elif skip:
            skip = False
        else:
            kept.append(word)
    return kept


def _cmd_parts(line: str) -> Iterator[str]:
    """Commands between `&`, `&&`, `|`: quotes and `^` keep them in one; `%%` is `%`."""
    out: list[str] = []
    quoted = False
    at = 0
    line = line.replace("%%", "%")
    while at < len(line):
        char = line[at]
        at += 1
        if char == "^" and not quoted:
            out.append(line[at : at + 1])
            at += 1
        elif char == '"':
            quoted = not quoted
            out.append(char)
        elif char in "&|" and not quoted:
            yield "".join(out)
            out = []
        elif char in "<>" and not quoted:
            out.append(f" {char} ")
        else:
            out.append(char)
    yield "".join(out)
