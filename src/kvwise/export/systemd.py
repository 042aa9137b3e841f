"""A systemd service.

Quoting is that of systemd.service(5) and systemd.syntax(7): words in double quotes with C-like
escapes, `%` and `$` written twice, a backslash before the line end joins two lines.
"""

from __future__ import annotations

import re

from kvwise.errors import SourceError
from kvwise.export import Written
from kvwise.export._kept import kept
from kvwise.export._words import lines_of
from kvwise.export.found import Found
from kvwise.export.settings import Settings, one_line, spoken
from kvwise.text import phrase, template

ABOUT = template("a systemd service")
FILE = "llama-server.service"
PLACE = template("put {file} into ~/.config/systemd/user, or into /etc/systemd/system for all "
                 "users; then `systemctl daemon-reload` and `systemctl start`")  # fmt: skip

_NEW = """\
[Unit]
Description=llama-server
After=network.target

[Service]
Restart=on-failure
RestartSec=5

[Install]
WantedBy=default.target
"""
_SAFE = re.compile(r"[\w./:=,+@-]+")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
            "s": " ", "\\": "\\", '"': '"', "'": "'"}  # fmt: skip
_SPECIFIERS = re.compile("%(.)")
_LONGEST = 64 * 1024


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is no unit, UsageError for a word with a line end."""
    lines = [(settings.program,), *(each.typed for each in spoken(settings))]
    lines += kept(_old_words(old), settings)
    start = " \\\n  ".join(" ".join(map(_word, words)) for words in lines)
    return Written(_merged(old, f"ExecStart={start}"))


def _old_words(old: str | None) -> tuple[str, ...]:
    try:
        return read(old)[0].words if old and old.strip() else ()
    except SourceError:  # a unit without a command
        return ()


def _word(word: str) -> str:
    word = one_line(word, phrase("a systemd unit")).replace("%", "%%").replace("$", "$$")
    if _SAFE.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _logical(text: str) -> list[tuple[int, int, str]]:
    """(first line, line after it, joined text): comments and blank lines inside are skipped."""
    lines = lines_of(text)
    found = []
    at = 0
    while at < len(lines):
        begin, parts = at, [lines[at]]
        at += 1
        if not parts[0].lstrip().startswith(("#", ";")):
            while parts[-1].endswith("\\") and at < len(lines):
                more = lines[at]
                at += 1
                if more.lstrip().startswith(("#", ";")):
                    continue
                parts[-1] = parts[-1][:-1]
                parts.append(more)
        found.append((begin, at, " ".join(parts)))
    return found


def _merged(old: str | None, start: str) -> str:
    text = old if old is not None and old.strip() else _NEW
    lines = lines_of(text)
    section, last = "", None
    starts: list[tuple[int, int]] = []
    for begin, end, whole in _logical(text):
        stripped = whole.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped.startswith("["):
            section = stripped
        elif "=" not in stripped:
            raise SourceError("line {number} is neither [Section] nor Key=value", number=begin + 1)
        elif section == "[Service]" and stripped.partition("=")[0].rstrip() == "ExecStart":
            starts.append((begin, end))
        if section == "[Service]":
            last = end
    if last is None:
        return "\n".join([*lines, "", "[Service]", start]) + "\n"
    if not starts:
        return "\n".join([*lines[:last], start, *lines[last:]]) + "\n"
    kept = [line for at, line in enumerate(lines) if not any(b <= at < e for b, e in starts)]
    first = starts[0][0]
    return "\n".join([*kept[:first], start, *kept[first:]]) + "\n"


def is_mine(_name: str, text: str) -> bool:
    """A unit with a [Service]."""
    return bool(re.search(r"^\[Service\]", text, re.MULTILINE))


def read(text: str) -> list[Found]:
    """The service's command. Raises SourceError."""
    section, command = "", ""
    environ: dict[str, str] = {}
    unread = []
    for _, _, whole in _logical(text):
        stripped = whole.strip()
        if stripped.startswith("["):
            section = stripped
        if section != "[Service]" or "=" not in stripped or stripped[:1] in "#;":
            continue
        key, _, value = stripped.partition("=")
        if key.rstrip() == "ExecStart":
            command = value.strip() or ""
        elif key.rstrip() == "Environment":
            pairs = (word.partition("=") for word in split(value))
            environ |= {name: text for name, equals, text in pairs if equals}
        elif key.rstrip() == "EnvironmentFile":
            unread.append(phrase("what {file} says is not read", file=value.strip()))
    words = split(command.lstrip("-@:+!"))
    if not words:
        raise SourceError("this unit starts no program")
    return [Found(tuple(words[1:]), "", words[0], environ=environ, unread=tuple(unread))]


def split(line: str) -> list[str]:
    """The words of a unit's value, specifiers and `$$` undone. Raises SourceError."""
    if len(line) > _LONGEST:
        raise SourceError("a command of {size:,} characters is too long", size=len(line))
    return [_SPECIFIERS.sub(lambda match: "%" if match[1] == "%" else match[0], each)
            .replace("$$", "$") for each in _quoted_words(line)]  # fmt: skip


def _quoted_words(line: str) -> list[str]:
    words: list[str] = []
    word: str | None = None
    quote = ""
    at = 0
    while at < len(line):
        char = line[at]
        at += 1
        if char == "\\" and at < len(line):
            piece, at = _escape(line, at)
            word = (word or "") + piece
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = (word or "") + char
        elif char in "\"'" and word is None:
            quote, word = char, ""
        elif char in " \t\n":
            if word is not None:
                words.append(word)
            word = None
        else:
            word = (word or "") + char
    if quote:
        raise SourceError("a quotation mark is never closed")
    if word is not None:
        words.append(word)
    return words


def _escape(line: str, at: int) -> tuple[str, int]:
    char = line[at]
    for letter, digits, base in (("x", 2, 16), ("u", 4, 16), ("U", 8, 16)):
        text = line[at + 1 : at + 1 + digits]
        if char == letter and re.fullmatch(f"[0-9A-Fa-f]{{{digits}}}", text):
            code = int(text, base)
            if 0 < code <= 0x10FFFF and not 0xD800 <= code < 0xE000:
                return chr(code), at + 1 + digits
    if re.fullmatch("[0-3][0-7]{2}", line[at : at + 3]):
        return chr(int(line[at : at + 3], 8)), at + 3
    return _ESCAPES.get(char, "\\" + char), at + 1
