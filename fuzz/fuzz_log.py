"""Fuzz target for the log reader: `python fuzz/fuzz_log.py -runs=200000` (atheris).

`--plain --runs N [--seed N]` makes inputs at random, without atheris and without its cost.
"""

from __future__ import annotations

import argparse
import random
import sys
from contextlib import nullcontext
from typing import Any

PLAIN = "--plain" in sys.argv
if not PLAIN:
    import atheris

with (
    nullcontext()
    if PLAIN
    else atheris.instrument_imports(include=["kvwise.diagnose", "kvwise.engine"])
):
    from kvwise.diagnose import diagnose
    from kvwise.diagnose.scan import scan
    from kvwise.engine import log
    from kvwise.engine.loaded import Collector
    from kvwise.engine.wordings import signals

_NEEDLES = [
    *(row.needle for row in log.lines.ROWS),
    *(row.needle for rows, _ in log.failures.TABLES for row in rows),
    *signals.NEEDLES,
]
_MOST = 4
"""Needles in one input, each on a line of its own with bytes around it."""


class Chance:
    """As atheris' provider, by chance."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def ConsumeIntInRange(self, low: int, high: int) -> int:  # noqa: N802
        return self._rng.randint(low, high)

    def ConsumeBytes(self, count: int) -> bytes:  # noqa: N802
        """Mostly text, as logs are."""
        length = self._rng.randrange(min(count, 200) + 1)
        if self._rng.random() < 0.2:
            return self._rng.randbytes(length)
        return bytes(self._rng.choices(_LETTERS, k=length))


_LETTERS = (
    b"abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 \t\r\n:=._-/\\'\"(){}[],%#<>|\x1b\x00\xff\xc3"
)


def one_input(data: bytes) -> None:
    check(atheris.FuzzedDataProvider(data))


def check(provider: Any) -> None:
    """Any bytes, in any two pieces, and with the words the reader looks for mixed in.

    Reading is cheap and a diagnosis is not: most inputs go to the reader, a tenth to the rules.
    """
    whose = provider.ConsumeIntInRange(0, 9)
    text = b""
    for _ in range(provider.ConsumeIntInRange(1, _MOST)):
        needle = _NEEDLES[provider.ConsumeIntInRange(0, len(_NEEDLES) - 1)].encode()
        text += provider.ConsumeBytes(40) + needle + provider.ConsumeBytes(120) + b"\n"
    text += provider.ConsumeBytes(sys.maxsize)
    cut = provider.ConsumeIntInRange(0, len(text))
    pieces = [text[:cut], text[cut:]]
    if whose < 6:
        whole = list(log.read([text]))
        if list(log.read(pieces)) != whole:
            raise AssertionError("the pieces matter")
        Collector().add_all(whole)
    elif whose < 9:
        if list(scan(pieces)) != list(scan([text])):
            raise AssertionError("the pieces matter to the doctor")
    else:
        for finding in diagnose(pieces).findings:
            str(finding.cause)


def plain() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for number in range(asked.runs):
        try:
            check(Chance(random.Random(f"{asked.seed}/{number}")))  # noqa: S311
        except BaseException:
            print(f"seed {asked.seed}, input {number}")
            raise
        if number % 5000 == 4999:
            print(number + 1, flush=True)


if __name__ == "__main__":
    if PLAIN:
        plain()
    else:
        atheris.Setup(sys.argv, one_input)
        atheris.Fuzz()
