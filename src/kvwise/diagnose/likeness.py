"""Lines that nothing knows, beside public texts whose cause is known: which kinds they are like.

`data/diagnose/words.json` counts, for each kind, in how many labelled texts a word stood
(`scripts/doctor_words.py` writes it from the tests' texts). A kind scores the sum, over the words
of a log, of log(how often its texts have the word / how often the others have it).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

from kvwise.diagnose.case import Case
from kvwise.engine.wordings import signals

HEALTHY = ""
"""The kind of a text in which nothing is wrong."""
MEMORY = "%memory"
"""The mark of lines that speak of memory that was refused."""
_ODD = ("%gone", "%wrong", "%unknown", "%above", "%failed", MEMORY)
_GOES_ON = re.compile(f"{signals.GOES_ON}|{signals.ADVICE}", re.ASCII | re.IGNORECASE)
_LETTERS = 6  # of a word: "allocate", "allocated" and "allocation" are one
_SHORTEST = 3
_TAIL = 3
_LONGEST = 400  # characters of a line that are looked at
_SMOOTH = 0.1
_NOISE = re.compile(
    r"\b(?:time|date|source|level|tid|timestamp)=\S{1,200}|\b0x[0-9a-f]{1,16}\b|"
    r"[\w.:-]{0,60}[/\\][\w./\\-]{1,200}"
)
"""Times, addresses and paths: no words of a cause."""
_WORD = re.compile(r"[A-Za-z]{2,40}")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_MARKS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.ASCII | re.IGNORECASE)
    for name, pattern in {
        MEMORY: signals.NO_MEMORY,
        "%gone": signals.GONE,
        "%not": signals.NOT,
        "%wrong": signals.WRONG,
        "%unknown": signals.UNKNOWN,
        "%device": signals.GPU,
        "%failed": signals.FAILED,
        "%above": r"exceed|too (?:large|long|big|many)|larger|greater",
        "%stopped": r"assert|abort|segfault|segmentation|core dump|access violation|panic|signal|"
        r"terminat|exit",
        "%load": r"\bload",
        "%net": r"connect|https?\b|socket|\bport\b|\burl\b",
        "%time": r"time.?out|timed|waiting|stuck",
    }.items()
}
"""What kind of words a line has, however they are put."""


class Counts(NamedTuple):
    """How many texts there are of each kind, and for a word how many of them have it."""

    texts: Mapping[str, int]
    words: Mapping[str, Mapping[str, int]]

    @property
    def total(self) -> int:
        return sum(self.texts.values())


def words_of(case: Case) -> frozenset[str]:
    """Words of the lines that may say why, marks of what they speak of, how far the load was."""
    found = {f"@{case.stage}"}
    for line in _lines(case):
        text = line[:_LONGEST]
        found.update(name for name, pattern in _MARKS.items() if pattern.search(text))
        plain = _HUMP.sub(" ", _NOISE.sub(" ", text).replace("_", " "))
        found.update(
            word[:_LETTERS].lower() for word in _WORD.findall(plain) if len(word) >= _SHORTEST
        )
    return frozenset(found)


def odd(text: str) -> bool:
    """Does a line speak of something that is wrong?"""
    return any(_MARKS[name].search(text[:_LONGEST]) for name in _ODD)


def goes_on(text: str) -> bool:
    """Does a line say what is done instead, or what may be?"""
    return bool(_GOES_ON.search(text[:_LONGEST]))


def _lines(case: Case) -> Iterable[str]:
    yield from (text for line, text in case.said.suspects if line >= case.begins)
    yield from (record.text for record in case.loaded.failures)
    yield from (text for line, text in case.said.tail[-_TAIL:] if line >= case.begins)


def told(words: frozenset[str]) -> int:
    """How many of the words are counted: of lines that say next to nothing, nothing is said."""
    return sum(word[0] not in "@%" and word in _counts().words for word in words)


def scores(words: frozenset[str]) -> dict[str, float]:
    """Kinds by how like their texts a log with these words is, the likest first."""
    counts = _counts()
    known = [counts.words[word] for word in words if word in counts.words]
    found = {kind: _score(kind, known, counts) for kind in counts.texts}
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def _score(kind: str, known: Iterable[Mapping[str, int]], counts: Counts) -> float:
    of_kind = counts.texts[kind]
    others = counts.total - of_kind
    score = 0.5 * math.log(of_kind / counts.total)
    for each in known:
        have = sum(each.values())
        unseen = _SMOOTH * have / counts.total
        here = (each.get(kind, 0) + unseen) / (of_kind + _SMOOTH)
        there = (have - each.get(kind, 0) + unseen) / (others + _SMOOTH)
        score += math.log(here / there)
    return score


@cache
def _counts() -> Counts:
    text = resources.files("kvwise").joinpath("data/diagnose/words.json").read_text("utf-8")
    return decoded(json.loads(text))


def decoded(document: Mapping[str, object]) -> Counts:
    """Counts as they are kept: a word's are pairs of a kind's number and how many."""
    texts: dict[str, int] = document["texts"]  # type: ignore[assignment]
    rows: dict[str, list[int]] = document["words"]  # type: ignore[assignment]
    kinds = list(texts)
    return Counts(
        texts,
        {
            word: {kinds[kind]: count for kind, count in zip(row[::2], row[1::2], strict=True)}
            for word, row in rows.items()
        },
    )
