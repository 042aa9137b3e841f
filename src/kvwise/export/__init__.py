"""Settings for other programs: one file per target, found by its name.

A target's file (no leading underscore, not one of the helpers below) has

    ABOUT      what it writes, one line
    FILE       the usual name of that file
    PLACE      where it belongs and how it is used
    write(settings, old)  -> Written; `old` is the text that is already there, or None
                          (with SCRIPT, write_script(program, options, old): it needs no model)

and may have

    ENCODING, NEWLINE     of the file (UTF-8, as the file has it)
    read(text)            -> list of `found.Found`: what such a file asks for
    is_mine(name, text)   whether a file looks like one of these

Everything here is text in, text out; `files.py` alone touches the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from kvwise.errors import UsageError
from kvwise.export.settings import LeftOut
from kvwise.text import Phrase

_HELPERS = {"files", "found", "settings"}


@dataclass(frozen=True, slots=True)
class Written:
    """The text of the whole file, what could not be said in it, and what the reader should know.

    `values` are the settings by the target's own names, where someone wants them apart.
    """

    text: str
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[Phrase, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


def names() -> list[str]:
    """All targets, as they are called on the command line."""
    found = (module.name for module in iter_modules(__path__))
    return sorted(name.replace("_", "-") for name in found
                  if name[0] != "_" and name not in _HELPERS)  # fmt: skip


def target(name: str) -> ModuleType:
    """The target of that name. Raises UsageError; an ImportError of its file comes through."""
    if name not in names():
        from difflib import get_close_matches  # noqa: PLC0415  (only a typing error pays for it)

        near = get_close_matches(name, names(), n=1, cutoff=0.4)
        hint = "did you mean {near}?" if near else "`kvwise export --list` shows all"
        raise UsageError("no target {name}", name=name[:80], near=near and near[0], hint=hint)
    return import_module(f"{__name__}.{name.replace('-', '_')}")
