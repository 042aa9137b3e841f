"""An engine that starts nothing: it says what would have been run.

The same settings are checked and the same command is built as for a real start, so that a dry run
fails where the real one would.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvwise.engine.find import Engine, find
from kvwise.engine.server import command, shown
from kvwise.engine.settings import Run
from kvwise.launch import Launch


@dataclass(frozen=True, slots=True)
class WouldRun:
    """One command that was not run."""

    argv: tuple[str, ...]
    shown: tuple[str, ...] = ()  # what people are shown instead

    def __str__(self) -> str:
        """Ready to paste into a POSIX shell."""
        return shlex.join(self.shown or self.argv)


@dataclass(slots=True)
class Pretend:
    """Stands in for `Server.start` and remembers what it was asked for."""

    engine: Engine | None = None
    commands: list[WouldRun] = field(default_factory=list)

    def start(self, model: str | Path, launch: Launch, run: Run | None = None) -> WouldRun:
        """The command that would start a server; raises UsageError and EngineError like it."""
        engine = self.engine or find()
        readable = shown(model, launch, engine, run)
        return self.tool(command(model, launch, engine, run), readable)

    def tool(self, argv: Sequence[str], readable: Sequence[str] = ()) -> WouldRun:
        """Any other program of the engine."""
        would = WouldRun(tuple(argv), () if list(readable) == list(argv) else tuple(readable))
        self.commands.append(would)
        return would

    def as_json(self) -> str:
        """One JSON line per command."""
        return "\n".join(json.dumps(list(would.argv)) for would in self.commands)
