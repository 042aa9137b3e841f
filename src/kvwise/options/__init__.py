"""The options of llama.cpp: one table, read into a Launch and written back from it.

`table.OPTIONS` is the table (`memory.py`: rows that set a field; `passed.py`: the rest).
`read` turns argv and environment into a `Launch` and says where each value came from;
`to_argv` and `to_env` go back. A command-line face takes llama.cpp's words out of its own argv
with `split_argv` before it parses the rest: click cannot do it, because it would read `-ngl 9`
as its own `-n` with the value `gl`.
"""

from __future__ import annotations

from kvwise.options.reading import Reading, read
from kvwise.options.resolve import change, derived
from kvwise.options.row import Option
from kvwise.options.table import OPTIONS, spellings
from kvwise.options.words import asked_threads, split_argv, uncounted
from kvwise.options.writing import defaults, to_argv, to_env, unsayable

__all__ = [
    "OPTIONS",
    "Option",
    "Reading",
    "asked_threads",
    "change",
    "defaults",
    "derived",
    "read",
    "spellings",
    "split_argv",
    "to_argv",
    "to_env",
    "uncounted",
    "unsayable",
]
