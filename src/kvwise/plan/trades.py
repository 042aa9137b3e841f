"""The Pareto set: alternatives of which none is worse in everything, and what each one trades."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kvwise.plan.quality import CLASSES
from kvwise.plan.speed import Speed, against
from kvwise.plan.speed.words import number as digits
from kvwise.text import Phrase, phrase
from kvwise.units import show

_FACTOR = 2  # more than so many times is no percentage any more
_ALIKE = 0.03  # speeds and contexts this close are the same to a person


class Offer(Protocol):
    """What is compared: a launch with its context, quality and speed."""

    @property
    def slot_tokens(self) -> int: ...
    @property
    def quality(self) -> str: ...
    @property
    def pipeline(self) -> bool: ...
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
    reads prompts no slower, and answers faster by more than a hair, or as fast as far as
    measurements can tell with a better quality; None where speeds are not known or nothing is
    better in all of this."""
    found = [
        (_speeds(each)[0], number) for number, each in enumerate(others) if _outdoes(each, chosen)
    ]
    return max(found)[1] if found else None


def _outdoes(one: Offer, other: Offer) -> bool:
    (answers, prompts), (slow, slow_prompts) = _speeds(one), _speeds(other)
    classes = CLASSES.index(one.quality), CLASSES.index(other.quality)
    if one.slot_tokens < other.slot_tokens or classes[0] > classes[1] or not slow:
        return False
    if slow < answers - _hair(answers) and prompts >= slow_prompts:
        return True
    better = classes[0] < classes[1] and against.measured(one.speed, other.speed)
    return better and not _slower(one, other)


def _speeds(offer: Offer) -> tuple[float, float]:
    """Tokens per second of answers and prompts; zero = not known."""
    speed = offer.speed
    return (
        speed.decode.middle if speed.decode else 0.0,
        speed.prompt.middle if speed.prompt else 0.0,
    )


def _values(offer: Offer) -> tuple[float, float]:
    """Context and quality: larger is better."""
    return float(offer.slot_tokens), -float(CLASSES.index(offer.quality))


def _worse(one: Offer, other: Offer) -> bool:
    """Whether `other` is at least as good in everything, give or take a hair; a speed that is not
    told from noise is as good."""
    alike = all(b >= a - _hair(a) for a, b in zip(_values(one), _values(other), strict=True))
    return alike and not _slower(other, one)


def _slower(one: Offer, other: Offer) -> bool:
    """Without speeds: reads more from the host."""
    if one.speed.decode is None or other.speed.decode is None:
        here, there = one.speed.read_bytes_host, other.speed.read_bytes_host
        return here > there + _hair(there)
    ratio = against.decode(one.speed, other.speed)
    return ratio is not None and ratio < 1 - _ALIKE


def gains(chosen: Offer, other: Offer) -> bool:
    """Whether an alternative is better than the choice in anything that its trades name."""
    more = other.slot_tokens > chosen.slot_tokens + _hair(chosen.slot_tokens)
    better = CLASSES.index(other.quality) < CLASSES.index(chosen.quality)
    return more or better or _slower(chosen, other) or _reads_less(chosen, other) > 0


def _reads_less(chosen: Offer, other: Offer) -> int:
    """Bytes from the host that an alternative saves each token, where they are its gain: speeds
    are not known, or hardly differ with a cache as good."""
    less = max(0, chosen.speed.read_bytes_host - other.speed.read_bytes_host)
    as_good = CLASSES.index(other.quality) <= CLASSES.index(chosen.quality)
    faster = _slower(chosen, other)
    if chosen.speed.decode is None or other.speed.decode is None:
        return less if as_good or faster else 0
    return less if as_good and not faster and not _slower(other, chosen) else 0


def _same(one: Offer, other: Offer) -> bool:
    return _worse(one, other) and _worse(other, one)


def _hair(value: float) -> float:
    return abs(value) * _ALIKE


def _pipeline(chosen: Offer, other: Offer) -> Iterator[Phrase]:
    if chosen.pipeline and not other.pipeline and not other.speed.read_bytes_host:
        yield phrase("the GPUs do not read a prompt in a pipeline: long prompts take longer")


def trades(chosen: Offer, other: Offer) -> Phrase:
    """What an alternative gives and takes against the choice."""
    parts = [
        *_context(chosen, other),
        *_quality(chosen, other),
        *_speed(chosen, other),
        *_pipeline(chosen, other),
    ]
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
    if less := _reads_less(chosen, other):
        yield phrase("reads {size} less from the host for each token", size=show(less))
    if chosen.speed.decode is None or other.speed.decode is None:
        more = other.speed.read_bytes_host - chosen.speed.read_bytes_host
        if more > _hair(chosen.speed.read_bytes_host):
            yield phrase("reads {size} more from the host for each token", size=show(more))
        return
    ratio = against.decode(other.speed, chosen.speed)
    if ratio is not None and abs(ratio - 1) > _ALIKE:
        percent = round(100 * abs(ratio - 1))
        if ratio > _FACTOR:
            yield phrase("answers {factor} times as fast", factor=digits(ratio))
        elif ratio > 1:
            yield phrase("answers {percent} % faster", percent=percent)
        else:
            yield phrase("answers {percent} % slower", percent=percent)
