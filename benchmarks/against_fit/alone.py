"""docs/safe.md: every plan over a whole grid of models and cards, put to llama.cpp's own pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]

HEAD = """# Safe and tight, over the whole grid

Written by `{command}`; do not edit.

For each model and set of cards the plan that `kvwise plan` makes (goal `chat`, quality floor
`high`, {margin} MiB to keep free on each card), and what llama.cpp's own no-alloc pass (build
{build}, virtual cards of those sizes) says to it and to one step more: 256 tokens, or a layer.
CUDA cards that share a model with each other or with the host cannot be shown to it that way; such
plans are put to the ledger of what is really reserved, which [accuracy.md](accuracy.md) checks.
{asked:,} of {wanted:,} cases, {models} models of a real size, {cards} sets of cards of 2 to 80 GiB,
one and two, by generic and by CUDA rules{commit}.

- fit: the pass says that the margin is kept. "Unsure": it prints whole MiB, and that is too coarse.
- sees more: the pass says exactly what it was expected to say, which is more than is reserved.
- one step more: of the steps that could be taken, those that no longer fit; the others are where
  the plan names another limit than memory (the training length, what the goal needs).
- unexplained: a step more would fit, and the plan says that memory is the limit.
"""

TITLES = (
    "cards", "put to", "plans", "fit", "unsure", "fit, its pass sees more", "do not fit",
    "256 tokens more do not fit", "another limit", "unexplained", "a layer more does not fit",
    "another limit", "unexplained",
)  # fmt: skip
BY = {"engine": "llama.cpp's pass", "ledger": "our ledger"}


def write(
    rows: Sequence[Row],
    failed: Sequence[str],
    *,
    build: str,
    wanted: int,
    commit: str,
    command: str,
) -> str:
    """The page."""
    cases = [row["case"] for row in rows]
    head = HEAD.format(
        build=build, wanted=wanted, asked=len(rows), command=command,
        commit=f"; kvwise at commit {commit}" if commit else "",
        margin=cases[0]["margin"] >> 20 if cases else 0,
        models=len({case["model"] for case in cases}),
        cards=len({(*case["cards"], case["kind"]) for case in cases}),
    )  # fmt: skip
    lines = [
        line
        for kind in ("generic", "cuda")
        for count in (1, 2)
        for by in BY
        if (line := _line(_of(rows, kind, count, by), kind, count, by))
    ]
    table = "\n".join(
        "| " + " | ".join(line) + " |"
        for line in (TITLES, ("---",) * 2 + ("---:",) * (len(TITLES) - 2), *lines)
    )
    none = Counter(str(row["free"]["why"]) for row in rows if not row["free"]["launch"])
    rest = f"\nIn {sum(none.values()):,} cases there is no plan, because the model does not fit.\n"
    return head + "\n" + table + "\n" + rest + _named(rows) + _troubles(failed)


def _of(rows: Iterable[Row], kind: str, count: int, by: str) -> list[Row]:
    return [
        row
        for row in rows
        if row["case"]["kind"] == kind
        and len(row["case"]["cards"]) == count
        and row.get("free said", {}).get("by") == by
    ]


def _line(rows: Sequence[Row], kind: str, count: int, by: str) -> tuple[str, ...]:
    if not rows:
        return ()
    fits = Counter(row["free said"]["fits"].partition(":")[0] for row in rows)
    known = ("yes", "unsure", "misjudged")
    return (
        f"{count}, {kind}", BY[by], f"{len(rows):,}", *(f"{fits[each]:,}" for each in known),
        f"{len(rows) - sum(fits[each] for each in known):,}",
        *_steps(rows, "tokens"), *_steps(rows, "layer"),
    )  # fmt: skip


def _steps(rows: Iterable[Row], step: str) -> tuple[str, str, str]:
    found = Counter(_step(row, step) for row in rows if step in row["free said"]["further"])
    more, other, open_ = found["no"], found["other"], found["open"]
    return f"{more:,} of {found.total():,}", f"{other:,}", f"{open_:,}"


def _step(row: Row, step: str) -> str:
    """`no`: it no longer fits; `other`: another limit binds; `open`: memory is said to, and does
    not, as far as whole MiB say."""
    answer = row["free said"]["further"][step].partition(":")[0]
    if answer not in {"yes", "unsure", "misjudged"}:
        return "no"
    if answer == "yes" and row["free"].get("binds", {}).get(step) == "memory":
        return "open"
    return "other" if answer == "yes" else "no"


def _named(rows: Iterable[Row]) -> str:
    """Every plan that does not fit, and every step that should not."""
    found = []
    for row in rows:
        said = row.get("free said")
        if not said:
            continue
        case = row["case"]
        cards = "+".join(f"{size:g}" for size in case["cards"])
        name = f"{case['model']}, {cards} GiB, {case['kind']}"
        if said["fits"].partition(":")[0] not in {"yes", "unsure", "misjudged"}:
            found.append(f"- {name}: does not fit ({said['fits']})")
        found += [
            f"- {name}: a step more fits ({step})"
            for step in said["further"]
            if _step(row, step) == "open"
        ]
    return "\n## By name\n\n" + "\n".join(found) + "\n" if found else ""


def _troubles(failed: Sequence[str]) -> str:
    if not failed:
        return ""
    return "\n## Could not be asked\n\n" + "\n".join(f"- {each}" for each in failed) + "\n"
