"""A script for bash and every other POSIX shell."""

from __future__ import annotations

from kvwise.export import Written, _block, _script
from kvwise.export.settings import Settings
from kvwise.plan import commands
from kvwise.text import template

ABOUT = template("a script for bash, zsh and every POSIX shell")
FILE = "start.sh"
PLACE = template("run it with `sh {file}`; options you add go to llama-server")


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a script that is not kvwise's."""
    parts = [commands.bash(words) for words in _script.lines(settings)]
    body = "exec " + " \\\n  ".join([*parts, '"$@"']) + "\n"
    block = f"# {_script.about(settings)}\n{body}"
    return Written(_block.merge(old, block, settings.name, comment="#", head="#!/bin/sh\n"))
