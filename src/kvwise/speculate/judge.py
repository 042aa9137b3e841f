"""Does it pay? Tokens per second against plain generation of the same round, beyond chance.

Never by the share of accepted tokens: a draft that costs as much as the model was measured with
every token accepted and half the speed. A gain counts when it is larger than what chance alone
would do (Welch's interval of `results.stats`), holds in every round, and does not make the answers
as a whole slower (a draft model reads the prompt too). Among ways whose speeds cannot be told apart
the simplest is taken.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kvwise.results.stats import difference
from kvwise.speculate.attempt import Answer, Measured, asked_but_off
from kvwise.speculate.kinds import PLAIN, Variant
from kvwise.text import Phrase, phrase
from kvwise.units import percent

State = Literal["plain", "on", "idle", "off", "failed"]
"""`idle` = on, and nothing was ever drafted; `off` = asked for and not on."""

LEAST_GAIN = 0.02
"""A smaller gain is not worth another flag, however quiet the machine is."""
ROUNDS_NEEDED = 2
"""One round has no spread."""


@dataclass(frozen=True, slots=True)
class Range:
    """Median and extremes of some values."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Range | None:
        """None without values."""
        return cls(min(values), statistics.median(values), max(values)) if values else None

    @property
    def width(self) -> float:
        """How far the extremes lie apart, as a share of the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a text leaves that of plain generation: the prompt, the number of the first token that
    differs, and both texts from there on."""

    prompt: str
    token: int
    plain: str
    here: str


