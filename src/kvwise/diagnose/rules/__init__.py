"""The rules, one row per cause, by theme."""

from __future__ import annotations

from kvwise.diagnose.finding import Rule
from kvwise.diagnose.rules import (
    benign,
    context,
    devices,
    files,
    growth,
    hints,
    loading,
    memory,
    options,
    oversize,
    own,
    placing,
    quality,
    speed,
    taken,
)

_OF_ENGINES: tuple[Rule, ...] = (
    *memory.RULES,
    *placing.RULES,
    *growth.RULES,
    *taken.RULES,
    *oversize.RULES,
    *loading.RULES,
    *context.RULES,
    *options.RULES,
    *files.RULES,
    *devices.RULES,
    *speed.RULES,
    *quality.RULES,
    *benign.RULES,
)

RULES: tuple[Rule, ...] = (*_OF_ENGINES, *own.rules(_OF_ENGINES))
HINTS: tuple[Rule, ...] = hints.rules(_OF_ENGINES)
"""Asked only where none of the others knows why."""
