"""Lists of words around the table: sorting argv by owner, naming what nobody counts."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from itertools import pairwise

from kvwise.errors import UsageError
from kvwise.launch import Launch
from kvwise.options.kinds import INT
from kvwise.options.row import EVERY
from kvwise.options.table import normal, spellings
from kvwise.text import Phrase, phrase

_SAYS_NONE = {"--spec-type"}
"""Passed on with `none` alone: any other value is a field of the launch."""


def split_argv(
    argv: Sequence[str], own: Mapping[str, int] | Container[str] = ()
) -> tuple[list[str], list[str]]:
    """(words for `read`, the rest): llama.cpp's options with their values are taken out.

    `own` are flags that the caller keeps for itself although llama.cpp has them too (`--prompt`);
    where it counts their values, these stay with them whatever they look like (`--keep -c`).
    Everything after `--` belongs to the engine. Words that nobody knows stay in the rest, for the
    caller to complain about.
    """
    engine: list[str] = []
    rest: list[str] = []
    tool = _tool(argv)
    known = spellings(tool) if tool in EVERY else {}
    anywhere = {flag: option for each in EVERY for flag, option in spellings(each).items()}
    at = 0
    while at < len(argv):
        word = argv[at]
        flag = normal(word)
        if word == "--":
            return engine + list(argv[at + 1 :]), rest
        option = None if flag in own else known.get(flag) or anywhere.get(flag)
        if option is None:
            shared = flag in known and isinstance(own, Mapping) and flag in own
            count = 1 + (own[flag] if shared and isinstance(own, Mapping) else 0)
            rest += argv[at : at + count]
            at += count
            continue
        takes = option.kind_in(tool).takes
        engine += argv[at : at + 1 + takes]
        at += 1 + takes
    return engine, rest


def _tool(argv: Sequence[str]) -> str:
    for word, value in pairwise(argv):
        if normal(word) == "--tool":
            return value
    return EVERY[0]


def asked_threads(launch: Launch, cores: int) -> int | None:
    """The last -t of a launch, None without one; llama.cpp takes all `cores` for 0 and less.

    Raises UsageError for what only llama-bench reads (`1,2`).
    """
    texts = [text for flag, text in pairwise(launch.extra) if flag in ("-t", "--threads")]
    if not texts:
        return None
    try:
        threads = INT.read(texts[-1])
    except UsageError as error:
        raise UsageError("{flag}: {problem}", flag="-t", problem=error.phrase) from None
    return threads if threads > 0 else cores


def uncounted(launch: Launch, counted: Collection[str] = ()) -> tuple[Phrase, ...]:
    """One note per passed-on option that may take memory the ledger does not count, but for
    those that it has `counted`."""
    known = spellings(launch.tool) if launch.tool in EVERY else {}
    flags = [
        word
        for word in launch.extra
        if word in known and known[word].memory and word not in (*_SAYS_NONE, *counted)
    ]
    return tuple(phrase("what {flag} takes is not counted", flag=flag) for flag in flags)
