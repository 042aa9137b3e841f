"""Fuzz target for the log reader: `python fuzz/fuzz_log.py -runs=200000` (atheris)."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from kvwise.diagnose import diagnose
    from kvwise.diagnose.scan import scan
    from kvwise.engine import log
    from kvwise.engine.loaded import Collector

_NEEDLES = [row.needle for row in log.lines.ROWS] + [
    row.needle for row in (*log.failures.ROWS, *log.failures.REMARKS)
]


def one_input(data: bytes) -> None:
    """Any bytes, in any two pieces, and with the words the reader looks for mixed in."""
    provider = atheris.FuzzedDataProvider(data)
    needle = _NEEDLES[provider.ConsumeIntInRange(0, len(_NEEDLES) - 1)].encode()
    text = needle + provider.ConsumeBytes(sys.maxsize)
    cut = len(text) // 2
    whole = list(log.read([text]))
    if list(log.read([text[:cut], text[cut:]])) != whole:
        raise AssertionError("the pieces matter")
    Collector().add_all(whole)
    quick = list(scan([text]))
    if list(scan([text[:cut], text[cut:]])) != quick:
        raise AssertionError("the pieces matter to the doctor")
    found = diagnose([text])
    for finding in found.findings:
        str(finding.cause)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
