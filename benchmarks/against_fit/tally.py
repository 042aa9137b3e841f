"""Counts and means over the rows of a run."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from losses import excused, offered
from verdict import LOSS, TIE, TRADES, WIN, against

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Against:
    """One plan beside llama.cpp's choice over many cases. `ratio`: geometric mean of the contexts
    where ours reads no more from the host, over `compared` cases; `tight` the same where llama.cpp
    had to give something up. `layers`: whole layers on the cards, ours and theirs, in `both`."""

    cases: int
    win: int
    tie: int
    loss: int
    excused: int
    traded: int
    traded_badly: int
    ratio: float
    compared: int
    tight: float
    tight_cases: int
    layers: tuple[int, int]
    read: tuple[int, int]
    only_ours: int
    only_theirs: int


def tally(rows: Sequence[Row], kind: str) -> Against:
    rows = [row for row in rows if kind in row]
    pairs = [(row[kind]["judged"], row["theirs"]["judged"]) for row in rows]
    found = Counter(against(mine, other) for mine, other in pairs)
    lost = [row for row, pair in zip(rows, pairs, strict=True) if against(*pair) == LOSS]
    traded = [row for row, pair in zip(rows, pairs, strict=True) if against(*pair) in TRADES]
    both = [(mine, other) for mine, other in pairs if mine and other]
    fair = [(mine, other) for mine, other in both if mine["read"] <= other["read"]
            and mine["cache_on_gpu"] >= other["cache_on_gpu"]]  # fmt: skip
    rest = {id(other): row for row, (_, other) in zip(rows, pairs, strict=True) if other}
    hard = [pair for pair in fair if gave_up(rest[id(pair[1])])]
    return Against(
        cases=len(rows),
        win=found[WIN],
        tie=found[TIE],
        loss=found[LOSS],
        excused=sum(excused(row) for row in lost),
        traded=len(traded),
        traded_badly=sum(not (offered(row, kind) or excused(row)) for row in traded),
        ratio=_mean(fair),
        compared=len(fair),
        tight=_mean(hard),
        tight_cases=len(hard),
        layers=_sums(both, "layers"),
        read=_sums(both, "read"),
        only_ours=sum(other is None and mine is not None for mine, other in pairs),
        only_theirs=sum(mine is None and other is not None for mine, other in pairs),
    )


def _mean(pairs: Sequence[tuple[Row, Row]]) -> float:
    logs = [math.log(mine["n_ctx"] / other["n_ctx"]) for mine, other in pairs]
    return math.exp(statistics.fmean(logs)) if logs else math.nan


def _sums(pairs: Iterable[tuple[Row, Row]], name: str) -> tuple[int, int]:
    mine, other = 0, 0
    for a, b in pairs:
        mine, other = mine + a[name], other + b[name]
    return mine, other


def gave_up(row: Row) -> bool:
    """Llama.cpp had to shorten the context or to leave weights on the host."""
    judged = row["theirs"]["judged"]
    return judged is not None and (judged["read"] > 0 or judged["n_ctx"] < judged["trained"])


def overflows(row: Row) -> bool:
    """What its choice really reserves is more than there is."""
    judged = row["theirs"]["judged"]
    return judged is not None and min(judged["left"]) + row["case"]["margin"] < 0


@dataclass(frozen=True, slots=True)
class Safe:
    """Our plans before the engine's pass (or the ledger): how many fit, and how many have room for
    one step more; `least` is the bytes left on the tightest card, at the median."""

    plans: int
    fit: Counter[str]
    further: dict[str, Counter[str]]
    unused: float
    unused_theirs: float


def safe(rows: Sequence[Row], kind: str, by: str) -> Safe:
    mine = [row for row in rows if row.get(f"{kind} said", {}).get("by") == by]
    further: dict[str, Counter[str]] = {"tokens": Counter(), "layer": Counter()}
    for row in mine:
        for step, answer in row[f"{kind} said"]["further"].items():
            further[step][answer.partition(":")[0]] += 1
    tight = [row for row in mine if gave_up(row)]
    return Safe(
        plans=len(mine),
        fit=Counter(row[f"{kind} said"]["fits"].partition(":")[0] for row in mine),
        further=further,
        unused=_median(sum(row[kind]["judged"]["left"]) for row in tight),
        unused_theirs=_median(sum(row["theirs"]["judged"]["left"]) for row in tight),
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """Answers per second of both sides over the same cases, in one run, taking turns; `ratio` =
    geometric mean of theirs over ours, case by case, in processor time."""

    cases: int
    ours: float
    theirs: float
    ratio: float
    median_ours: float
    median_theirs: float


def pace(rows: Sequence[Row], kind: str, clock: str) -> Pace:
    pairs = [(row[kind]["took"][clock], row["theirs"]["took"][clock])
             for row in rows if kind in row]  # fmt: skip
    mine, other = [a for a, _ in pairs], [b for _, b in pairs]
    logs = [math.log(b / a) for a, b in pairs if a > 0 and b > 0]
    return Pace(
        len(pairs),
        len(mine) / sum(mine) if mine else math.nan,
        len(other) / sum(other) if other else math.nan,
        math.exp(statistics.fmean(logs)) if logs else math.nan,
        _median(mine),
        _median(other),
    )


def _median(values: Iterable[float]) -> float:
    known = list(values)
    return statistics.median(known) if known else math.nan


def where(rows: Sequence[Row], test: Callable[[Row], bool]) -> list[Row]:
    return [row for row in rows if test(row)]
