"""Words: sentences as templates with fields, put into a language only at the faces.

Lower layers build a `Phrase` and never translate. `say` looks the template up in
the one catalogue (English is the key itself) and fills the fields in.
This module does not know where a language choice comes from.
"""

from __future__ import annotations

import gettext
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

LANGUAGES = ("en", "zh")
_CATALOGUE = {"zh": "zh_CN"}


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sentence in English with `{named}` fields, and the values of those fields."""

    template: str
    fields: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return say(self, "en")

    def __hash__(self) -> int:
        """By the sentence alone: the fields are a mapping, which has no hash."""
        return hash(self.template)


def phrase(template: str, /, **fields: object) -> Phrase:
    """Short way to write `Phrase(template, {...})`."""
    return Phrase(template, fields)


def template(text: str, /) -> str:
    """Marks a sentence for the translators that becomes a phrase elsewhere."""
    return text


@cache
def _translations(language: str) -> gettext.NullTranslations:
    code = _CATALOGUE.get(language)
    if code is None:
        return gettext.NullTranslations()
    folder = Path(__file__).parent / "locale"
    return gettext.translation("kvwise", folder, languages=[code], fallback=True)


def say(what: Phrase | str, language: str = "en") -> str:
    """Word a phrase in a language; an untranslated template stays English."""
    if isinstance(what, str):
        what = Phrase(what)
    template = _translations(language).gettext(what.template) if what.template else ""
    fields = {
        key: say(value, language) if isinstance(value, Phrase) else value
        for key, value in what.fields.items()
    }
    return template.format(**fields) if fields else template


def wordings(language: str) -> Mapping[str, str]:
    """Every template of the catalogue -> its wording in a language."""
    known: dict[str, str] = getattr(_translations("zh"), "_catalog", {})
    return {english: _translations(language).gettext(english) for english in known if english}
