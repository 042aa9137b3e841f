"""Answers kept in a JSONL file, each under its inputs: a run that is killed loses one at most."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvwise.errors import KvwiseError

SOURCES = Path(__file__).resolve().parents[2] / "src" / "kvwise"
_DECIDES = ("arch", "memory", "plan", "gguf", "options", "launch.py", "device.py")
Row = dict[str, Any]


def version() -> str:
    """Of the code that a plan comes from: when it changes, our side is asked anew."""
    digest = hashlib.sha256()
    for name in _DECIDES:
        place = SOURCES / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class NotKept(KvwiseError):
    """It was not asked yet, and only what is kept is wanted."""


class Kept:
    """The file. A last line that was cut off is dropped, and overwritten by the next answer.

    `closed`: nothing new is asked; raises NotKept instead.
    """

    def __init__(self, path: Path, *, closed: bool = False) -> None:
        self._closed = closed
        self._rows: dict[str, Row] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        self._file.seek(0)
        good = 0
        for line in self._file.read().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            row = json.loads(line)
            self._rows[row["key"]] = row["answer"]
            good += len(line)
        self._file.truncate(good)

    def known(self, key: str) -> Row | None:
        """The kept answer, or None."""
        return self._rows.get(key)

    def ask(self, key: str, answer: Callable[[], Row]) -> Row:
        """The kept answer, or a new one, which is on the disk before it is returned."""
        if key not in self._rows:
            if self._closed:
                raise NotKept("not asked yet: {key}", key=key)
            row = answer()
            self._file.write(json.dumps({"key": key, "answer": row}).encode() + b"\n")
            self._file.flush()
            self._rows[key] = row
        return self._rows[key]
