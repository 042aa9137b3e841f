"""Fuzz target for llama-perplexity's tables: `python fuzz/fuzz_perplexity.py -runs=200000`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from kvwise.engine.perplexity import read_statistics
    from kvwise.errors import EngineError

_LINES = (
    "Mean PPL(Q) : ", "Mean PPL(base) : ", "Mean PPL(Q)/PPL(base) : 1.0 ± ", "Mean    KLD: ",
    "Mean    KLD: 0.1 ± ", "Maximum KLD: ", "99.0%   KLD: ", "Median  KLD: ", "Same top p: ",
    "Same top p: 90.0 ± ",
)  # fmt: skip


def one_input(data: bytes) -> None:
    """Any bytes after the words that the reader looks for: numbers, or one kind of error."""
    provider = atheris.FuzzedDataProvider(data)
    lines = []
    while provider.remaining_bytes():
        line = _LINES[provider.ConsumeIntInRange(0, len(_LINES) - 1)]
        lines.append(line + provider.ConsumeUnicode(provider.ConsumeIntInRange(0, 24)))
    try:
        found = read_statistics("\n".join(lines))
    except EngineError:
        return
    if not (found.kl_mean >= 0 and found.kl_max < 1e13):
        raise AssertionError("a figure that is none")


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
