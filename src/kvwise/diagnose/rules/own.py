"""What kvwise itself said: its errors, and the notes in the logs of `kvwise run`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvwise.diagnose.case import Case
from kvwise.diagnose.causes import CAUSES, known
from kvwise.diagnose.finding import Hit, Rule, When
from kvwise.text import template

_SURE = 0.85
"""Below what the engine's own lines give: kvwise only repeats them."""
_SAID = template("kvwise said: {said}")


def _said(kind: str) -> When:
    def when(case: Case) -> Hit | None:
        lines = [each for each in case.all("kvwise_said") if known(each.fields["said"], kind)]
        if not lines:
            return None
        return Hit(_SURE, tuple(lines[:2]), {"said": lines[-1].fields["said"]})

    return when


def rules(others: Iterable[Rule]) -> tuple[Rule, ...]:
    """A rule for each kind that kvwise names; what helps is what helps against the kind itself."""
    first: dict[str, Rule] = {}
    for rule in others:
        first.setdefault(rule.kind, rule)
    kinds = dict.fromkeys(row.kind for row in CAUSES.values() if row.kind)
    return tuple(
        replace(first[kind], name=f"said-{kind}", when=_said(kind), cause=_SAID) for kind in kinds
    )
