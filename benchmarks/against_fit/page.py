"""docs/against_fit.md out of the rows of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from losses import badly_traded, excused, shown, title, verdicts
from tally import Against, gave_up, overflows, pace, safe, tally, where
from verdict import LOSS

Row = dict[str, Any]
MIB = 1 << 20

NAMES = {
    "same": "same quality: f16 cache, `-ub 512`",
    "same context": "same quality, at llama.cpp's own context",
    "placed": "same quality, at llama.cpp's own placement",
    "free": "free, quality floor `high`",
    "placed free": "free, at llama.cpp's own placement",
}
HEAD = """# Beside llama.cpp's own `--fit`

Written by `{command}`; do not edit.

Both sides are asked the same: one model, the same cards with all of their memory free, the same
{margin} MiB to keep free on each, one slot. llama.cpp's side is `llama-fit-params` of build
{build} (`--fit on`, `-fitt {margin}`, everything else its default) on virtual devices; kvwise's
side is `kvwise.plan`{commit} in this process. Models are sparse twins of zoo headers: nobody reads
weights.
{count} of {wanted} cases of the `{grid}` grid were asked, in a shuffled order: {models} models,
{cards} sets of cards and rules (`generic`: what a device behind RPC takes; `cuda`: what a
CUDA card takes).

## What `--fit` tries, and what it does not

It shortens the context first (not below `-fitc`, 4,096 by default), then moves layers to the host,
of a mixture of experts the experts first, down to single matrices of a layer. It does not try other
cache types, micro-batches or a cache on the host, knows no prompt and no quality, and trusts its
no-alloc pass, which differs from what is really reserved with several GPUs. It runs in any
llama.cpp without another program, and reads the real free memory itself: no small thing. Where it
does what kvwise does, a tie is the best there is: `same quality` below.

What counts is the context and the bytes of weights that a token reads from the host; "layers" are
those that lie wholly on the cards. A case is a win when ours is better in one and not worse in the
other, a trade when it is better in one and worse in the other, or longer but without the pipeline
in which several CUDA cards read a prompt (any `-ot` ends it). All figures of memory are what is
really reserved, by the ledger that [accuracy.md](accuracy.md) checks.
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """Of which build, which grid, how many cases that grid has, and of which commits of ours the
    cases and the clock's are."""

    build: str
    grid: str
    wanted: int
    commit: str = ""
    clock_commit: str = ""


