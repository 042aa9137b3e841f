"""What the scripts of all shells say at their top."""

from __future__ import annotations

from kvwise.export.settings import Settings, spoken


def lines(settings: Settings) -> list[tuple[str, ...]]:
    """The command in parts that belong on one line: the program, then each option."""
    return [(settings.program,), *(each.typed for each in spoken(settings))]


def about(settings: Settings) -> str:
    """One line of comment."""
    return f"{settings.name}: {settings.n_ctx:,} tokens of context, written by kvwise"
