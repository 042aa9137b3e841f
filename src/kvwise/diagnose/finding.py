"""What a diagnosis is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvwise.diagnose.case import Case, Seen
from kvwise.text import Phrase

if TYPE_CHECKING:
    from kvwise.diagnose.claims import Claim
    from kvwise.diagnose.numbers import Numbers, Refusal

SURE, LIKELY, FAIR, POSSIBLE, WEAK = 0.95, 0.8, 0.6, 0.45, 0.3
"""How strongly a line speaks for a cause: an order, not a probability."""

VRAM, HOST_RAM, UNIFIED = "vram", "host-ram", "unified"


GUESS = "guess-"
"""How the rules are named whose findings are guesses."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line of the log, numbered from 1."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do; `flags` are llama.cpp's own (or variables), ready to be used."""

    text: Phrase
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause: its kind, whether memory is what is missing and which, the lines that show it."""

    kind: str
    confidence: float
    memory_is_the_cause: bool
    memory_pool: str | None
    evidence: tuple[Evidence, ...]
    cause: Phrase
    remedies: tuple[Remedy, ...]
    rule: str
    reason_known: bool = True  # False: something failed, and the log does not tell why

    @property
    def blames(self) -> bool:
        """Does it say that something is wrong?"""
        return not self.kind.startswith("benign")

    @property
    def guessed(self) -> bool:
        """Is it only what lines that no rule knows are like?"""
        return self.rule.startswith(GUESS)


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule found in a case. `memory` and `pool` overrule the rule's own."""

    confidence: float
    lines: tuple[Seen, ...] = ()
    fields: Mapping[str, object] = field(default_factory=dict)
    memory: bool | None = None
    pool: str | None = None
    cause: str = ""  # another sentence than the rule's
    remedies: tuple[Remedy, ...] = ()  # before the rule's own


When = Callable[[Case], Hit | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: how a failure is recognised, what it means, what helps.

    `tells_why` is False where the lines say that something failed and give no reason.
    """

    name: str
    kind: str
    when: When
    cause: str
    remedies: tuple[Remedy, ...] = ()
    memory: bool = False
    pool: str | None = None
    tells_why: bool = True


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a load, or a whole log, comes to; findings are ordered, surest first.

    `outcome` is ok, refused, crashed, killed, hung, slow or unknown. `advice` are things worth
    knowing about a load that went well. `unexplained` are lines that look like errors and that no
    rule knows. `loads` has one diagnosis for each load of a log with several.
    """

    outcome: str
    findings: tuple[Finding, ...]
    build: str | None = None
    model: str | None = None
    advice: tuple[Finding, ...] = ()
    unexplained: tuple[Evidence, ...] = ()
    last: Evidence | None = None
    first_line: int = 0
    last_line: int = 0
    case: Case | None = None
    numbers: Numbers | None = None
    refusal: Refusal | None = None
    claims: tuple[Claim, ...] = ()
    loads: tuple[Diagnosis, ...] = ()

    @property
    def blamed(self) -> tuple[Finding, ...]:
        """The findings that say that something is wrong."""
        return tuple(finding for finding in self.findings if finding.blames)
