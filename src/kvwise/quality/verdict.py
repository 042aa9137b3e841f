"""The verdict on a setting, in one word, and why.

| verdict | class of the planner | divergence beyond the noise | top tokens changed beyond it |
|---|---|---|---|
| lossless | lossless | at most 0.001 nats | at most 2 % |
| high | high | 0.01 | 6 % |
| medium | medium | 0.1 | 18 % |
| broken | low | more | more; or answers that are empty or in loops where f16's are not |

The worse of the two figures decides (`plan.quality.class_of`). A needle, or a sum, that f16 gets
right and the setting does not makes it `medium` at best. One loop more than f16 has is told and
decides nothing: at temperature 0 a small model falls into one by a single changed rounding, f16's
own included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.plan.quality import Fidelity, class_of
from kvwise.quality.prompts import Outcome
from kvwise.text import Phrase, phrase
from kvwise.units import percent

VERDICTS = ("lossless", "high", "medium", "broken")
_OF_CLASS = {"lossless": "lossless", "high": "high", "medium": "medium", "low": "broken"}
_MEDIUM = VERDICTS.index("medium")
_LOOPS = 2
"""More answers in loops than f16 has, from which on it is no chance. Measured: SmolLM2 135M with
K in q8_0, whose divergence is that of its noise, has one of ten; Gemma 3 270M four in f16."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`name` is one of VERDICTS; `why` says what decided, most important first."""

    name: str
    why: tuple[Phrase, ...]


def verdict(found: Fidelity, outcomes: Sequence[Outcome] = ()) -> Verdict:
    """What a setting earns by its divergence and by its answers."""
    place = VERDICTS.index(_OF_CLASS[class_of(found)])
    why: list[Phrase] = []
    gained = sum(each.loops for each in outcomes) - sum(each.base_loop for each in outcomes)
    for each in outcomes:
        if each.broken:
            if each.emptied or gained >= _LOOPS:
                place = len(VERDICTS) - 1
            why.append(_broken(each))
        elif each.lost:
            place = max(place, _MEDIUM)
            why.append(phrase("{name}: wrong, where f16 is right", name=each.name))
        elif each.cut:
            why.append(phrase("{name}: did not come to an end, where f16 did", name=each.name))
    why.append(_by_figures(found))
    why += _by_parting(outcomes)
    return Verdict(VERDICTS[place], tuple(why))


def _broken(found: Outcome) -> Phrase:
    if found.loop is None:
        return phrase("{name}: an empty answer, where f16 gives one", name=found.name)
    return phrase(
        "{name}: repeats the same {period} tokens from token {start} on, where f16 does not",
        name=found.name, period=found.loop.period, start=found.loop.start,
    )  # fmt: skip


def _by_parting(outcomes: Sequence[Outcome]) -> list[Phrase]:
    """Where answers part from f16's, beside where f16's part from each other: at temperature 0 one
    token makes another text, so that this alone decides nothing."""
    known = [each for each in outcomes if each.noise_known and each.diverged_at is not None]
    beyond = [each for each in known if each.beyond_noise]
    if not known:
        return []
    if not beyond:
        return [phrase("answers part from f16's no earlier than f16's own from each other")]
    first = min(each.diverged_at or 0 for each in beyond)
    return [
        phrase(
            "{count} of {total} answers part from f16's earlier than f16's own do, the first at "
            "token {token}",
            count=len(beyond), total=len(outcomes), token=first,
        )
    ]  # fmt: skip


def _by_figures(found: Fidelity) -> Phrase:
    if found.excess == 0.0 and not found.changed:
        return phrase("within the model's own noise")
    changed = found.changed
    if changed is None:
        return phrase("divergence {excess:.4f} beyond the noise", excess=found.excess)
    return phrase(
        "divergence {excess:.4f} and {changed} of the top tokens beyond the noise",
        excess=found.excess, changed=percent(changed, ".1f"),
    )  # fmt: skip
