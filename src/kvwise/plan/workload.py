"""How long the work that a goal names takes: a prompt read, and an answer behind it.

The order of candidates counts bytes from the host, which is exact. Where the roofline's ranges of
two launches do not even touch, it knows more than the bytes do: about a processor that is short of
arithmetic, a slow bus, or a cache that the processor has to unpack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.plan.goal import Goal
from kvwise.plan.speed import Speed
from kvwise.plan.trades import Offer

_SPEEDY = {"fast", "quick"}
_ANSWER = 512  # tokens of an answer when nobody says


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of one request, at best and at worst."""

    least: float
    most: float


def took(speed: Speed, goal: Goal) -> Took | None:
    """The prompt that was named (else one as deep as is planned for) and its answer; None where
    a speed is not known."""
    if speed.decode is None or speed.prompt is None:
        return None
    prompt = speed.depth if goal.prompt_tokens is None else goal.prompt_tokens
    answer = goal.predict_tokens or _ANSWER
    return Took(
        prompt / speed.prompt.high + answer / speed.decode.high,
        prompt / speed.prompt.low + answer / speed.decode.low,
    )


def clearly_faster(goal: Goal, chosen: Offer, others: Sequence[Offer]) -> int | None:
    """Number of that of `others` which does the goal's work sooner than the choice can, even if
    the one is as slow and the other as fast as may be, and holds as much as the goal calls enough.

    None where there is none, or the goal does not ask for speed.
    """
    here = took(chosen.speed, goal)
    if here is None or not _SPEEDY & set(goal.terms.order) or goal.terms.order[0] == "context":
        return None
    enough = min(chosen.slot_tokens, goal.nearly)
    found = []
    for number, each in enumerate(others):
        there = took(each.speed, goal)
        if there and each.slot_tokens >= enough and there.most < here.least:
            found.append((there.most, number))
    return min(found)[1] if found else None
