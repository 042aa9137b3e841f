"""JSON objects that are changed in place: the order of keys and the indentation stay."""

from __future__ import annotations

import json
from typing import Any

from kvwise.errors import SourceError

_MOST = 4 * 1024 * 1024


def load(text: str) -> dict[str, Any]:
    """The object. Raises SourceError for what is none."""
    if len(text) > _MOST:
        raise SourceError("a settings file of {size:,} characters is too large", size=len(text))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError("not sound JSON: {why}", why=str(error)[:200]) from None
    if not isinstance(found, dict):
        raise SourceError("this JSON is no object with keys")
    return found


def dump(document: dict[str, Any], old: str | None) -> str:
    """The text: in lines, unless the old one was a single one."""
    packed = old is not None and "\n" not in old.strip()
    return json.dumps(document, ensure_ascii=False, indent=None if packed else 2) + "\n"
