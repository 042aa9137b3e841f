"""The Pareto set: alternatives of which none is worse in everything, and what each one trades."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kvwise.plan.quality import CLASSES
from kvwise.plan.speed import Speed
from kvwise.plan.speed.words import number as digits
from kvwise.text import Phrase, phrase

_FACTOR = 2  # more than so many times is no percentage any more
_ALIKE = 0.03  # speeds and contexts this close are the same to a person


class Offer(Protocol):
    """What is compared: a launch with its context, quality and speed."""

    @property
    def slot_tokens(self) -> int: ...
    @property
    def quality(self) -> str: ...
    @property
    def speed(self) -> Speed: ...


def undominated(chosen: Offer, others: Sequence[Offer]) -> list[int]:
    """Numbers of those of `others` that matter: better than the choice and than every other one
    in context, quality or speed by more than a hair; of two that hardly differ the first."""
    kept: list[int] = []
    for number, each in enumerate(others):
        rivals = [chosen, *(other for at, other in enumerate(others) if at != number)]
        earlier = [chosen, *(others[at] for at in kept)]
        worse = any(_worse(each, rival) and not _worse(rival, each) for rival in rivals)
        if not worse and not any(_same(each, rival) for rival in earlier):
            kept.append(number)
    return kept


def outdoing(chosen: Offer, others: Sequence[Offer]) -> int | None:
    """Number of the fastest of `others` that has no less context and quality than the choice,
    reads prompts no slower, and answers faster by more than a hair; None where speeds are not
    known or nothing is better in all of this."""
    found = [
        (_speeds(each)[0], number) for number, each in enumerate(others) if _outdoes(each, chosen)
    ]
    return max(found)[1] if found else None


def _outdoes(one: Offer, other: Offer) -> bool:
    (answers, prompts), (slow, slow_prompts) = _speeds(one), _speeds(other)
    return (
        0 < slow < answers - _hair(answers)
        and prompts >= slow_prompts
        and one.slot_tokens >= other.slot_tokens
        and CLASSES.index(one.quality) <= CLASSES.index(other.quality)
    )


def _speeds(offer: Offer) -> tuple[float, float]:
    """Tokens per second of answers and prompts; zero = not known."""
    speed = offer.speed
    return (
        speed.decode.middle if speed.decode else 0.0,
        speed.prompt.middle if speed.prompt else 0.0,
    )


def _values(offer: Offer) -> tuple[float, float, float]:
    """Context, quality, speed: larger is better. Without a speed, fewer bytes from the host."""
    speed = offer.speed
    swift = speed.decode.middle if speed.decode else -float(speed.read_bytes_host)
    return float(offer.slot_tokens), -float(CLASSES.index(offer.quality)), swift


def _worse(one: Offer, other: Offer) -> bool:
    """Whether `other` is at least as good in everything, give or take a hair."""
    return all(b >= a - _hair(a) for a, b in zip(_values(one), _values(other), strict=True))


def _same(one: Offer, other: Offer) -> bool:
    return _worse(one, other) and _worse(other, one)


def _hair(value: float) -> float:
    return abs(value) * _ALIKE


def trades(chosen: Offer, other: Offer) -> Phrase:
    """What an alternative gives and takes against the choice."""
    parts = [*_context(chosen, other), *_quality(chosen, other), *_speed(chosen, other)]
    if not parts:
        return phrase("as the choice, by another way")
    said = parts[0]
    for part in parts[1:]:
        said = phrase("{first}, {then}", first=said, then=part)
    return said


def _context(chosen: Offer, other: Offer) -> Iterator[Phrase]:
    more = other.slot_tokens - chosen.slot_tokens
    if abs(more) > _hair(chosen.slot_tokens):
        percent = round(100 * abs(more) / max(1, chosen.slot_tokens))
        if other.slot_tokens > _FACTOR * chosen.slot_tokens > 0:
            factor = digits(other.slot_tokens / chosen.slot_tokens)
            yield phrase("{more:,} tokens more ({factor} times as many)", more=more, factor=factor)
        elif more > 0:
            yield phrase("{more:,} tokens more (+{percent} %)", more=more, percent=percent)
        else:
            yield phrase("{less:,} tokens fewer (-{percent} %)", less=-more, percent=percent)


def _quality(chosen: Offer, other: Offer) -> Iterator[Phrase]:
    if chosen.quality != other.quality:
        yield phrase(
            "cache quality {other} instead of {chosen}",
            other=phrase(other.quality), chosen=phrase(chosen.quality),
        )  # fmt: skip


def _speed(chosen: Offer, other: Offer) -> Iterator[Phrase]:
    one, two = chosen.speed.decode, other.speed.decode
    if one is None or two is None:
        return
    ratio = two.middle / one.middle
    if abs(ratio - 1) > _ALIKE:
        percent = round(100 * abs(ratio - 1))
        if ratio > _FACTOR:
            yield phrase("answers {factor} times as fast", factor=digits(ratio))
        elif ratio > 1:
            yield phrase("answers {percent} % faster", percent=percent)
        else:
            yield phrase("answers {percent} % slower", percent=percent)
