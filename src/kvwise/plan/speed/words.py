"""Speeds in words."""

from __future__ import annotations

from kvwise.plan.speed.estimate import MEASURED, Speed
from kvwise.plan.speed.roofline import Range
from kvwise.text import Phrase, phrase

_PLAIN = 10  # from here on tenths of a token say nothing
_FACTOR = 2  # above it "times as fast" is read more easily than per cent
_HAIR = 0.03  # ratios closer to 1 are no difference


def number(tokens_per_s: float) -> str:
    """`7.6`, `26`, `1,240`: as many digits as mean something."""
    if tokens_per_s < _PLAIN:
        return f"{tokens_per_s:.1f}"
    if tokens_per_s < 1000:
        return f"{tokens_per_s:.0f}"
    return f"{round(tokens_per_s, -1):,.0f}"


def span(found: Range) -> Phrase | str:
    """`26 to 45`, or one number where both ends read the same."""
    low, high = number(found.low), number(found.high)
    return low if low == high else phrase("{low} to {high}", low=low, high=high)


def sentence(speed: Speed) -> Phrase | None:
    """How fast, at which depth, and whether that was measured; None where nothing is known."""
    fields = {"depth": speed.depth}
    if speed.decode and speed.prompt:
        said = phrase(
            "{decode} tokens per second with {depth:,} in the context, prompts read at {prompt}",
            decode=span(speed.decode), prompt=span(speed.prompt), **fields,
        )  # fmt: skip
    elif speed.decode:
        said = phrase(
            "{decode} tokens per second with {depth:,} in the context",
            decode=span(speed.decode), **fields,
        )  # fmt: skip
    elif speed.prompt:
        said = phrase("prompts read at {prompt} tokens per second", prompt=span(speed.prompt))
    else:
        return None
    basis = speed.basis if speed.decode else speed.prompt_basis
    if basis == MEASURED:
        return phrase("{speed} (measured here)", speed=said)
    if basis == "corrected":
        return phrase("{speed} (worked out, corrected by measurements here)", speed=said)
    return phrase("{speed} (worked out, not measured)", speed=said)


def answers(ratio: float) -> Phrase:
    """How much faster or slower answers come; above twice as fast a factor says it better."""
    if ratio > _FACTOR:
        return phrase("answers come {factor} times as fast", factor=number(ratio))
    if ratio > 1:
        return phrase("answers come {percent} % faster", percent=_percent(ratio))
    return phrase("answers come {percent} % slower", percent=_percent(ratio))


def prompts(ratio: float) -> Phrase:
    """The same for reading prompts."""
    if ratio > _FACTOR:
        return phrase("prompts are read {factor} times as fast", factor=number(ratio))
    if ratio > 1:
        return phrase("prompts are read {percent} % faster", percent=_percent(ratio))
    return phrase("prompts are read {percent} % slower", percent=_percent(ratio))


def with_speed(said: Phrase, decode: float | None, prompt: float | None) -> Phrase:
    """A sentence, and behind it what changes in speed by more than a hair."""
    if decode is not None and abs(decode - 1) > _HAIR:
        said = phrase("{said}; {more}", said=said, more=answers(decode))
    if prompt is not None and abs(prompt - 1) > _HAIR:
        said = phrase("{said}; {more}", said=said, more=prompts(prompt))
    return said


def _percent(ratio: float) -> int:
    return round(100 * abs(ratio - 1))