def write(rows: list[Row], turns: list[Row], failed: list[str], asked: Asked) -> str:
    """The whole page; `turns` are the cases that were asked once more for the clock."""
    if not rows:
        return "nothing was asked\n"
    case = rows[0]["case"]
    head = HEAD.format(
        command=f"python benchmarks/against_fit FOLDER --grid {asked.grid}",
        margin=case["margin"] // MIB,
        build=asked.build,
        count=len(rows),
        wanted=asked.wanted,
        grid=asked.grid,
        commit=f" of commit {asked.commit}" if asked.commit else "",
        models=len({row["case"]["model"] for row in rows}),
        cards=len({(tuple(row["case"]["cards"]), row["case"]["kind"]) for row in rows}),
    )
    parts = [head, *_results(rows), _by_cards(rows), _better(rows), _its_own(rows), _safety(rows)]
    if turns:
        parts.append(_pace(turns, asked.clock_commit or asked.commit))
    if failed:
        parts.append("## Not asked\n\n" + "\n".join(f"- {why}" for why in failed) + "\n")
    return "\n".join(parts)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(titles) + " |", "|---" + "|---:" * (len(titles) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _results(rows: list[Row]) -> list[str]:
    titles = (
        "kvwise's plan", "cases", "win", "tie", "loss", "of them, llama.cpp breaks the margin",
        "trade", "of them, nothing as good in both offered", "only kvwise has one",
        "only llama.cpp has one",
    )  # fmt: skip
    found = {kind: tally(rows, kind) for kind in NAMES}
    lines = [
        (NAMES[kind], *map(str, (each.cases, each.win, each.tie, each.loss, each.excused,
                                 each.traded, each.traded_badly, each.only_ours,
                                 each.only_theirs)))
        for kind, each in found.items()
    ]  # fmt: skip
    more = (
        "kvwise's plan", "context, times llama.cpp's (geometric mean)", "cases",
        "where llama.cpp gave something up", "cases", "layers on the cards, ours", "theirs",
        "read from the host, times llama.cpp's",
    )  # fmt: skip
    figures = [_figures(NAMES[kind], each) for kind, each in found.items()]
    return [
        "## Results\n",
        _table(titles, lines),
        "Contexts are compared where ours reads no more from the host than llama.cpp's choice.\n",
        _table(more, figures),
    ]


def _figures(name: str, each: Against) -> tuple[str, ...]:
    read = each.read[0] / each.read[1] if each.read[1] else math.nan
    return (
        name, f"{each.ratio:.2f}", str(each.compared), f"{each.tight:.2f}", str(each.tight_cases),
        f"{each.layers[0]:,}", f"{each.layers[1]:,}", f"{read:.3f}",
    )  # fmt: skip


def _by_cards(rows: list[Row]) -> str:
    groups = {
        "one card": where(rows, lambda row: len(row["case"]["cards"]) == 1),
        "two equal cards": where(rows, lambda row: len(row["case"]["cards"]) == 2
                                 and len(set(row["case"]["cards"])) == 1),
        "two unequal cards": where(rows, lambda row: len(set(row["case"]["cards"])) == 2),
    }  # fmt: skip
    lines = []
    for name, members in groups.items():
        for rules in ("generic", "cuda"):
            mine = where(members, lambda row, rules=rules: row["case"]["kind"] == rules)
            if not mine:
                continue
            same, free, placed = (tally(mine, kind) for kind in ("same", "free", "placed free"))
            lines.append(
                (
                    f"{name}, {rules}", str(len(mine)), f"{same.tight:.2f}", f"{free.tight:.2f}",
                    f"{placed.tight:.2f}", f"{same.win}/{same.tie}/{same.loss}/{same.traded}",
                    f"{free.win}/{free.tie}/{free.loss}/{free.traded}",
                )
            )  # fmt: skip
    titles = (
        "cards and rules", "cases", "context, same quality", "free",
        "free, llama.cpp's placement", "win/tie/loss/trade, same quality", "free",
    )  # fmt: skip
    return "## By cards\n\nContexts where llama.cpp gave something up.\n\n" + _table(titles, lines)


def _better(rows: list[Row]) -> str:
    """Every case where llama.cpp's choice is the better one, or ours a poor trade."""
    lines = []
    for row in rows:
        found = verdicts(row)
        for kind, verdict in found.items():
            lost = verdict == LOSS and not excused(row)
            if lost or badly_traded(row, kind, verdict):
                theirs, mine = shown(row["theirs"]), shown(row[kind])
                lines.append(f"- {title(row['case'])}, {NAMES[kind]}: {verdict}\n"
                             f"  - llama.cpp: {theirs}\n  - kvwise: {mine}")  # fmt: skip
    told = "\n".join(lines) or "None."
    return (
        "## Where llama.cpp's choice is better\n\nLosses where it keeps its margin, and trades "
        f"where nothing that is as good in both stands beside our choice.\n\n{told}\n"
    )


def _its_own(rows: list[Row]) -> str:
    known = where(rows, lambda row: row["theirs"]["judged"] is not None)
    none = where(rows, lambda row: row["theirs"]["launch"] is None)
    broken, over = where(known, excused), where(known, overflows)
    worst = max((-min(row["theirs"]["judged"]["left"]) for row in broken), default=0)
    several = where(broken, lambda row: len(row["case"]["cards"]) > 1)
    cuda = where(broken, lambda row: row["case"]["kind"] == "cuda")
    return f"""## What llama.cpp's choice really takes

Of {len(known):,} choices, {len(broken)} reserve more than the pass believes and break the margin
({len(several)} of them on several cards, {len(cuda)} under CUDA's rules, which a virtual device can
only in part show to llama.cpp), by {worst / MIB:,.0f} MiB at most; {len(over)} do not fit the
card at all, margin included. In {len(none)} cases it found nothing and would have gone on without
fitting. It had to give something up in {len(where(known, gave_up)):,} cases; the others fit whole
on both sides.
"""


def _safety(rows: list[Row]) -> str:
    lines = []
    for by, said in (("engine", "llama.cpp's pass"), ("ledger", "our ledger")):
        for kind in ("same", "free"):
            each = safe(rows, kind, by)
            if not each.plans:
                continue
            steps = [each.further[step] for step in ("tokens", "layer")]
            lines.append(
                (
                    f"{NAMES[kind]}, by {said}", str(each.plans), str(each.fit["yes"]),
                    str(each.fit["unsure"]), str(each.fit["misjudged"]),
                    str(each.plans - each.fit["yes"] - each.fit["unsure"] - each.fit["misjudged"]),
                    *(f"{step['no']} of {step.total()} ({step['unsure']} unsure, {step['yes']} fit)"
                      for step in steps),
                    f"{each.unused / MIB:,.1f}", f"{each.unused_theirs / MIB:,.1f}",
                )
            )  # fmt: skip
    if not lines:
        return "## Safe, and tight\n\nEvery plan of the full grid: [safe.md](safe.md).\n"
    titles = (
        "plans", "count", "fit", "unsure", "fit, its pass sees more", "do not fit",
        "256 tokens more do not fit", "a layer more does not fit",
        "unused beside the margin, MiB (median)", "llama.cpp's",
    )  # fmt: skip
    return (
        "## Safe, and tight\n\nEach of these plans is put to llama.cpp's own no-alloc pass over "
        "the same virtual cards; CUDA cards that share a model cannot be shown to it that way, and "
        'are put to the ledger of what is really reserved. "Unsure": it prints whole MiB. "Sees '
        'more": the pass says what it was expected to say, which is more than is reserved. Where '
        "256 tokens more would fit, another limit binds: the goal has enough, or a smaller cache "
        "type was not needed.\n\n" + _table(titles, lines)
    )  # fmt: skip


def _pace(turns: list[Row], commit: str) -> str:
    lines = []
    for kind, name in (
        ("same", NAMES["same"]),
        ("free", NAMES["free"]),
        ("same again", "the next question, same quality"),
        ("free again", "the next question, free"),
    ):
        for clock, of in (("cpu", "processor time"), ("wall", "by the clock")):
            each = pace(turns, kind, clock)
            lines.append(
                (
                    f"{name}, {of}", str(each.cases), f"{each.ours:.2f}", f"{each.theirs:.2f}",
                    f"{each.median_ours:.3f}", f"{each.median_theirs:.3f}", f"{each.ratio:.1f}",
                )
            )  # fmt: skip
    titles = (
        "plan", "models", "answers/s, kvwise", "llama.cpp", "median seconds, kvwise", "llama.cpp",
        "times faster (geometric mean)",
    )  # fmt: skip
    return (
        f"## Answers per second\n\nBoth sides{f' (kvwise at commit {commit})' if commit else ''} "
        "take turns in one run on the same machine and read "
        "the same header, each model for the first time, with a vocabulary of the model's own "
        "size as every file has one: tokens of a real model, in the form that costs llama.cpp "
        "least (no merges); its `--fit` reads it once more in every pass. llama.cpp's time "
        "holds the start of its process. kvwise's does not hold the start of Python of the "
        "command line; a next question about the same model, with another margin, finds graphs "
        "that were built before: a table, a page or a search asks many such.\n\n"
        + _table(titles, lines)
    )
