"""What somebody tells in words where a log says nothing: slow, garbled, stuck, growing.

Of the 57 dev reports 18 have no line of a log. Asked with the hints, and only of a few lines in
which nothing failed and no load came to its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from kvwise.diagnose.case import Case, Seen
from kvwise.diagnose.finding import Hit, Rule, When
from kvwise.text import template

_SURE = 0.52
"""A little more than the plain words of one line: several things were told that go together."""
_MOST = 30
"""Lines of a description; so many of the end of a log are kept."""
_TYPE = r"(?:q[458]_[01]|iq4_nl)"
_CACHE = (
    rf"(?:-ct[kv]|--cache-type-[kv]|KV_CACHE_TYPE|type_[kv]|\b[KV] ?=)\W{{0,3}}(?:type_v = )?"
    rf"{_TYPE}|quanti[sz]ed (?:k/?v|v|cache)|\bk/?v.{{0,20}}(?:quanti[sz]|{_TYPE})"
)
_SLOW = (
    r"\bslow\w*|\bspeed (?:is )?(?:down|drop|fall|fell|halv|collaps)\w*"
    r"|\btimes (?:as )?(?:long|slow)|performance (?:drop|degrad|regress|collaps)\w*"
    r"|\d ?(?:x|times) (?:less|lower)|\bcrawl"
)
_SPEED = r"tok/s|tokens/s|\bt/s\b|\bspeed\b|\bstalls\b"
_PROCESSOR = r"\bCPU\b.{0,20}(?:busy|active|maxed|pegged|100|high|load|bound|core)|on the CPU\b"
_FULL = (
    r"\bGTT\b|shared (?:GPU |video )?memory\b(?!:)|\bsysmem\b|system.memory fallback"
    r"|over-?commit|\bspill|VRAM (?:is |was )?(?:full|over|exhaust)|memory bandwidth"
)
_NONSENSE = (
    r"\bgibberish|\bgarbage\b|\bgarbled|\bnonsens|\btoken soup|\bword salad|\bmojibake|\bincoheren"
    r"|endless (?:stream|string|row) of|random (?:characters|tokens|symbols|text)"
    r"|corrupt(?:ed)? (?:output|text|answer)"
    r"|(?:output|answer|repl)\w* (?:is|are|turns?|becomes?) (?:broken|wrong|unusable)"
)
_LOOPS = r"degenerat\w+|repeats? (?:itself|the same|forever|one)|\bloops?\b|repetiti"
_STUCK = (
    r"\bhangs?\b|\bhung\b|\bfreez|\bfrozen\b|\bstuck\b"
    r"|\b(?:stops|stalls|stays) (?:after|at|during)\b"
    r"|never (?:finish|return|respond|load|end|start)|no (?:more |further )?(?:output|progress)\b"
)
_GROWS = (
    r"\b(?:grow|climb|creep|leak|ratchet|balloon|accumulat)\w*|keeps? (?:increas|ris)\w*"
    r"|\bincreas\w* (?:with|every|each|over|until)|never (?:returns|shrinks|goes down|is released)"
    r"|\bafter (?:a day|hours|days|\d+ ?(?:h|hours|days|requests|turns))\b|\bunbounded\b"
)
_GPU_MEMORY = r"\bVRAM\b|nvidia-smi|(?:GPU|video|device) memory"
_HOST_MEMORY = r"\bRSS\b|\bRAM\b|(?:system|host|resident) memory|\bswap\b"
_SHARE = (
    r"one \w{2,10}th of|divided (?:by|between)|(?:each|per) (?:slot|request|user) (?:gets|has|only)"
)
_BLOCK = (
    r"\blimit\w* (?:of|to) \d+ ?[MG]i?B|\b\d+ ?[MG]i?B (?:allocation |buffer )?limit\b"
    r"|max(?:MemoryAllocation|Buffer|StorageBuffer)\w*"
)
_SHORT = r"out of memory|\bOOM\b|\bspikes?\b|multi-GiB|does(?:n't| not) fit"

_PROGRAM = re.compile(
    r"(?:\d[\d.]{5,20} [IWEDT] )?(?:(?:ggml|llama|llm|load|common|clip|print|sched|graph|main|init)"
    r"\w*|srv|slot|que)\b.{0,20}: |time=|level=|\[GIN\]|.{0,40}\[(?:INFO|DEBUG|WARN|ERROR)",
    re.ASCII | re.IGNORECASE,
)
"""Lines of a log: no person speaks."""

_TOLD: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("fit-gap-mtp", (r"\bMTP\b|draft-mtp|draft context|built-in draft", _SHORT), "vocab"),
    ("fit-gap-mmproj", (r"mmproj|vision projector|CLIP using", _SHORT), "OOM killer|RSS|RAM"),
    ("fa-kernel-fallback", (_CACHE, _SLOW, _PROCESSOR), _FULL),
    ("fa-kernel-fallback", (r"\bK ?= ?(\w+)\W{1,3}V ?= ?(?!\1)\w+.{0,40}slow",), _FULL),
    ("vram-spill-slow", (_FULL, rf"{_SLOW}|{_SPEED}"), "CPU busy"),
    ("single-allocation-limit", (_BLOCK, r"\balloc\w*|\bbuffer"), _GROWS),
    ("kernel-bug-garbage", (_NONSENSE,), ""),
    ("kv-quant-quality", (_CACHE, _LOOPS), _NONSENSE),
    ("runtime-vram-growth", (_GPU_MEMORY, _GROWS), ""),
    ("host-ram-growth", (_HOST_MEMORY, _GROWS), _GPU_MEMORY),
    ("slot-split", (r"-np \d|--parallel|n_parallel|\bslots?\b", _SHARE), ""),
    ("hang", (_STUCK, r"no error|\bidle\b|forever|hours|minutes|100 ?%"), _SHORT),
)  # fmt: skip
"""Kind, what must be told, and what speaks against it."""

_CAUSE = template("told in words, without a line of a log that says it; the words point at this")


@cache
def _told() -> tuple[tuple[str, tuple[re.Pattern[str], ...], re.Pattern[str] | None], ...]:
    return tuple(
        (kind, tuple(map(_plain, cues)), _plain(but) if but else None) for kind, cues, but in _TOLD
    )


def _plain(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII | re.IGNORECASE)


def _kind_of(case: Case) -> tuple[str, tuple[Seen, ...]] | None:
    """The first kind whose cues are all told, and the lines that tell it."""
    tail = [
        each for each in case.said.tail if each[0] >= case.begins and not _PROGRAM.match(each[1])
    ]
    if case.complete or case.loaded.failures or not case.is_last or case.said.lines > _MOST:
        return None
    whole = "\n".join(text for _, text in tail)
    for kind, cues, but in _told():
        if all(cue.search(whole) for cue in cues) and not (but and but.search(whole)):
            return kind, tuple(
                Seen("told", {}, line, text, case.stage, fitting=False, beside="")
                for line, text in tail
                if any(cue.search(text) for cue in cues)
            )
    return None


def _when(kind: str) -> When:
    def when(case: Case) -> Hit | None:
        found = _kind_of(case)
        return Hit(_SURE, found[1][:3]) if found and found[0] == kind else None

    return when


def rules(others: Iterable[Rule]) -> tuple[Rule, ...]:
    """A rule for each kind that can be told; what helps is what helps against the kind itself."""
    first: dict[str, Rule] = {}
    for rule in sorted(others, key=lambda rule: not rule.memory):
        first.setdefault(rule.kind, rule)
    return tuple(
        replace(first[kind], name=f"told-{kind}", when=_when(kind), cause=_CAUSE)
        for kind in dict.fromkeys(kind for kind, _, _ in _TOLD)
    )
