"""Lines of a table that was never measured, for rules about hardware that is not here."""

from __future__ import annotations

from typing import Any

from kvwise.bench.cases import Case, Task
from kvwise.bench.ruled import Ruled
from kvwise.bench.summary import Figure, Line
from kvwise.launch import Launch

PROMPT, DECODE = Task("prompt", 512), Task("decode", 128)


def figure(test: Task, *values: float) -> Figure:
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    half = (ordered[-1] - ordered[0]) / 2
    return Figure(test, middle, ordered[0], ordered[-1], half, len(values), 0, doubtful=False)


def line(
    k: str, v: str, *figures: Figure, used: dict[str, Any] | None = None, state: str = "ok",
    rest: tuple[tuple[str, str], ...] = (),
) -> Line:  # fmt: skip
    case = Case(0, Launch(type_k=k, type_v=v), (("ctk", k), ("ctv", v), *rest))
    ruled = Ruled(case, "server", (PROMPT, DECODE))
    return Line(case, ruled, state, figures, used=used)
