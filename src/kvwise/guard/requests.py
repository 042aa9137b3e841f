"""What goes wrong with single requests while a server serves, read off its lines as they come.

Lines of tools/server (server-context.cpp), b10605: `stop processing: n_tokens = N, truncated = 1`
(older builds: `release: ... truncated = 1`), and the refusals that `engine/failures.py` knows.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from kvwise.engine import events as ev
from kvwise.text import Phrase, phrase, template

_TRUNCATED = re.compile(rb"n_(?:tokens|past) = (\d{1,12}),.{0,60}?truncated = 1")
_FIRST = 3  # times that a kind is told one by one
_THEN = 100  # after that, once in so many

_KINDS = {
    "context_exceeded": "refused",
    "no_cells": "no-cells",
    "input_above_ubatch": "too-large",
    "swa_reprocessed": "reprocessed",
}
_TOLD = {
    "truncated": template("an answer was cut off at the end of the context, at {tokens} tokens"),
    "refused": template("a request of {tokens} tokens was refused: a slot holds {n_ctx}"),
    "no-cells": template("the cache had no free cells for a request; requests share one context"),
    "too-large": template("a text of {tokens} tokens was refused: it is longer than -ub"),
    "reprocessed": template("a whole prompt was read again: this model cannot reuse a part of it"),
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """One request that did not go well, and how many of its kind there were so far."""

    kind: str
    sentence: Phrase
    count: int


@dataclass(slots=True)
class Requests:
    """Counts troubles by kind; tells the first few, then every hundredth."""

    counts: Counter[str] = field(default_factory=Counter)

    def of_line(self, line: bytes) -> Trouble | None:
        """A trouble that a raw line reports and that should be told."""
        if b"truncated = 1" not in line:
            return None
        match = _TRUNCATED.search(line)
        return self._counted("truncated", {"tokens": match[1].decode()}) if match else None

    def of_record(self, record: ev.Record) -> Trouble | None:
        """The same for a line that is known as a failure."""
        event = record.event
        if not isinstance(event, ev.Failure) or event.code not in _KINDS:
            return None
        return self._counted(_KINDS[event.code], event.fields)

    def _counted(self, kind: str, fields: dict[str, str]) -> Trouble | None:
        self.counts[kind] += 1
        count = self.counts[kind]
        if count > _FIRST and count % _THEN:
            return None
        known = {"tokens": fields.get("tokens", "?"), "n_ctx": fields.get("n_ctx", "?")}
        return Trouble(kind, phrase(_TOLD[kind], **known), count)
