"""A vocabulary for a twin: zoo headers have none, and every file that people run has one.

Both sides have to read it, llama.cpp once more in every pass of its `--fit`. The tokens are the
first ones of a real model's, Gemma 3, as many as the twin's own vocabulary has: real texts of real
lengths, in the form that costs llama.cpp least (no merges, as most models have).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from kvwise.gguf.header import Header, Value
from kvwise.gguf.open import open_header
from models import gemma3

_ARRAYS: dict[str, float | None] = {
    "tokenizer.ggml.tokens": None,
    "tokenizer.ggml.scores": -1000.0,
    "tokenizer.ggml.token_type": 1,  # llama.cpp's type of a plain word
}
"""What a token more than the real ones gets: a text of its own, or this number."""


def with_vocabulary(header: Header) -> Header:
    """The same header with tokens, scores and types for `ARCH.vocab_size` tokens."""
    count = header.metadata[f"{header.architecture}.vocab_size"]
    if not isinstance(count, int):
        raise TypeError(f"{header.architecture}.vocab_size is {count!r}")
    values, types = _real()
    told: dict[str, Value] = dict(values)
    for key, more in _ARRAYS.items():
        real = values[key]
        if not isinstance(real, tuple):
            raise TypeError(f"{key} was not kept")
        lacking = range(len(real), count)
        told[key] = (*real[:count], *(f"<{n}>" if more is None else more for n in lacking))
    own = {key: value for key, value in header.metadata.items() if not key.startswith("tokenizer.")}
    return replace(header, metadata=own | told, value_types={**header.value_types, **types})


@cache
def _real() -> tuple[Mapping[str, Value], Mapping[str, str]]:
    found = open_header(str(gemma3()), arrays="all")
    kept = {key: value for key, value in found.metadata.items() if key.startswith("tokenizer.")}
    return kept, {key: found.value_types[key] for key in kept}
