"""Presets of llama-server's router (`--models-preset FILE`).

The grammar is common/preset.cpp's (b10605): `[name]`, `key = value`, comments after `;` or `#`
anywhere, so that no value can hold them; a section that comes twice counts from its last start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvwise.errors import SourceError, UsageError
from kvwise.export import Written
from kvwise.export._words import lines_of
from kvwise.export.found import Found
from kvwise.export.settings import LeftOut, Settings, Spoken, experts_as_tensors, one_line, spoken
from kvwise.options.kinds import FLAG, SWITCH
from kvwise.options.row import SERVER, Option
from kvwise.options.table import spellings
from kvwise.text import Phrase, phrase, template

ABOUT = template("presets of llama-server's router")
FILE = "models.ini"
PLACE = template("start `llama-server --models-preset {file}`; a running one reads it again at "
                 "GET /models?reload=1")  # fmt: skip

_OWN = ("--host", "--port", "--alias", "--api-key", "--models-preset", "--models-dir")
_HEADER = re.compile(r"\[[ \t]*([^]\n]+)\][ \t]*([;#].*)?$")
_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)([ \t]*=[ \t]*)([^;#]*?)([ \t]*(?:[;#].*)?)$")
_NOT_OPTIONS = {"version", "load-on-startup", "stop-timeout", "dedup-cache-models"}
_LISTS = {"--lora", "--lora-scaled", "--override-kv", "--spec-type", "-otd", "--control-vector",
          "--override-tensor", "--spec-draft-override-tensor"}  # fmt: skip


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that llama-server would not read, UsageError for what an INI
    cannot hold."""
    settings = experts_as_tensors(settings)  # the router sorts options by name
    left: list[LeftOut] = []
    pairs: dict[str, str] = {}
    for each in spoken(settings):
        why = _why_not(each, pairs)
        if why:
            left.append(LeftOut(each.typed, why))
            continue
        key = each.option.name.removeprefix("--")
        value = ",".join(each.words) if each.words else "true" if each.positive else "false"
        pairs[key] = f"{pairs[key]},{value}" if key in pairs else value
    if _unsayable(settings.launch.model):
        raise UsageError("a preset cannot name this model: {why}",
                         why=phrase("; and # begin comments"), hint="rename the file")  # fmt: skip
    text = _merged(old, settings.name, pairs)
    return Written(text, tuple(left))


def _why_not(each: Spoken, pairs: dict[str, str]) -> Phrase | None:
    if each.option.name in _OWN:
        return phrase("the router sets this itself")
    if any(map(_unsayable, each.words)):
        return phrase("; and # begin comments, and blanks at the ends are lost")
    if each.option.name.removeprefix("--") in pairs and each.option.name not in _LISTS:
        return phrase("a preset holds an option once")
    return None


def _unsayable(value: str) -> bool:
    one_line(value, phrase("a preset"))
    return bool(re.search("[;#]", value)) or value != value.strip(" \t")


def _merged(old: str | None, name: str, pairs: dict[str, str]) -> str:
    lines = lines_of(old or "version = 1\n")
    _check(lines)
    begin, end = _section(lines, name)
    known = spellings(SERVER)
    mine = {known[f"--{key}"] for key in pairs}
    kept: list[str] = []
    written: set[str] = set()
    for line in lines[begin:end]:
        match = _PAIR.match(line)
        option = match and _option(match[1])
        if match is None or (option not in mine and not _rival(option, mine)):
            kept.append(line)
            continue
        key = option.name.removeprefix("--") if option in mine else ""
        if key and key not in written:
            kept.append(f"{match[1]}{match[2]}{_spelled(match[1], pairs[key])}{match[4]}")
            written.add(key)
    blanks = _blank_tail(kept)
    body = kept[: len(kept) - blanks]
    body += [f"{key} = {value}" for key, value in pairs.items() if key not in written]
    body += kept[len(kept) - blanks :]
    if begin == len(lines):
        gap = [""] if lines and lines[-1].strip() else []
        return "\n".join([*lines, *gap, f"[{name}]", *body]) + "\n"
    return "\n".join([*lines[:begin], *body, *lines[end:]]) + "\n"


