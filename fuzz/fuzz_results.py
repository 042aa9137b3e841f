"""Fuzz target for files of results: `python fuzz/fuzz_results.py -runs=200000` (atheris).

A mutated line is refused with a sentence, or it is a measurement that can be kept, found, shown
and written out again as the same.
"""

from __future__ import annotations

import json
import sys
from io import BytesIO
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["kvwise"]):
    from kvwise.errors import KvwiseError
    from kvwise.report import results_report
    from kvwise.report.markdown import markdown
    from kvwise.results import from_line, line, load, save
    from kvwise.results.files import csv_text, read_lines
    from kvwise.results.learn import _fidelity, _speed
    from kvwise.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from report_made import bench, failed, speculation, tuning

SEEDS = [json.loads(line(each)) for each in (*bench()[:3], failed(), *speculation(), *tuning()[:2])]
VALUES = (
    None, True, -1, 0, 1.5, 1 << 70, 1e308, "", "\0", "\ud800", "a" * 5000, "\x1b[31m", [], {},
    [[[]]], {"": 1}, "f16", [1], {"a": {}}, "NaN",
)  # fmt: skip


def mutated(provider: atheris.FuzzedDataProvider) -> bytes:
    """A measurement in which some value is another one."""
    document = json.loads(json.dumps(SEEDS[provider.ConsumeIntInRange(0, len(SEEDS) - 1)]))
    for _ in range(provider.ConsumeIntInRange(1, 3)):
        place = document
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            key = keys[provider.ConsumeIntInRange(0, len(keys) - 1)]
            if not isinstance(place[key], dict | list) or provider.ConsumeIntInRange(0, 3) == 0:
                place[key] = VALUES[provider.ConsumeIntInRange(0, len(VALUES) - 1)]
                break
            place = place[key]
    return json.dumps(document).encode()


def one_input(data: bytes) -> None:
    """Any bytes, or a document with some of its values changed."""
    provider = atheris.FuzzedDataProvider(data)
    plain = provider.ConsumeIntInRange(0, 3) == 0
    text = provider.ConsumeBytes(1 << 16) if plain else mutated(provider)
    try:
        found = list(read_lines(BytesIO(text), "fuzz"))
    except KvwiseError as error:
        str(error)
        return
    with Store(Path(":memory:")) as store:
        save(store, *found)
        kept = load(store)
    for each in kept:
        if line(from_line(line(each))) != line(each):
            raise RuntimeError(each)
        _speed(each)
        _fidelity(each)
    if kept:
        csv_text(kept)
        for language in ("en", "zh"):
            markdown(results_report(kept), language)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
