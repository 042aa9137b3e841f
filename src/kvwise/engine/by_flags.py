"""Which build a program is that does not know its own number: by the flags of its `--help`.

llama.cpp compiled from an archive, without its repository, calls itself build 0. Its flags are
those of the source, and our rows of options were read off the source of the known builds: a program
that shows all flags of one of them, and none besides, is that build or so near to it that nobody
added, renamed or dropped a flag in between. Anything else stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from kvwise import builds
from kvwise.options.row import EVERY
from kvwise.options.table import spellings

_SPELLINGS = re.compile(r"^ {0,2}((?:--?[A-Za-z][\w.-]*,?\s+)*--?[A-Za-z][\w.-]*)", re.MULTILINE)
_CONDITIONAL = frozenset({"-rpc", "--rpc"})
"""Shown only by programs built with GGML_RPC (b10605 common/arg.cpp, llama-bench.cpp)."""


def shown_in(text: str) -> frozenset[str]:
    """The flags that the lines of a `--help` begin with; those that a description mentions are
    not among them."""
    words = (word for found in _SPELLINGS.findall(text) for word in found.split())
    return frozenset(word.removesuffix(",") for word in words)


def build_by_flags(shown: AbstractSet[str]) -> str | None:
    """The one known build that has a tool with these flags, else None."""
    found = {build for build in builds.KNOWN for tool in EVERY if _are_those_of(tool, shown, build)}
    return builds.name(found.pop()) if len(found) == 1 else None


def _are_those_of(tool: str, shown: AbstractSet[str], build: int) -> bool:
    """A removed flag may be shown, as one that is refused with a word about what came instead."""
    rows = {flag: row for flag, row in spellings(tool).items() if not row.ours}
    removed = {flag for flag, row in rows.items() if row.gone(build)}
    known = {flag for flag, row in rows.items() if build > row.lacking} - removed
    return known - _CONDITIONAL <= shown <= known | removed
