"""The numbers that Word puts before paragraphs of lists and headings: they are in no text.

A paragraph names a list and a level, itself or by its style; `numbering.xml` says how the levels of
a list are written (`%1.%2`), and the counting is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kvwise.digest.extract.docx_body import name_of, value_of, whole

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_PLACE = re.compile(r"%([1-9])")
_MOST_LEVELS = 9
_MOST_TEXT = 255  # characters before a number, between and behind
_T = TypeVar("_T")
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"),
    (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_HAN = "零一二三四五六七八九"
_BULLET = "\u2022"
_SYMBOL_FONTS = range(0xE000, 0xF900)
"""Characters of fonts of pictures: a bullet of one kind or another."""


@dataclass(frozen=True, slots=True)
class Level:
    """How one level of a list is written: `text` with places for the numbers of levels."""

    form: str = "decimal"
    text: str = ""
    start: int = 1
    style: str = ""
    plain: bool = False  # all numbers as decimals


@dataclass(slots=True)
class Numbers:
    """Counts while the paragraphs go by."""

    lists: Mapping[str, tuple[str, Mapping[int, Level]]] = field(default_factory=dict)
    styles: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)
    _counts: dict[str, list[int | None]] = field(default_factory=dict)

    def label(self, style: str, number: str | None, level: int | None) -> str:
        """What stands before the next paragraph: of a list that it names, else of its style's."""
        by_style = self.styles.get(style, ("", None))
        named = by_style[0] if number is None else number
        if named not in self.lists:  # also 0, which takes a number away
            return ""
        kind, levels = self.lists[named]
        at = level if level is not None else by_style[1]
        if at is None:
            at = next((each for each, about in levels.items() if about.style == style), 0)
        if not 0 <= at < _MOST_LEVELS or at not in levels:
            return ""
        counts = self._counts.setdefault(kind, [None] * _MOST_LEVELS)
        last = counts[at]
        counts[at] = levels[at].start if last is None else last + 1
        counts[at + 1 :] = [None] * (_MOST_LEVELS - at - 1)
        return self._written(levels, at, counts)

    @staticmethod
    def _written(levels: Mapping[int, Level], at: int, counts: list[int | None]) -> str:
        level = levels[at]
        if level.form == "none":
            return ""
        if level.form == "bullet":
            return _BULLET if not level.text or ord(level.text[0]) in _SYMBOL_FONTS else level.text

        def one(match: re.Match[str]) -> str:
            which = int(match[1]) - 1
            about = levels.get(which, Level())
            count = counts[which]
            form = "decimal" if level.plain else about.form
            return FORMS.get(form, str)(about.start if count is None else count)

        return _PLACE.sub(one, level.text).strip()


def numbers(numbering: Element | None, styles: Element | None) -> Numbers:
    """From the parts of a file; of neither there need be any."""
    kinds: dict[str, dict[int, Level]] = {}
    lists: dict[str, tuple[str, Mapping[int, Level]]] = {}
    for each in numbering if numbering is not None else ():
        if name_of(each) == "abstractNum":
            kinds[value_of(each, "abstractNumId")] = dict(_levels(each))
        elif name_of(each) == "num":
            named, kind, own = value_of(each, "numId"), "", dict[int, Level]()
            for part in each:
                if name_of(part) == "abstractNumId":
                    kind = value_of(part)
                elif name_of(part) == "lvlOverride":
                    own |= _override(part, kinds.get(kind, {}))
            # with a beginning of its own it counts by itself, else with all lists of its kind
            counted = f"{named} {kind}" if own else kind
            lists[named] = (counted, kinds.get(kind, {}) | own)
    return Numbers(lists, _of_styles(styles))


def _levels(kind: Element) -> Iterator[tuple[int, Level]]:
    for each in kind:
        if name_of(each) == "lvl" and (at := whole(value_of(each, "ilvl"))) is not None:
            yield at, _level(each)


def _level(about: Element) -> Level:
    found = {name_of(each): value_of(each) for each in about}
    start = whole(found.get("start") or "1")
    legal = "isLgl" in found and found["isLgl"] not in ("0", "false", "off")
    return Level(
        found.get("numFmt", "decimal"), found.get("lvlText", "")[:_MOST_TEXT],
        0 if start is None else start, found.get("pStyle", ""), legal,
    )  # fmt: skip


def _override(about: Element, kind: Mapping[int, Level]) -> dict[int, Level]:
    at = whole(value_of(about, "ilvl")) or 0
    level = kind.get(at, Level())
    for each in about:
        if name_of(each) == "lvl":
            level = _level(each)
        elif name_of(each) == "startOverride" and (start := whole(value_of(each))) is not None:
            level = Level(level.form, level.text, start, level.style, level.plain)
    return {at: level}


def _of_styles(styles: Element | None) -> dict[str, tuple[str, int | None]]:
    """Style id -> its list and level, its own or those of the style that it is based on."""
    own: dict[str, tuple[str, int | None]] = {}
    parents: dict[str, str] = {}
    for style in styles if styles is not None else ():
        if name_of(style) != "style":
            continue
        found = {name_of(each): value_of(each) for each in style.iter()}
        ours = value_of(style, "styleId")
        if "numId" in found:
            own[ours] = found["numId"], whole(found.get("ilvl", ""))
        parents[ours] = found.get("basedOn", "")
    return inherited(own, parents)


def inherited(own: Mapping[str, _T], parents: Mapping[str, str]) -> dict[str, _T]:
    """What each style has of its own, or of the nearest of those that it is based on."""
    found, seen = dict(own), set[str]()
    for style in parents:
        at, passed = style, list[str]()
        while at not in found and at in parents and at not in seen:
            seen.add(at)
            passed.append(at)
            at = parents[at]
        if at in found:
            found.update(dict.fromkeys(passed, found[at]))
    return found


def _roman(number: int) -> str:
    made = ""
    for value, sign in _ROMAN:
        times, number = divmod(number, value)
        made += sign * min(times, 10)
    return made


def _letter(number: int) -> str:
    """a to z, then aa, bb, as Word counts."""
    times, at = divmod(max(1, number) - 1, 26)
    return chr(ord("a") + at) * min(times + 1, 10)


def _han(number: int) -> str:
    if not 0 < number < 100:
        return str(number)
    tens, ones = divmod(number, 10)
    ten = "" if not tens else "十" if tens == 1 else f"{_HAN[tens]}十"
    return ten + (_HAN[ones] if ones or not tens else "")


FORMS: Mapping[str, Callable[[int], str]] = {
    "decimalZero": lambda number: f"{number:02}",
    "lowerLetter": _letter,
    "upperLetter": lambda number: _letter(number).upper(),
    "lowerRoman": _roman,
    "upperRoman": lambda number: _roman(number).upper(),
    "chineseCounting": _han,
    "chineseCountingThousand": _han,
    "ideographDigital": _han,
    "japaneseCounting": _han,
    "taiwaneseCountingThousand": _han,
}
"""What is not here is written as a decimal number."""