@dataclass(frozen=True, slots=True)
class Summary:
    """All rounds of one variant. Speeds in tokens per second; `gain` and `whole_gain` are ratios to
    plain of the same round (1 = as fast); `rounds` are those that count, `flagged` those that were
    measured beside other work. `rate` = accepted of drafted tokens, `per_pass` = tokens that one
    pass of the target yields, `passes` = its passes for 1,000 tokens."""

    variant: Variant
    state: State
    speed: Range | None
    whole: Range | None
    gain: Range | None
    whole_gain: Range | None
    rounds: int
    flagged: int
    drafted: int
    accepted: int
    rate: float | None
    per_pass: float | None
    passes: float | None
    accepted_length: float | None
    by_position: tuple[float, ...]
    by_prompt: Mapping[str, float]
    divergences: tuple[Divergence, ...]
    why: Phrase | None
    units: tuple[Measured, ...]

    @property
    def same_text(self) -> bool | None:
        """Is the text that of plain generation? None when nothing was generated."""
        return None if self.state in ("off", "failed") else not self.divergences


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do: a variant, or plain generation (`best` None), and why."""

    best: Summary | None
    why: tuple[Phrase, ...]


def summarise(variants: Sequence[Variant], units: Sequence[Measured]) -> tuple[Summary, ...]:
    """One summary per variant, in their order; plain must be among them."""
    by_key = {each.key: [unit for unit in units if unit.key == each.key] for each in variants}
    plain = [unit for unit in by_key[PLAIN] if unit.error is None]
    return tuple(_summary(each, by_key[each.key], plain) for each in variants)


def _summary(variant: Variant, units: Sequence[Measured], plain: Sequence[Measured]) -> Summary:
    done = [unit for unit in units if unit.error is None]
    state, why = _state(variant, units, done)
    usable = done if state in ("plain", "on", "idle") else []
    counted = [unit for unit in usable if not unit.flags] or usable
    pairs = _pairs(counted, plain)
    drafted = sum(answer.drafted for unit in done for answer in unit.answers)
    accepted = sum(answer.accepted for unit in done for answer in unit.answers)
    tokens = sum(unit.tokens for unit in done)
    drafts = sum(unit.drafts for unit in done)
    return Summary(
        variant=variant,
        state=state,
        speed=Range.of([unit.decode_per_s for unit in counted]),
        whole=Range.of([unit.whole_per_s for unit in counted]),
        gain=Range.of([one.decode_per_s / other.decode_per_s for one, other in pairs]),
        whole_gain=Range.of([one.whole_per_s / other.whole_per_s for one, other in pairs]),
        rounds=len(counted),
        flagged=sum(bool(unit.flags) for unit in usable),
        drafted=drafted,
        accepted=accepted,
        rate=accepted / drafted if drafted else None,
        per_pass=tokens / (tokens - accepted) if tokens > accepted else None,
        passes=1000 * (tokens - accepted) / tokens if tokens else None,
        accepted_length=accepted / drafts if drafts else None,
        by_position=_positions(done),
        by_prompt=_by_prompt(counted),
        divergences=_divergences(usable, plain),
        why=why,
        units=tuple(units),
    )


def _state(
    variant: Variant, units: Sequence[Measured], done: Sequence[Measured]
) -> tuple[State, Phrase | None]:
    if not done:
        return "failed", next((unit.error for unit in units if unit.error), None)
    if not variant.speculates:
        return "plain", None
    off = next((why for why in map(asked_but_off, done) if why is not None), None)
    if off is not None:
        return "off", off
    if not any(answer.drafted for unit in done for answer in unit.answers):
        return "idle", phrase("it is on, and found nothing to draft in these texts")
    return "on", None


def _pairs(units: Sequence[Measured], plain: Sequence[Measured]) -> list[tuple[Measured, Measured]]:
    """Each unit with plain generation of its round: what drifts meanwhile drifts in both."""
    by_round = {unit.round: unit for unit in plain if unit.decode_per_s > 0}
    pairs = [(unit, by_round[unit.round]) for unit in units if unit.round in by_round]
    quiet = [(one, other) for one, other in pairs if not other.flags]
    return quiet or pairs


def _positions(units: Sequence[Measured]) -> tuple[float, ...]:
    """The accepted share by position over all rounds, weighted by their drafts."""
    drafts = sum(unit.drafts for unit in units)
    if not drafts:
        return ()
    longest = max(len(unit.by_position) for unit in units)
    padded = [(unit.drafts, [*unit.by_position, *[0.0] * longest][:longest]) for unit in units]
    return tuple(sum(n * shares[at] for n, shares in padded) / drafts for at in range(longest))


def _by_prompt(units: Sequence[Measured]) -> dict[str, float]:
    """The median speed with each prompt."""
    speeds: dict[str, list[float]] = {}
    for unit in units:
        for answer in unit.answers:
            if answer.tokens > 1 and answer.decode_ms:
                speed = (answer.tokens - 1) / answer.decode_ms * 1000
                speeds.setdefault(answer.prompt, []).append(speed)
    return {name: statistics.median(values) for name, values in speeds.items()}


def _divergences(units: Sequence[Measured], plain: Sequence[Measured]) -> tuple[Divergence, ...]:
    """Prompts whose text is not plain's, each once; plain itself is compared with its first run."""
    if not units or not plain:
        return ()
    models = {answer.prompt: answer for answer in plain[0].answers}
    found: dict[str, Divergence] = {}
    for unit in units:
        for answer in unit.answers:
            model = models.get(answer.prompt)
            at = None if model is None else first_difference(model, answer)
            if model is not None and at is not None and answer.prompt not in found:
                found[answer.prompt] = Divergence(
                    answer.prompt, at, _rest(model.text, answer.text),
                    _rest(answer.text, model.text),
                )  # fmt: skip
    return tuple(found.values())


def first_difference(one: Answer, other: Answer) -> int | None:
    """The number (from 0) of the first token that differs; None for the same text."""
    if one.ids == other.ids and one.text == other.text:
        return None
    pairs = enumerate(zip(one.ids, other.ids, strict=False))
    shorter = min(len(one.ids), len(other.ids))
    return next((at for at, (a, b) in pairs if a != b), shorter)


_SHOWN = 40


def _rest(text: str, other: str) -> str:
    """What a text says from where it leaves the other."""
    pairs = enumerate(zip(text, other, strict=False))
    at = next((number for number, (a, b) in pairs if a != b), min(len(text), len(other)))
    return text[at : at + _SHOWN]


