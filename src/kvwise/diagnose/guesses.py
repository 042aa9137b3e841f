"""What a failure may be that no rule explains: never more than a guess, never memory without a word
of memory.

A log without a finding gets up to three guesses, if its lines are like those of failures and not
like those of healthy logs. Where only plain words spoke, or nothing but that it failed is known,
guesses are what else it may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.finding import GUESS, LIKELY, Finding, Hit, Rule
from kvwise.diagnose.likeness import MEMORY, goes_on, odd, scores, told, words_of
from kvwise.diagnose.rules import RULES
from kvwise.diagnose.rules.asking import no_failure
from kvwise.diagnose.unwrap import unwrap
from kvwise.engine import events as ev
from kvwise.engine import log
from kvwise.text import template

CONFIDENCE = (0.15, 0.12, 0.1)
"""Of the first guess, the second and the third: below whatever a rule says."""
_CAUSE = template(
    "a guess: no wording that kvwise knows; in public reports, lines with such words had this cause"
)
_SHOWN = 3
_MARGIN = 4.0
"""How much more (a sum of logarithms) a log must be like those of a failure than like healthy ones:
of 102 healthy texts that are left out of the counts, one in twenty is still above it."""
_WORDS = 4  # that are known, before anything is guessed
_NO_ERROR = frozenset("WIDV")


def _first_rules() -> dict[str, Rule]:
    """The first rule of each kind, for what helps against it."""
    first: dict[str, Rule] = {}
    for rule in RULES:
        first.setdefault(rule.kind, rule)
    return first


def guesses(case: Case, found: Sequence[Finding]) -> Iterator[tuple[Rule, Hit]]:
    """Rules and hits of the likeliest kinds beside those that were found, likeliest first."""
    blamed = [each for each in found if each.blames]
    if not case.is_last or any(
        each.confidence >= LIKELY and each.reason_known for each in blamed
    ):  # fmt: skip
        return
    lines = _unexplained(case, (each for each in found if not each.blames))
    if not blamed and (not lines or (case.complete and not case.loaded.failures)):
        return
    words = words_of(case)
    if not blamed and told(words) < _WORDS:
        return
    score = scores(words)
    rules = _first_rules()
    known = {each.kind for each in blamed}
    left = [
        rules[kind]
        for kind in score
        if kind not in known and not _harmless(kind)
        and (MEMORY in words or not rules[kind].memory)
    ]  # fmt: skip
    healthy = max(value for kind, value in score.items() if _harmless(kind))
    if not blamed and score[left[0].kind] < healthy + _MARGIN:
        return
    room = max(0, len(CONFIDENCE) - len(known))
    for rule, confidence in zip(left[:room], CONFIDENCE, strict=False):
        name = GUESS + rule.kind
        yield (
            replace(rule, name=name, cause=_CAUSE, tells_why=False),
            Hit(confidence, tuple(lines[:_SHOWN])),
        )


def _harmless(kind: str) -> bool:
    """Texts of healthy logs, and of lines that only look like a failure."""
    return not kind or kind.startswith("benign")


def _told(text: str) -> bool:
    """Is this known, and no failure? What any program may mean by "error: ..." is not."""
    event = log.read_line(text)
    if isinstance(event, ev.Remark):
        return event.code != "kvwise_said"
    return not isinstance(event, ev.Failure | None)


def _unexplained(case: Case, harmless: Iterable[Finding]) -> list[Seen]:
    """Lines that speak of something wrong, that nothing knows, and that nobody calls a warning."""
    found = []
    known = {line.line for each in harmless for line in each.evidence}
    suspects = dict(case.said.suspects)
    odd_ones = {number: raw for number, raw in case.said.tail if odd(raw)}
    for number, raw in sorted((odd_ones | suspects).items()):
        line = log.split_line(number, " ".join(unwrap(raw)))
        warning = line.level in _NO_ERROR or no_failure(raw) or goes_on(line.text)
        if number >= case.begins and number not in known and not warning and not _told(line.text):
            found.append(Seen("", {}, number, raw, case.stage, fitting=False, beside=""))
    return found
