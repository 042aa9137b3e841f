"""Output that is wrong: a cache too coarse, or a kernel with a bug."""

from __future__ import annotations

import re
from itertools import pairwise

from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.finding import FAIR, LIKELY, POSSIBLE, WEAK, Hit, Rule
from kvwise.diagnose.known import bad_build
from kvwise.diagnose.rules.asking import failed, remedy, words
from kvwise.diagnose.rules.remedies import (
    F16_CACHE,
    NO_FLASH,
    OTHER_BUILD,
)
from kvwise.text import template

_COARSE = frozenset({"q4_0", "q4_1", "iq4_nl", "q5_0"})


def types_of(case: Case) -> tuple[str | None, str | None]:
    """Cache types that the log or a command line in it names."""
    for each in case.caches():
        if each.type_k:
            return each.type_k, each.type_v
    told = words(case).split()
    found: dict[str, str] = {}
    for flag, value in pairwise(told):
        if flag in ("-ctk", "--cache-type-k", "--kv-cache-type"):
            found["k"] = value
        if flag in ("-ctv", "--cache-type-v", "--kv-cache-type"):
            found["v"] = value
    return found.get("k"), found.get("v")


_AGAIN = re.compile(
    r"\b([A-Za-z]{1,12})(?:[ ,.]{1,2}\1\b){7}|((?=\S{0,9}[A-Za-z])(\S)\S{0,8}(?!\3)\S)\2{7}|"
    r"(?:\[PAD\d*\]){4}|(?:<unk>){4}",
    re.ASCII,
)
"""A word, or a piece of one, over and over: what a broken model writes."""


def repeats(case: Case) -> list[Seen]:
    """Lines of an answer that repeats itself; one that no wording knows only at the log's end."""
    lines = case.all("repeats")
    if lines or case.loaded.failures or not case.is_last:
        return lines
    return [
        Seen("repeats", {}, line, text, case.stage, fitting=False, beside="")
        for line, text in case.said.tail
        if line >= case.begins and _AGAIN.search(text)
    ]


def _coarse(case: Case) -> Hit | None:
    lines = repeats(case)
    k, v = types_of(case)
    if k not in _COARSE:
        return None
    if lines:
        return Hit(LIKELY, tuple(lines[:2]), {"k": k, "v": v or "?"})
    if case.excerpt and not failed(case) and not case.loaded.failures:
        lines = case.all("cache_line", "command")
        return Hit(WEAK, tuple(lines[:2]), {"k": k, "v": v or "?"})
    return None


def _garbage(case: Case) -> Hit | None:
    lines = case.all("nan") or repeats(case)
    k, _ = types_of(case)
    if not lines:
        return None
    return Hit(
        LIKELY if case.has("nan") else FAIR if k not in _COARSE else POSSIBLE, tuple(lines[:3])
    )


def _garbled(case: Case) -> Hit | None:
    """The parser of answers fails on nonsense, with a quantized cache."""
    lines = case.all("parse_failed")
    k, v = types_of(case)
    if not lines:
        return None
    quantized = (k or "f16").startswith("q") or (v or "f16").startswith("q")
    return Hit(FAIR if quantized else WEAK, tuple(lines[:2]))


def _bad_build(case: Case) -> Hit | None:
    """A build with a known bug, used in the way that shows it."""
    build = case.loaded.build
    known = bad_build(build.number) if build else None
    if known is None or known.kind != "kernel-bug-garbage":
        return None
    k, v = types_of(case)
    if not known.applies(k, v):
        return None
    return Hit(
        FAIR,
        tuple(case.all("cache_line")[:1]),
        {"what": known.what, "good": known.good},
        cause=_KNOWN,
    )


_KNOWN = template("this build has a known bug: {what}. {good}")

RULES: tuple[Rule, ...] = (
    Rule(
        "coarse-cache",
        "kv-quant-quality",
        _coarse,
        template(
            "K is kept in {k}: small models lose too much of it, and the text repeats or falls "
            "apart"
        ),
        (
            remedy("keep K in q8_0; V may be coarser", "-ctk q8_0"),
            remedy("or the whole cache in f16", "-ctk f16", "-ctv f16"),
        ),
    ),
    Rule(
        "garbage",
        "kernel-bug-garbage",
        _garbage,
        template(
            "the numbers or the text are nonsense: a kernel of this build, driver or compiler "
            "computes wrongly for this model"
        ),
        (
            OTHER_BUILD,
            F16_CACHE,
            NO_FLASH,
            remedy("on the processor, to see whether it is the GPU", "-ngl 0"),
        ),
    ),
    Rule(
        "garbled",
        "kernel-bug-garbage",
        _garbled,
        template(
            "answers are so garbled that they cannot be parsed: with a quantized cache, look "
            "first at the kernels of this build"
        ),
        (F16_CACHE, OTHER_BUILD),
    ),
    Rule(
        "known-build",
        "kernel-bug-garbage",
        _bad_build,
        _KNOWN,
        (OTHER_BUILD, F16_CACHE),
    ),
)