def judge(summaries: Sequence[Summary]) -> Verdict:
    """The variant to use, or none. `summaries` as `summarise` made them, plain first."""
    plain = next(each for each in summaries if each.state == "plain" or not each.variant.speculates)
    measured = [each for each in summaries if each.state == "on" and each.gain and each.speed]
    if plain.speed is None:
        return Verdict(None, (phrase("plain generation failed: there is nothing to compare with"),))
    if not measured:
        return Verdict(None, (phrase("nothing was drafted: there is nothing to gain"),))
    fastest = max(measured, key=_gain)
    if min(plain.rounds, fastest.rounds) < ROUNDS_NEEDED:
        why = phrase("one round has no spread, so no gain can be told from noise")
        return Verdict(None, (why, _told(fastest)))
    winners = [each for each in measured if pays(each, plain)]
    if not winners:
        return Verdict(None, (_why_not(fastest, plain), _told(fastest)))
    best = _simplest(winners)
    return Verdict(best, (_told(best),))


def pays(summary: Summary, plain: Summary) -> bool:
    """Is the gain larger than the spread, there in every round, and not lost on the prompt?"""
    gain, whole = summary.gain, summary.whole_gain
    if gain is None or whole is None:
        return False
    return gain.median - 1 > noise(summary, plain) and gain.low > 1 and whole.median > 1


def noise(summary: Summary, plain: Summary) -> float:
    """What chance alone would do to the speeds of both (Welch), and never less than LEAST_GAIN."""
    found = difference(_speeds(plain), _speeds(summary))
    return max(LEAST_GAIN, found.noise or 0.0) if found else LEAST_GAIN


def _speeds(summary: Summary) -> list[float]:
    """Of the rounds that count."""
    done = [unit for unit in summary.units if unit.error is None]
    return [unit.decode_per_s for unit in done if not unit.flags] or [
        unit.decode_per_s for unit in done
    ]


def _gain(summary: Summary) -> float:
    return summary.gain.median if summary.gain else 0.0


def _simplest(winners: Sequence[Summary]) -> Summary:
    """Of those within the spread of the fastest: without a second model first, then the least
    depth, which holds on text that is harder to guess."""
    fastest = max(winners, key=_gain)
    near = [each for each in winners if _gain(each) >= _gain(fastest) * (1 - _blur(each, fastest))]
    return min(
        near,
        key=lambda each: (
            each.variant.kind.startswith("draft-"), each.variant.depth or 0, -_gain(each),
        ),
    )  # fmt: skip


def _blur(one: Summary, other: Summary) -> float:
    """Gains this close (as a share) are not told apart."""
    return max(LEAST_GAIN, *(each.gain.width / 2 for each in (one, other) if each.gain))


def _percent(ratio: float) -> str:
    return percent(ratio - 1, "+.0f")


def _told(summary: Summary) -> Phrase:
    gain = summary.gain or Range(1.0, 1.0, 1.0)
    return phrase(
        "{variant}: {gain} tokens/s against plain, {low} to {high}, rounds: {rounds}",
        variant=summary.variant.key, gain=_percent(gain.median), low=_percent(gain.low),
        high=_percent(gain.high), rounds=summary.rounds,
    )  # fmt: skip


def _why_not(fastest: Summary, plain: Summary) -> Phrase:
    gain = fastest.gain or Range(1.0, 1.0, 1.0)
    if gain.median <= 1:
        return phrase("nothing is faster than plain generation")
    spread = noise(fastest, plain)
    if gain.median - 1 <= spread or gain.low <= 1:
        return phrase(
            "the fastest gains {gain}, and chance alone would do {spread}",
            gain=_percent(gain.median), spread=percent(spread),
        )  # fmt: skip
    return phrase(
        "the fastest generates faster, and its answers as a whole take longer: the draft reads "
        "the prompt too"
    )
