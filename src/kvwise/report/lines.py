"""Measurements as a reader thinks of them: one line per setting, with its speeds, its memory, its
fidelity, beside the line of f16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvwise.results import Measurement, total_of
from kvwise.results.label import labels, types_of
from kvwise.results.record import canonical
from kvwise.results.stats import Difference, difference

PLAIN = "f16/f16"
_METRICS = {"prompt": "pp", "decode": "tg"}
"""As llama-bench shortens them, in the order of a report."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a speed is of: `prompt` or `decode`, and of how many tokens."""

    metric: str
    tokens: int

    @property
    def name(self) -> str:
        """`pp512`, `tg128`."""
        return f"{_METRICS[self.metric]}{self.tokens}"


@dataclass(frozen=True, slots=True)
class Line:
    """One setting at one depth. `memory` has totals per kind, `predicted` and `measured`, of the
    longest context among its tests."""

    label: str
    types: str
    depth: int
    settings: Mapping[str, Any]
    speeds: Mapping[Task, Measurement] = field(default_factory=dict)
    fidelity: Measurement | None = None
    failed: tuple[Measurement, ...] = ()
    predicted: Mapping[str, int] = field(default_factory=dict)
    measured: Mapping[str, int] = field(default_factory=dict)

    def figure(self, name: str) -> float | None:
        """A number of its fidelity; None where it was not measured."""
        value = self.fidelity.figures.get(name) if self.fidelity else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value)

    @property
    def verdict(self) -> str:
        """Of its fidelity; empty where there is none."""
        value = self.fidelity.figures.get("verdict") if self.fidelity else None
        return value if isinstance(value, str) else ""

    @property
    def memory(self) -> Mapping[str, int]:
        """Measured, else predicted."""
        return self.measured or self.predicted

    def than(self, base: Line | None, test: Task, *, disturbed: bool = False) -> Difference | None:
        """Its speed beside another line's, by the samples that count, or by those that are shown:
        of a speed without any that counts, all."""
        mine, other = self.speeds.get(test), base.speeds.get(test) if base else None
        if mine is None or other is None or mine is other:
            return None
        if disturbed:
            return difference(other.shown, mine.shown)
        return difference(other.values, mine.values)


@dataclass(frozen=True, slots=True)
class Group:
    """The lines of one model on one machine with one engine: what can be compared."""

    first: Measurement
    lines: tuple[Line, ...]

    @property
    def tests(self) -> list[Task]:
        """Every speed that any of its lines has, prompts first, shorter ones first."""
        return tests_of(self.lines)

    def base(self, line: Line) -> Line | None:
        """The line of f16 that differs in nothing else, if there is one."""
        wanted = _others(line)
        for each in self.lines:
            if each.types == PLAIN and each.depth == line.depth and _others(each) == wanted:
                return each
        return None


def tests_of(lines: Sequence[Line], *metrics: str) -> list[Task]:
    """The tests of `metrics` (all) that any line has a speed of, in their order."""
    found = {test for line in lines for test in line.speeds}
    order = list(_METRICS)
    wanted = [test for test in found if not metrics or test.metric in metrics]
    return sorted(wanted, key=lambda test: (order.index(test.metric), test.tokens))


def _others(line: Line) -> dict[str, Any]:
    skipped = {"type_k", "type_v", "n_ctx"}
    return {name: value for name, value in line.settings.items() if name not in skipped}


def newest(found: Sequence[Measurement]) -> list[Measurement]:
    """Of each identity the last, in the order of the first time."""
    last: dict[str, Measurement] = {}
    for each in sorted(found, key=lambda each: each.at):
        last[each.identity] = each
    return list(last.values())


def groups(found: Sequence[Measurement]) -> list[Group]:
    """Speeds by model, machine and engine; fidelity joins by model, machine, build and types."""
    found = newest(found)
    by_place: dict[str, list[Measurement]] = {}
    fidelities: dict[str, list[Measurement]] = {}
    for each in found:
        if each.kind == "speed":
            by_place.setdefault(_place(each, tool=True), []).append(each)
        elif each.kind == "fidelity":
            fidelities.setdefault(_place(each, tool=False), []).append(each)
    used: set[str] = set()
    made = []
    for members in by_place.values():
        place = _place(members[0], tool=False)
        used.add(place)
        made.append(Group(members[0], _lines(members, fidelities.get(place, []))))
    for place, members in fidelities.items():
        if place not in used:  # only fidelity was measured there
            made.append(Group(members[0], _lines(members, members)))
    return made


def _place(found: Measurement, *, tool: bool) -> str:
    engine = [found.engine.kind, found.engine.build]
    if tool:
        engine.append(found.engine.tool)
    return canonical([found.machine.id, found.machine.drivers, engine, found.model.fingerprint])


def _lines(members: Sequence[Measurement], fidelities: Sequence[Measurement]) -> tuple[Line, ...]:
    by_types = {types_of(each.settings): each for each in fidelities if each.state == "ok"}
    keyed: dict[str, list[Measurement]] = {}
    for each in members:
        keyed.setdefault(_setting(each), []).append(each)
    firsts = [group[0] for group in keyed.values()]
    made = []
    for label, group in zip(_unique(labels(firsts)), keyed.values(), strict=True):
        made.append(_line(label, group, by_types.get(types_of(group[0].settings))))
    return tuple(sorted(made, key=lambda line: line.depth))


def _line(label: str, group: Sequence[Measurement], fidelity: Measurement | None) -> Line:
    first = group[0]
    made = Line(label, types_of(first.settings), _depth(first), first.settings, fidelity=fidelity)
    speeds = {
        _test(each): each
        for each in group
        if each.kind == "speed" and each.shown and each.test.get("metric") in _METRICS
    }
    failed = tuple(each for each in group if each.state != "ok")
    made = replace(made, speeds=speeds, failed=failed)
    for each in sorted(group, key=_context):
        memory = each.figures.get("memory")
        if isinstance(memory, dict):
            predicted, measured = (total_of(memory.get(side)) for side in ("predicted", "measured"))
            made = replace(
                made, predicted=predicted or made.predicted, measured=measured or made.measured
            )
    return made


def _setting(found: Measurement) -> str:
    """Without the context's size: it follows from prompt, answer and depth."""
    settings = {name: value for name, value in found.settings.items() if name != "n_ctx"}
    return canonical([settings, _depth(found)])


def _test(found: Measurement) -> Task:
    counts = [found.test.get(name) for name in ("n_prompt", "n_gen")]
    tokens = max((count for count in counts if isinstance(count, int)), default=0)
    return Task(str(found.test.get("metric")), tokens)


def _context(found: Measurement) -> int:
    n_ctx = found.settings.get("n_ctx")
    return n_ctx if isinstance(n_ctx, int) else 0


def _depth(found: Measurement) -> int:
    depth = found.test.get("depth")
    return depth if isinstance(depth, int) else 0


def _unique(texts: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    made = []
    for text in texts:
        seen[text] = seen.get(text, 0) + 1
        made.append(text if seen[text] == 1 else f"{text} #{seen[text]}")
    return made
