"""What every command understands, anywhere on the line: language, JSON, colour, loudness."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.cli.output import Printer
from kvwise.errors import UsageError
from kvwise.text import LANGUAGES

_SAMPLES = {"zh": "\u4e2d"}
COLORS = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class Setting:
    """One option of all commands; `values` is empty for a plain flag."""

    flags: tuple[str, ...]
    help: str
    values: tuple[str, ...] = ()


SETTINGS = (
    Setting(("--json",), "Print one JSON document (errors too)."),
    Setting(("--lang",), "Language of the answer [env: KVWISE_LANG].", LANGUAGES),
    Setting(("--color",), "Colours: on a terminal, always, never.", COLORS),
    Setting(("-v", "--verbose"), "Say more on stderr."),
    Setting(("-q", "--quiet"), "Say only the answer."),
    Setting(("--debug",), "Show the traceback of an error."),
    Setting(("-h", "--help"), "Show this help."),
)
_OF_FLAG = {flag: setting for setting in SETTINGS for flag in setting.flags}


def take_settings(printer: Printer, arguments: Sequence[str]) -> list[str]:
    """Set up the printer as a command line asks, and return the line without those options.

    What stands after `--` belongs to someone else. Raises UsageError.
    """
    printer.language = _language_of_environment(printer.out.encoding or "utf-8")
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
            break
        flag, equals, value = word.partition("=")
        setting = _OF_FLAG.get(flag)
        if setting is None or "--help" in setting.flags or (equals and not setting.values):
            rest.append(word)
            continue
        if setting.values and not equals:
            value = next(words, "")
        _apply(printer, setting, value)
    if os.environ.get("NO_COLOR") and printer.color == "auto":
        printer.color = "never"
    return rest


def _apply(printer: Printer, setting: Setting, value: str) -> None:
    name = setting.flags[-1].removeprefix("--")
    if setting.values and value not in setting.values:
        raise UsageError(
            "--{name} does not know {value!r}",
            name=name,
            value=value,
            values=", ".join(setting.values),
            hint="one of: {values}",
        )
    match name:
        case "json":
            printer.json = True
        case "lang":
            printer.language = value
        case "color":
            printer.color = value
        case "debug":
            printer.debug = True
        case "verbose":
            printer.verbosity += 1
        case "quiet":
            printer.verbosity -= 1


def _language_of_environment(encoding: str) -> str:
    """KVWISE_LANG, else the locale's language when we speak it, else English.

    A locale that is named but not installed leaves an ASCII stdout: English can be read there.
    """
    for name in ("KVWISE_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "").lower()
        if value:
            language = value[:2] if value[:2] in LANGUAGES else "en"
            asked = name == "KVWISE_LANG"
            return language if asked or _can_write(encoding, language) else "en"
    return "en"


def _can_write(encoding: str, language: str) -> bool:
    try:
        _SAMPLES.get(language, "").encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
