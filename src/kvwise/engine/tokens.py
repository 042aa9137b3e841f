"""Exact token counts by the model's own tokenizer, of texts of any size.

The engine is started with a context of one cell block, without warm-up, repacking or GPU layers:
the weights are mapped and never touched, so it costs the vocabulary and little else. A text goes
in one request, because a cut can change the count (a token may span it), except where the
vocabulary proves that it cannot (`cuts.py`). The ids come back as JSON and are counted as they
arrive, not kept.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kvwise.engine.cuts import PIECE, Cuts, cuts_of
from kvwise.engine.find import Engine
from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.errors import EngineError, SourceError
from kvwise.launch import Launch
from kvwise.oserrors import reason_of

_SMALLEST = Launch(
    n_ctx=256, n_batch=256, n_ubatch=256, n_seq_max=1, n_gpu_layers=0, flash_attn="auto",
    repack=False, fit=False, n_outputs_max=1,
)  # fmt: skip
MAX_BYTES = 1 << 30
"""Of one text: it is one string here and one in the engine. 40 MB took 14 s (engine-facts 2)."""

Progress = Callable[[int, int], None]
"""Called with the characters done and all there are, before the first and after each piece."""


@dataclass(frozen=True, slots=True)
class TokenCount:
    """`tokens` of a text of `bytes` bytes; `special` of them were added by the model (BOS...)."""

    tokens: int
    bytes: int
    characters: int
    special: int
    seconds: float


def read_text(path: str | Path) -> str:
    """A text file as it is: line ends and all. Raises SourceError if it is none, or not UTF-8."""
    try:
        with Path(path).open("rb") as file:  # a pipe or a device does not say its size
            size = max(os.fstat(file.fileno()).st_size, 0)
            data = b"" if size > MAX_BYTES else file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SourceError(
            "{path} cannot be read: {why}", path=str(path), why=reason_of(error)
        ) from error
    if max(size, len(data)) > MAX_BYTES:
        raise SourceError(
            "{path} has {size} bytes; more than {limit} are not counted in one go",
            path=str(path), size=max(size, len(data)), limit=MAX_BYTES,
        )  # fmt: skip
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(
            "{path} is not UTF-8 text (byte {offset})", path=str(path), offset=error.start,
            hint="convert it first, for instance with iconv",
        ) from error  # fmt: skip


class Counter:
    """A running tokenizer. Use as a context manager."""

    def __init__(self, server: Server, model: str) -> None:
        self.server = server
        self._model = model
        self._added: int | None = None
        self._cuts: Cuts | None = None

    @classmethod
    def start(cls, model: str | Path, *, engine: Engine | None = None) -> Self:
        """Load the model's vocabulary; raises like `Server.start`."""
        run = Run(warmup=False, threads=1)
        return cls(Server.start(model, _SMALLEST, engine=engine, run=run), str(model))

    def count(
        self,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = True,
        progress: Progress | None = None,
    ) -> TokenCount:
        """Tokens of `text`, by default as llama-server counts a prompt: with what the model adds
        in front, and with special tokens in the text taken as such."""
        started = time.monotonic()
        special = self._special() if add_special else 0
        number = special + self._content(
            text, parse_special, progress or (lambda _done, _all: None)
        )
        return TokenCount(
            tokens=number,
            bytes=len(text.encode("utf-8")),
            characters=len(text),
            special=special,
            seconds=time.monotonic() - started,
        )

    def _special(self) -> int:
        """What the model adds to every text: an empty one has nothing else."""
        if self._added is None:
            self._added = self._count("", add_special=True, parse_special=True)
        return self._added

    def _content(self, text: str, parse_special: bool, progress: Progress) -> int:
        """Tokens of the text alone. What is added depends on the model only, not on the text."""
        progress(0, len(text))
        number = done = 0
        for piece in self._pieces(text):
            number += self._count(piece, add_special=False, parse_special=parse_special)
            done += len(piece)
            progress(done, len(text))
        return number

    def _pieces(self, text: str) -> Iterable[str]:
        if len(text) <= PIECE:
            return (text,)
        if self._cuts is None:
            self._cuts = cuts_of(self._model)
        return self._cuts.pieces(text)

    def _count(self, text: str, add_special: bool, parse_special: bool) -> int:
        body = {"content": text, "add_special": add_special, "parse_special": parse_special}
        try:
            payload = json.dumps(body, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise SourceError(
                "the text has half a character at position {offset}", offset=error.start
            ) from error
        return count_ids(self.server.stream("/tokenize", payload))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.close()


def count_ids(pieces: Iterable[bytes]) -> int:
    """How many ids are in `{"tokens":[1,2,3]}`, however it is cut; raises EngineError."""
    head, tail, commas = b"", b"", 0
    for piece in pieces:
        head = head + piece[: 16 - len(head)] if len(head) < 16 else head
        tail = (tail + piece)[-2:]
        commas += piece.count(b",")
    if not head.startswith(b'{"tokens":[') or tail != b"]}":
        raise EngineError("the engine's answer to a text is no list of tokens")
    return 0 if head == b'{"tokens":[]}' else commas + 1


def count_file(
    model: str | Path,
    path: str | Path,
    *,
    engine: Engine | None = None,
    add_special: bool = True,
    parse_special: bool = True,
    progress: Progress | None = None,
) -> TokenCount:
    """Tokens of a text file for a model on disk. Raises SourceError, UsageError, EngineError."""
    text = read_text(path)
    with Counter.start(model, engine=engine) as counter:
        return counter.count(
            text, add_special=add_special, parse_special=parse_special, progress=progress
        )
