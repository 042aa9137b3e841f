"""A model of llama-swap's config.yaml.

Read off mostlygeek/llama-swap v250: `cmd` is split by POSIX rules, on Windows by Windows';
`${NAME}` is a macro; a line that starts with `#` and a backslash at a line's end are dropped.
`metadata` is passed through to /v1/models: there stands what each device must hold, so that models
that are to run together can be added up.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from kvwise.errors import SourceError, UsageError
from kvwise.export import Written, _yaml
from kvwise.export._kept import kept
from kvwise.export._words import posix_split, windows_join, windows_split
from kvwise.export.found import Found, string, strings
from kvwise.export.settings import LeftOut, Settings, one_line, spoken
from kvwise.text import phrase, template
from kvwise.units import MIB

ABOUT = template("a model of llama-swap")
FILE = "config.yaml"
PLACE = template("start `llama-swap --config {file}`")

_MACRO = re.compile(r"\$\{([A-Za-z0-9_-]+)\}")
_OWN = frozenset({"--host", "--port"})
_SECONDS = 300  # until a large model has loaded; llama-swap's own is 120
_ROUNDS = 20


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is no configuration, UsageError for a path with `${`."""
    document = _yaml.mapping(old)
    if not document:
        document["healthCheckTimeout"] = _SECONDS
    model = _yaml.table(_yaml.table(document, "models"), settings.name)
    left = []
    join = windows_join if settings.windows else shlex.join
    lines = [join([settings.program]) + " --host 127.0.0.1 --port ${PORT}"]
    for each in spoken(settings):
        if each.flag in _OWN:
            left.append(LeftOut(each.typed, phrase("llama-swap sets this itself")))
        else:
            lines.append(_line(join, each.typed))
    lines += [_line(join, each) for each in kept(_old_words(document, settings), settings, _OWN)]
    model["cmd"] = _yaml.block("\n".join(lines) + "\n")
    _yaml.table(model, "capabilities")["context"] = settings.slot_tokens
    if settings.memory:
        _yaml.table(model, "metadata")["memory_mib"] = {
            name: -(-size // MIB) for name, size in settings.memory
        }
    return Written(_yaml.dump(document, old), tuple(left))


def _old_words(document: Mapping[str, Any], settings: Settings) -> tuple[str, ...]:
    """The flags of the command that is there already, its macros filled in."""
    model = document["models"][settings.name]
    if not model.get("cmd"):
        return ()
    macros = document.get("macros")
    return _model(settings.name, model, macros if isinstance(macros, Mapping) else {}).words


def _line(join: Any, words: tuple[str, ...]) -> str:
    line: str = one_line(join(words), phrase("llama-swap's configuration"))
    if "${" in line:
        raise UsageError("llama-swap takes ${{ in {word!r} for a macro", word=words[-1])
    if line.endswith("\\"):  # a backslash at a line's end is dropped
        raise UsageError("llama-swap drops the backslash at the end of {word!r}", word=words[-1])
    return line


def is_mine(_name: str, text: str) -> bool:
    """A YAML file with models that have commands."""
    return bool(re.search(r"^models:", text, re.MULTILINE)) and "cmd:" in text


def read(text: str) -> list[Found]:
    """One per model. Raises SourceError."""
    document = _yaml.plain(_yaml.mapping(text))
    models = document.get("models")
    if not isinstance(models, Mapping):
        raise SourceError("this file has no models")
    macros = document.get("macros") or {}
    if not isinstance(macros, Mapping):
        raise SourceError("{key} is not a table of names", key="macros")
    return [_model(name, each, macros) for name, each in models.items()
            if isinstance(each, Mapping) and each.get("cmd")]  # fmt: skip


def _model(name: str, model: Mapping[str, Any], macros: Mapping[str, Any]) -> Found:
    own = model.get("macros")
    known = {**macros, **(own if isinstance(own, Mapping) else {}), "MODEL_ID": name}
    line = _expanded(string(model, "cmd"), known)
    rows = [each.rstrip() for each in line.splitlines() if not each.lstrip().startswith("#")]
    whole = " ".join(each.removesuffix("\\") for each in rows)
    windows = bool(re.search(r"(^|[\s\"'])[A-Za-z]:\\", whole))
    words = windows_split(whole) if windows else posix_split(whole)
    environ = dict(each.split("=", 1) for each in strings(model, "env") if "=" in each)
    return Found(tuple(words[1:]), name, words[0] if words else "", environ=environ)


def _expanded(line: str, macros: Mapping[str, Any]) -> str:
    for _ in range(_ROUNDS):
        new = _MACRO.sub(
            lambda match: string(macros, match[1], match[0]) if match[1] in macros else match[0],
            line,
        )
        if new == line or len(new) > 1 << 20:
            break
        line = new
    return line[: 1 << 20].replace("${PORT}", "8080")
