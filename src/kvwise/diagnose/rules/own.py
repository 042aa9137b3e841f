"""What kvwise itself said: its errors and refusals, and the notes in the logs of `kvwise run`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from kvwise.diagnose import causes
from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.finding import Hit, Rule, When
from kvwise.diagnose.own_words import template_of, within
from kvwise.diagnose.rules.asking import failed, pool_of
from kvwise.diagnose.rules.hints import KIND_OF
from kvwise.engine import failures
from kvwise.memory.lacking import LACKING
from kvwise.text import template

_SURE = 0.85
"""Below what the engine's own lines give: kvwise only repeats them."""
_SAID = template("kvwise said: {said}")
_ELSE = "request-refused"
"""What kvwise refuses without a kind of its own: something that was asked of it."""


@cache
def kind_of(said: str) -> str | None:
    """What a sentence of kvwise's is about: as its table of causes says, or by its plain words.

    None if it is no sentence of kvwise's.
    """
    english = template_of(said)
    if english is None:
        return None
    words = said if said.isascii() else " ".join((english, *within(said, LACKING.values())))
    return causes.kinds().get(english) or KIND_OF.get(failures.hint(words) or "", _ELSE)


def rules(case: Case, others: Iterable[Rule]) -> Iterator[Rule]:
    """A rule for each kind that kvwise speaks of in a log; what helps is what helps against it."""
    said: dict[str, list[Seen]] = {}
    for each in case.all("kvwise_said", "kvwise_ran"):
        kind = kind_of(each.fields["said"])
        if kind and (kind != _ELSE or each.code == "kvwise_said"):
            said.setdefault(kind, []).append(each)
    for kind, lines in said.items():
        rule = next(each for each in others if each.kind == kind)
        yield replace(rule, name=f"said-{kind}", when=_hit(lines), cause=_SAID)


def _hit(lines: list[Seen]) -> When:
    """The engine's own lines, where there are any, tell which memory was short."""

    def when(case: Case) -> Hit:
        pool = pool_of(case) if failed(case) else None
        return Hit(_SURE, tuple(lines[:2]), {"said": lines[-1].fields["said"]}, pool=pool)

    return when