def _spelled(key: str, value: str) -> str:
    """The value under the key that stands there, which may be the negated one."""
    option = _option(key)
    flag = f"--{key}" if len(key) > 1 else f"-{key}"
    if option and (flag in option.negative or f"-{key}" in option.negative):
        return {"true": "false", "false": "true"}.get(value, value)
    return value


def _rival(option: Option | None, mine: set[Option]) -> bool:
    """Whether an older spelling of what is written now (`mmap` beside `load-mode`)."""
    return bool(option and option.deprecated) and any(
        each.name in option.deprecated for each in mine if option and each is not option
    )


def _blank_tail(lines: list[str]) -> int:
    """Lines at the end of a section that belong to what follows: blank ones and comments."""
    count = 0
    for line in reversed(lines):
        if line.strip() and line.lstrip()[:1] not in (";", "#"):
            break
        count += 1
    return count


def _option(key: str) -> Option | None:
    known = spellings(SERVER)
    found = known.get(f"--{key}") or known.get(f"-{key}")
    if found is None and key.startswith("LLAMA_ARG_"):
        found = next((each for each in known.values() if key in (each.env, each.no_env)), None)
    return found


def _check(lines: list[str]) -> None:
    for number, line in enumerate(lines, 1):
        text = line.strip(" \t")
        if text and text[0] not in ";#" and not (_HEADER.match(line) or _PAIR.match(line)):
            raise SourceError("line {number} is neither [name] nor key = value",
                              number=number)  # fmt: skip


def _section(lines: list[str], name: str) -> tuple[int, int]:
    """(first line after the last header of that name, first line of the next section)."""
    heads = [(at, match[1].strip(" \t")) for at, line in enumerate(lines)
             if (match := _HEADER.match(line))]  # fmt: skip
    mine = [at for at, title in heads if title == name]
    if not mine:
        return len(lines), len(lines)
    return mine[-1] + 1, min((at for at, _ in heads if at > mine[-1]), default=len(lines))


def is_mine(name: str, text: str) -> bool:
    """An INI file with a section that is no systemd one."""
    heads = re.findall(r"^\[[ \t]*([^]\n]+)\]", text, re.MULTILINE)
    return name.lower().endswith(".ini") or (bool(heads) and not {"Service", "Unit"} & set(heads))


def read(text: str) -> list[Found]:
    """One per section; `[*]` holds for all. Raises SourceError as llama-server would refuse it."""
    lines = lines_of(text)
    _check(lines)
    sections: dict[str, dict[str, str]] = {}
    current = "default"
    for line in lines:
        head, pair = _HEADER.match(line), _PAIR.match(line)
        if head:
            current = head[1].strip(" \t")
            sections[current] = {}
        elif pair:
            sections.setdefault(current, {})[pair[1]] = pair[3]
    everywhere = sections.pop("*", {})
    found = []
    for name, own in sections.items():
        if name == "default" and not set(own) - _NOT_OPTIONS:
            continue
        words: list[str] = []
        for key, value in {**everywhere, **own}.items():
            words += _words(key, value)
        found.append(Found(tuple(words), name))
    return found


def _words(key: str, value: str) -> Iterator[str]:
    if key in _NOT_OPTIONS:
        return
    option = _option(key)
    if option is None:
        raise SourceError("{key} is no option of llama-server", key=key)
    if option.kind not in (FLAG, SWITCH):
        yield from (option.name, value)
        return
    negated = f"--{key}" in option.negative or f"-{key}" in option.negative or key == option.no_env
    if (value in ("on", "enabled", "true", "1")) != negated:
        yield option.name
    elif option.negative:
        yield option.negative[0]
