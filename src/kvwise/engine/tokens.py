"""Exact token counts by the model's own tokenizer, of texts of any size.

The engine is started with a context of one cell block, without warm-up, repacking or GPU layers:
the weights are mapped and never touched, so it costs the vocabulary and little else. The whole
text goes in one request, because every cut can change the count (a token may span it); the ids
come back as JSON and are counted as they arrive, not kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from kvwise.engine.find import Engine
from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.errors import EngineError, SourceError
from kvwise.launch import Launch

_SMALLEST = Launch(
    n_ctx=256, n_batch=256, n_ubatch=256, n_seq_max=1, n_gpu_layers=0, flash_attn="auto",
    repack=False, fit=False, n_outputs_max=1,
)  # fmt: skip
MAX_BYTES = 1 << 30
"""Of one text: it is one string here and one in the engine. 40 MB took 14 s (engine-facts 2)."""

Progress = Callable[[str, float], None]
"""Called with what is being done (`load`, `tokenize`, `count`) and the seconds so far."""


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
    place = Path(path)
    try:
        size = place.stat().st_size
        if size > MAX_BYTES:
            raise SourceError(
                "{path} has {size} bytes; more than {limit} are not counted in one go",
                path=str(path), size=size, limit=MAX_BYTES,
            )  # fmt: skip
        data = place.read_bytes()
    except OSError as error:
        raise SourceError(
            "{path} cannot be read: {why}", path=str(path), why=error.strerror
        ) from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(
            "{path} is not UTF-8 text (byte {offset})", path=str(path), offset=error.start,
            hint="convert it first, for instance with iconv",
        ) from error  # fmt: skip


class Counter:
    """A running tokenizer. Use as a context manager."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._added: int | None = None

    @classmethod
    def start(cls, model: str | Path, *, engine: Engine | None = None) -> Self:
        """Load the model's vocabulary; raises like `Server.start`."""
        return cls(Server.start(model, _SMALLEST, engine=engine, run=Run(warmup=False, threads=1)))

    def count(
        self, text: str, *, add_special: bool = True, parse_special: bool = True
    ) -> TokenCount:
        """Tokens of `text`, by default as llama-server counts a prompt: with what the model adds
        in front, and with special tokens in the text taken as such."""
        started = time.monotonic()
        number = self._count(text, add_special, parse_special)
        return TokenCount(
            tokens=number,
            bytes=len(text.encode("utf-8")),
            characters=len(text),
            special=self._special() if add_special else 0,
            seconds=time.monotonic() - started,
        )

    def _special(self) -> int:
        if self._added is None:
            self._added = self._count("", add_special=True, parse_special=True)
        return self._added

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
    started = time.monotonic()
    tell = progress or (lambda _what, _seconds: None)
    tell("load", 0.0)
    text = read_text(path)
    with Counter.start(model, engine=engine) as counter:
        tell("tokenize", time.monotonic() - started)
        result = counter.count(text, add_special=add_special, parse_special=parse_special)
    tell("count", time.monotonic() - started)
    return replace(result, seconds=time.monotonic() - started)
