"""What a table of figures does not say by itself: the settings to beware of, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvwise.bench.run import OK
from kvwise.bench.summary import Figure, Line, base_of
from kvwise.gguf.types import by_name
from kvwise.text import Phrase, phrase

SLOWER, V_ALONE, FALLBACK, SAME = "slower_than_f16", "v_alone", "cpu_fallback", "same_as_another"
SENSITIVE, BROKEN, LOST = "k_v_sensitivity", "broken_but_fast", "not_in_effect"
_LEAST = 0.02
"""A difference below this share is none, however small the spread."""
_FAST = 0.9
_MUCH = 2.0
"""One side's divergence is so many times the other's: it is the sensitive one."""


@dataclass(frozen=True, slots=True)
class Remark:
    """`code` names it, `keys` the settings that it is about (`Case.key`)."""

    code: str
    message: Phrase
    keys: tuple[str, ...]
    test: str | None = None


@dataclass(frozen=True, slots=True)
class Quality:
    """What is known of the fidelity of a setting: mean divergence and the verdict (`lossless`,
    `high`, `medium`, `broken`)."""

    kl_mean: float
    verdict: str


def remarks(lines: Sequence[Line], quality: Mapping[str, Quality] | None = None) -> list[Remark]:
    """All of them. `quality` by `Case.key`, where it was measured."""
    found = [each for line in lines if line.state == OK for each in _of(line, lines)]
    found += _broken(lines, quality or {})
    found += _sensitive(lines, quality or {})
    return found


def _of(line: Line, lines: Sequence[Line]) -> Iterator[Remark]:
    for code, message, lost in line.effects:
        if lost:
            text = phrase("{setting}: {what}", setting=_name(line), what=message)
            yield Remark(LOST, text, (line.case.key,), code)
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
    base's slowest, and by 2 % at least?"""
    lost = base.median - figure.median
    noise = (figure.spread or 0.0) + (base.spread or 0.0)
    return lost > max(noise, _LEAST * base.median) and figure.most < base.least


def _slower(line: Line, figure: Figure, base: Figure) -> Remark:
    lost = 100 * (1 - figure.median / base.median)
    values: dict[str, object] = {
        "setting": _name(line), "test": figure.test.name, "lost": f"{lost:.0f}",
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
    return Remark(SLOWER, text, (line.case.key,), figure.test.name)


def _v_alone(line: Line) -> bool:
    k, v = (by_name(name) for name in line.types)
    return bool(v and v.quantized and not (k and k.quantized))


def _fallback(line: Line, base: Line) -> Iterator[Remark]:
    """More pieces of the graph than with f16: some operation has no kernel on the GPU and is done
    on the CPU, with a copy there and back each time."""
    mine, its = line.used or {}, base.used or {}
    if not mine.get("devices"):
        return
    for name in ("splits_token", "splits_prompt"):
        now, then = mine.get(name), its.get(name)
        if now and then and now > then:
            text = phrase(
                "{setting}: the graph is cut into {now} pieces, with f16 into {then}: the GPU has "
                "no kernel for this cache and the CPU does a part",
                setting=_name(line), now=now, then=then,
            )  # fmt: skip
            yield Remark(FALLBACK, text, (line.case.key,))
            return


def _broken(lines: Sequence[Line], quality: Mapping[str, Quality]) -> Iterator[Remark]:
    for line in lines:
        known = quality.get(line.case.key)
        base = base_of(line, lines)
        if known is None or known.verdict != "broken" or base is None:
            continue
        shares = [
            each.median / its.median
            for each in line.figures
            if (its := base.figure(each.test.name)) is not None
        ]
        if shares and min(shares) >= _FAST:
            text = phrase(
                "{setting}: as fast as f16, and what it writes is broken (mean divergence {kl})",
                setting=_name(line), kl=f"{known.kl_mean:.4f}",
            )  # fmt: skip
            yield Remark(BROKEN, text, (line.case.key,))


def _sensitive(lines: Sequence[Line], quality: Mapping[str, Quality]) -> Iterator[Remark]:
    """The same type once for K alone and once for V alone: which of them the model minds."""
    known = {
        (line.case.model, line.case.rest, line.types): (line, quality[line.case.key])
        for line in lines
        if line.case.key in quality
    }
    for (model, rest, (k, v)), (line, with_k) in known.items():
        other = known.get((model, rest, ("f16", k)))
        if v != "f16" or k == "f16" or other is None:
            continue
        one, two = with_k.kl_mean, other[1].kl_mean
        side, often = ("K", one / two) if two > 0 and one > two else ("V", two / max(one, 1e-12))
        if often >= _MUCH:
            text = phrase(
                "{type} costs {often} times as much fidelity in {side} alone as in the other: this "
                "model minds {side}",
                type=k, often=f"{often:.1f}", side=side,
            )  # fmt: skip
            yield Remark(SENSITIVE, text, (line.case.key, other[0].case.key))


def _name(line: Line) -> str:
    return line.case.label or "/".join(line.types)
