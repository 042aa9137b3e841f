"""Teacher forcing over HTTP: what a server holds likely after every token of a given text.

No endpoint gives the probabilities of a prompt, but each answer gives those of the token it
generates, over the whole vocabulary and before any sampler. So the text is sent as token lists,
each one token longer than the last; with its prompt cache the server computes one token each time.

An answer depends on how the cache came to be: only the same requests in the same order repeat
themselves bit for bit. A chunk begins with an empty cache, so that it does not matter which chunks
came before it, and one that is done is kept. An answer that ends within a character (a byte token)
has no probabilities at all, so a bias, which they do not see, makes every answer the letter `a`.
Source: tools/server/server-context.cpp (process_token, populate_token_probs), b10605.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvwise.engine.server import Server
from kvwise.errors import EngineError
from kvwise.quality.divergence import Position, divergence, position

TOP = 200
"""Tokens per position. 50 lose 6 to 8 % of the divergence, 200 less than 1 %."""
_BIAS = 1000.0
_KIND = "kvwise-positions-1"


def positions(
    server: Server, chunk: Sequence[int], top: int = TOP, step: Callable[[], object] | None = None
) -> Iterator[Position]:
    """The positions that llama-perplexity scores: the second half of a chunk but its last.

    `step` is called after each. Raises EngineError for an answer without probabilities.
    """
    letter = server.tokenize("a")[-1]
    first = len(chunk) // 2 + 1
    for end in range(first, len(chunk)):
        yield _ask(server, chunk[:end], letter, top, fresh=end == first)
        if step:
            step()


def _ask(server: Server, tokens: Sequence[int], letter: int, top: int, *, fresh: bool) -> Position:
    body = {
        "prompt": list(tokens), "n_predict": 1, "n_probs": top, "temperature": 0,
        "cache_prompt": not fresh, "logit_bias": [[letter, _BIAS]],
    }  # fmt: skip
    answer = server.post("/completion", body)
    try:
        return position(answer["completion_probabilities"][0]["top_logprobs"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise EngineError(
            "the engine gave no probabilities for a token", hint="is it an old build?"
        ) from error


def compare(base: Sequence[Position], found: Iterable[Position]) -> tuple[list[float], int]:
    """How far `found` is from `base` at each position, and at how many the likeliest token stays.
    Raises EngineError when one is longer."""
    values, same = [], 0
    for place, each in enumerate(found):
        if place >= len(base):
            raise EngineError("the base has fewer positions than the text")
        values.append(divergence(base[place], each))
        same += each.top == base[place].top
    if len(values) != len(base):
        raise EngineError("the base has more positions than the text")
    return values, same


# -- kept in a file -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of positions: one JSON line, then all ids, then all log probabilities."""

    path: Path

    def write(self, found: Sequence[Position]) -> None:
        """All or nothing: a process that is killed leaves no half of a file under this name."""
        scratch = self.path.with_suffix(f".{os.getpid()}.part")
        sizes = [len(each.ids) for each in found]
        head = {"kind": _KIND, "sizes": sizes}
        with scratch.open("wb") as file:
            file.write(json.dumps(head).encode() + b"\n")
            for part in ("ids", "logs"):
                for each in found:
                    getattr(each, part).tofile(file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self.path)

    def read(self) -> list[Position] | None:
        """What was written; None when the file is not there, not whole, or something else."""
        try:
            with self.path.open("rb") as file:
                head = json.loads(file.readline(1 << 24))
                if head["kind"] != _KIND:
                    return None
                sizes = [int(size) for size in head["sizes"]]
                ids: list[array[int]] = [array("i") for _ in sizes]
                logs: list[array[float]] = [array("f") for _ in sizes]
                for size, one in zip(sizes, ids, strict=True):
                    one.fromfile(file, size)
                for size, other in zip(sizes, logs, strict=True):
                    other.fromfile(file, size)
                if file.read(1):
                    return None
        except (OSError, ValueError, KeyError, TypeError, EOFError, OverflowError):
            return None
        return [Position(*pair) for pair in zip(ids, logs, strict=True)]
