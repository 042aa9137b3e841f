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
    placing,
    quality,
    speed,
    taken,
    told,
)

RULES: tuple[Rule, ...] = (
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

HINTS: tuple[Rule, ...] = hints.rules(RULES)
TOLD: tuple[Rule, ...] = told.rules(RULES)
"""Both are asked only where none of the others knows why."""
