"""What a person has already: a command line or a settings file, read as llama-server's flags.

`of_text` and `of_file` find out what it is; `repair` brings old spellings up to date; `compare`
says what to change and what each change costs or frees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.errors import SourceError, UsageError
from kvwise.export import names, target
from kvwise.export.found import Found
from kvwise.theirs import programs, shells

__all__ = ["Given", "of_file", "of_text"]

_ORDER = ("koboldcpp", "lm-studio", "llama-cpp-python", "llama-swap", "docker-compose", "systemd",
          "text-generation-webui", "localai", "llama-server", "ollama")  # fmt: skip
_MEASURED = '"kvwise/results/'
_SCRIPTS = (".sh", ".bash", ".zsh", ".bat", ".cmd", ".ps1")


@dataclass(frozen=True, slots=True)
class Given:
    """One model's settings: where they stand (`kind`: a shell or a target) and what they ask."""

    kind: str
    found: Found


def of_text(text: str) -> Given:
    """The settings of a pasted command line. Raises SourceError, UsageError."""
    line = shells.parse(text)
    for command in line.commands:
        found = programs.understand(command.words, command.environ)
        if found:
            return Given(line.shell, found)
    first = line.commands[0].words if line.commands else ()
    if first and first[0].startswith("-"):
        return Given(line.shell, Found(first))
    raise UsageError(
        "{text!r} starts no program that is known", text=text.strip()[:60],
        hint="llama-server, llama-cli, llama-bench, koboldcpp, ollama, docker run, or a settings "
        "file",
    )  # fmt: skip


def of_file(name: str, text: str, model: str | None = None) -> Given:
    """The settings in a file; `model` chooses among several. Raises SourceError, UsageError."""
    if name.lower().endswith(_SCRIPTS) or text.startswith("#!"):
        return of_text(text)
    kind = kind_of(name, text)
    if kind is None and _MEASURED in text.partition("\n")[0]:
        raise SourceError("{path} holds measurements, not settings", path=name,
                          hint="`kvwise plan MODEL --results {path}` plans with them")  # fmt: skip
    if kind is None:
        raise SourceError("{path} is no settings file that is known", path=name,
                          hint="`kvwise export --list` shows the kinds")  # fmt: skip
    try:
        found: list[Found] = target(kind).read(text)
    except SourceError as error:
        raise SourceError("{path}: {problem}", path=name, problem=error.phrase) from error
    chosen = _chosen(found, name, model)
    return Given(kind, chosen)


def kind_of(name: str, text: str) -> str | None:
    """The target whose files look like this one."""
    short = name.replace("\\", "/").rpartition("/")[2]
    known = set(names())
    return next((each for each in _ORDER if each in known and target(each).is_mine(short, text)),
                None)  # fmt: skip


def _chosen(found: Sequence[Found], name: str, model: str | None) -> Found:
    if not found:
        raise SourceError("{path} has no model", path=name)
    if model is not None:
        for each in found:
            if each.name == model:
                return each
        raise UsageError("{path} has no model {model}", path=name, model=model,
                         known=", ".join(each.name for each in found)[:300],
                         hint="it has {known}")  # fmt: skip
    if len(found) > 1:
        raise UsageError("{path} has {count} models", path=name, count=len(found),
                         known=", ".join(each.name for each in found)[:300],
                         hint="choose one with --name: {known}")  # fmt: skip
    return found[0]
