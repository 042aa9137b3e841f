"""What a table of figures does not say by itself: the settings to beware of, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvwise.bench.run import OK
from kvwise.bench.summary import Figure, Line, base_of
from kvwise.gguf.types import by_name
from kvwise.memory.reasons import together
from kvwise.text import Phrase, phrase

SLOWER, V_ALONE, FALLBACK = "slower_than_f16", "v_alone", "cpu_fallback"
LOST = "not_in_effect"
_LEAST = 0.02
"""A difference below this share is none, however small the spread."""


@dataclass(frozen=True, slots=True)
class Remark:
    """`code` names it, `keys` the settings that it is about (`Case.key`), `test` the test, or the
    code of what was not used. `part` is what stands of it beside others of the same setting."""

    code: str
    message: Phrase
    keys: tuple[str, ...]
    test: str | None = None
    part: Phrase | None = None


def remarks(lines: Sequence[Line]) -> list[Remark]:
    """All of them: what was not used first, then in the order of the settings."""
    mine = [line for line in lines if line.state == OK]
    return [*_unused(mine), *(each for line in mine for each in _of(line, lines))]


def sentences(found: Iterable[Remark], names: Mapping[str, str]) -> list[Phrase]:
    """For people: each setting that is slower than f16 has one line for all its tests. `names` by
    key of the setting."""
    told: dict[tuple[str, ...], list[Remark]] = {}
    for number, each in enumerate(found):
        told.setdefault((each.code, *each.keys) if each.part else (str(number),), []).append(each)
    return [
        many[0].message if len(many) == 1 else _slower_in_all(many, names) for many in told.values()
    ]


def _slower_in_all(many: Sequence[Remark], names: Mapping[str, str]) -> Phrase:
    tests = together([each.part for each in many if each.part is not None])
    return phrase(
        "{setting} is slower than f16: {tests}", setting=names[many[0].keys[0]], tests=tests
    )


def _unused(lines: Sequence[Line]) -> Iterator[Remark]:
    """The same that happened to several settings is told once."""
    found: dict[str, tuple[str, Phrase, list[Line]]] = {}
    for line in lines:
        for code, message, lost in line.effects:
            if lost:
                found.setdefault(f"{code} {message}", (code, message, []))[2].append(line)
    for code, message, affected in found.values():
        where: Phrase | str = name(affected[0])
        if len(affected) > 1:
            where = phrase("{count} settings", count=len(affected))
        text = phrase("{setting}: {what}", setting=where, what=message)
        yield Remark(LOST, text, tuple(line.case.key for line in affected), code)


def _of(line: Line, lines: Sequence[Line]) -> Iterator[Remark]:
    base = base_of(line, lines)
    if base is None or base is line:
        return
    yield from _fallback(line, base)
    for figure in line.figures:
        its = base.figure(figure.test.name)
        if its is not None and slower(figure, its):
            yield _slower(line, figure, its)


def slower(figure: Figure, base: Figure) -> bool:
    """Is it slower by more than chance: beyond both spreads together, no sample as fast as the
    base's slowest, and by 2 % at least? Disturbed samples say nothing."""
    if figure.doubtful or base.doubtful:
        return False
    lost = base.median - figure.median
    noise = (figure.spread or 0.0) + (base.spread or 0.0)
    return lost > max(noise, _LEAST * base.median) and figure.most < base.least


def _slower(line: Line, figure: Figure, base: Figure) -> Remark:
    lost = 100 * (1 - figure.median / base.median)
    values: dict[str, object] = {
        "setting": name(line), "test": figure.test.name, "lost": f"{lost:.0f}",
        "speed": f"{figure.median:,.1f}", "usual": f"{base.median:,.1f}",
    }  # fmt: skip
    if _v_alone(line) and line.used and line.used.get("devices"):
        text = phrase(
            "{setting}: {test} is {lost} % slower than f16 ({speed} against {usual} tokens/s); V "
            "quantized alone has no fast kernel on many cards: give K the same type (-ctk {type})",
            type=line.types[1], **values,
        )  # fmt: skip
        return Remark(V_ALONE, text, (line.case.key,), figure.test.name)
    text = phrase(
        "{setting}: {test} is {lost} % slower than f16 ({speed} against {usual} tokens/s)",
        **values,
    )
    part = phrase(
        "{test} by {lost} % ({speed} against {usual} tokens/s)",
        **{each: values[each] for each in ("test", "lost", "speed", "usual")},
    )
    return Remark(SLOWER, text, (line.case.key,), figure.test.name, part)


def _v_alone(line: Line) -> bool:
    k, v = (by_name(each) for each in line.types)
    return bool(v and v.quantized and not (k and k.quantized))


def _fallback(line: Line, base: Line) -> Iterator[Remark]:
    """More pieces of the graph than with f16: some operation has no kernel on the GPU and is done
    on the CPU, with a copy there and back each time."""
    mine, its = line.used or {}, base.used or {}
    if not mine.get("devices"):
        return
    for which in ("splits_token", "splits_prompt"):
        now, then = mine.get(which), its.get(which)
        if now and then and now > then:
            text = phrase(
                "{setting}: the graph is cut into {now} pieces, with f16 into {then}: the GPU has "
                "no kernel for this cache and the CPU does a part",
                setting=name(line), now=now, then=then,
            )  # fmt: skip
            yield Remark(FALLBACK, text, (line.case.key,))
            return


def name(line: Line) -> str:
    """What a setting is called where it is spoken of."""
    return line.case.label or "/".join(line.types)
