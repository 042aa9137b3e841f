"""One case judged: who keeps more on the cards, who has more context, and is it safe."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

WIN, TIE, LOSS = "win", "tie", "loss"
MORE_CONTEXT = "more context, less on the cards"
MORE_ON_CARDS = "more on the cards, less context"
PIPELINED = "prompts in a pipeline, less context"
UNPIPELINED = "more context, prompts not in a pipeline"
TRADES = (MORE_CONTEXT, MORE_ON_CARDS, PIPELINED, UNPIPELINED)


def against(mine: Row | None, theirs: Row | None) -> str:
    """Ours beside llama.cpp's. What counts is the context, and the bytes of weights that a token
    reads from the host (then whole layers: an encoder's output reads nothing). Where those are the
    same, a pipeline that one side gives up (any `-ot` ends it) makes a longer context a trade."""
    if mine is None or theirs is None:
        return TIE if mine is theirs else LOSS if mine is None else WIN
    longer, shorter = mine["n_ctx"] > theirs["n_ctx"], mine["n_ctx"] < theirs["n_ctx"]
    here, there = ((side["read"], -side["layers"]) for side in (mine, theirs))
    faster, slower = here < there, here[0] > there[0]
    slower = slower or mine["cache_on_gpu"] < theirs["cache_on_gpu"]
    if longer and slower:
        return MORE_CONTEXT
    if shorter and faster:
        return MORE_ON_CARDS
    piped = mine["pipeline"] != theirs["pipeline"] and here == there and not slower
    if piped and longer == theirs["pipeline"] and longer != shorter:
        return UNPIPELINED if longer else PIPELINED
    if shorter or slower:
        return LOSS
    return WIN if longer or faster else TIE


def room(case_free: list[int], margin: int, low: list[int], high: list[int]) -> str:
    """Whether what was printed fits on every card beside the margin: yes, no, unsure."""
    rooms = [free - margin for free in case_free]
    if any(size > most for size, most in zip(low, rooms, strict=True)):
        return "no"
    if all(size <= most for size, most in zip(high, rooms, strict=True)):
        return "yes"
    return "unsure"
