"""The cases where llama.cpp's choice is better than ours, with what it takes to ask them again."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from verdict import LOSS, TRADES, against

Row = dict[str, Any]
KINDS = ("same", "same context", "placed", "free", "placed free")


def verdicts(row: Row) -> dict[str, str]:
    """The verdict of each plan of a case; a case that llama.cpp fails counts for two of them."""
    theirs = row["theirs"]["judged"]
    return {kind: against(row[kind]["judged"], theirs) for kind in KINDS if kind in row}


def offered(row: Row, kind: str) -> bool:
    """Does the plan offer, as its choice or beside it, something at least as good in all?"""
    theirs, mine = row["theirs"]["judged"], row[kind]
    shown = [each for each in (mine["judged"], *mine.get("others", [])) if each]
    return any(
        each["n_ctx"] >= theirs["n_ctx"]
        and each["read"] <= theirs["read"]
        and each["cache_on_gpu"] >= theirs["cache_on_gpu"]
        for each in shown
    )


def excused(row: Row) -> bool:
    """Llama.cpp's choice takes more than it believes, and breaks the margin that it was given."""
    judged = row["theirs"]["judged"]
    return judged is not None and min(judged["left"]) < 0


def badly_traded(row: Row, kind: str, verdict: str) -> bool:
    """Better in one, worse in the other, and nothing beside it is as good in both."""
    return verdict in TRADES and not offered(row, kind) and not excused(row)


def trouble(row: Row) -> Iterator[tuple[str, str]]:
    """(plan, what is wrong with it)."""
    for kind, verdict in verdicts(row).items():
        if verdict == LOSS:
            yield kind, LOSS + (" (its choice breaks the margin)" if excused(row) else "")
        elif badly_traded(row, kind, verdict):
            yield kind, f"{verdict}; nothing as good in both is offered"
        said = row.get(f"{kind} said")
        if said and said["fits"] not in ("yes", "unsure", "misjudged"):
            yield kind, f"the engine's pass: fits {said['fits']}"
        for step, answer in (said["further"] if said else {}).items():
            if answer == "yes":
                yield kind, f"one more step fits too ({step})"


def words(row: Row) -> str:
    return ", ".join(f"{kind}: {what}" for kind, what in trouble(row)) or "ok"


def text(rows: list[Row], version: str) -> str:
    """All trouble so far as Markdown."""
    found = [(row, list(trouble(row))) for row in rows]
    found = [(row, what) for row, what in found if what]
    lines = [f"# {len(found)} of {len(rows)} cases have trouble (code {version})", ""]
    lines += [f"Median processor time: {_times(rows)}", ""]
    for row, what in found:
        case = row["case"]
        lines.append(f"## {title(case)}, margin {case['margin']}")
        lines.append(f"- llama.cpp: {shown(row['theirs'])}")
        for kind in dict.fromkeys(kind for kind, _ in what):
            why = "; ".join(reason for one, reason in what if one == kind)
            lines.append(f"- **{kind}: {why}**")
            lines.append(f"  - ours: {shown(row[kind])}")
            lines += [f"  - beside it: {figures(each)}" for each in row[kind].get("others", [])]
    return "\n".join(lines) + "\n"


def title(case: Row) -> str:
    """The model, its cards and their rules."""
    cards = "+".join(f"{size:g}" for size in case["cards"])
    return f"{case['model']}, {cards} GiB, {case['kind']}"


def _times(rows: list[Row]) -> str:
    sides: dict[str, list[float]] = {}
    for row in rows:
        for kind in ("theirs", *KINDS):
            if kind in row:
                sides.setdefault(kind, []).append(row[kind]["took"]["cpu"])
    return ", ".join(f"{kind} {statistics.median(took):.3f} s" for kind, took in sides.items())


def shown(side: Row) -> str:
    """A choice in a line: its figures, and how it is placed."""
    if not side["judged"]:
        return f"nothing ({side['why']})"
    launch = side["launch"]
    placed = f"-ngl {launch['n_gpu_layers']} -ncmoe {launch['n_cpu_moe']}"
    if launch["tensor_split"]:
        placed += " -ts " + ",".join(f"{share:g}" for share in launch["tensor_split"])
    if launch["override_tensor"]:
        placed += f" -ot ({len(launch['override_tensor'])} patterns)"
    return f"{figures(side['judged'])}; {placed}"


def figures(judged: Row) -> str:
    """Context, layers, what is read from the host, types and what is left."""
    left = "/".join(f"{size / 2**20:.1f}" for size in judged["left"])
    cache = "" if judged["cache_on_gpu"] else ", cache on the host"
    return (
        f"-c {judged['n_ctx']}, {judged['layers']}/{judged['of']} layers, "
        f"{judged['read'] / 2**20:.1f} MiB/token from the host{cache}, "
        f"{'/'.join(judged['types'])}, -ub {judged['n_ubatch']}, {left} MiB left"
    )
