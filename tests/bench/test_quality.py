"""Fidelity beside speed: which measurement belongs to which setting, and what is said of it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvwise.bench.run import Sweep
from kvwise.bench.summary import Line
from kvwise.cli._bench_quality import BROKEN, SENSITIVE, by_line, noticed, show_quality
from kvwise.cli.output import Printer
from kvwise.opening import open_model
from kvwise.results import EngineSeen, Machine, Measurement, model_seen, settings_seen

from .make import DECODE, figure, line

ZOO = Path(__file__).resolve().parents[1] / "zoo/models/qwen3-8b.json.gz"
LINES = [
    line("f16", "f16", figure(DECODE, 99, 100, 101)),
    line("q4_0", "f16", figure(DECODE, 99, 100, 101)),
    line("f16", "q4_0", figure(DECODE, 97, 98, 99)),
    line("q8_0", "q8_0", figure(DECODE, 97, 98, 99)),
]


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return Sweep((open_model(str(ZOO)),), (), None, 3, 0)  # type: ignore[arg-type]


def measured(sweep: Sweep, of: Line, kl: float, verdict: str, **more: Any) -> Measurement:
    figures = {"kl_mean": kl, "kl_mean_error": 0.0001, "noise_kl_mean": 0.001, "kl_p99": 10 * kl,
               "same_top": 0.9, "ppl_ratio": 1.01, "verdict": verdict}  # fmt: skip
    launch = replace(of.case.launch, n_ctx=512)  # of its own
    return Measurement(
        "fidelity", 1.0, Machine("m", "linux", "cpu", 2, 1 << 34), EngineSeen("embedded", "b11549"),
        model_seen(sweep.models[0]), settings_seen(launch), {"metric": "fidelity"},
        figures=figures | more,
    )  # fmt: skip


def test_each_setting_has_its_fidelity_whatever_its_context(sweep: Sweep) -> None:
    found = [measured(sweep, LINES[1], 0.05, "medium"), measured(sweep, LINES[3], 0.002, "high")]
    known = by_line(sweep, LINES, found)
    assert {key: each.figures["kl_mean"] for key, each in known.items()} == {
        LINES[1].case.key: 0.05, LINES[3].case.key: 0.002,
    }  # fmt: skip


def test_what_is_quick_and_broken_and_which_side_matters(sweep: Sweep) -> None:
    found = [measured(sweep, LINES[1], 2.5, "broken"), measured(sweep, LINES[2], 0.011, "high")]
    known = by_line(sweep, LINES, found)
    told = noticed(LINES, known)
    assert [each.code for each in told] == [SENSITIVE, BROKEN]
    assert told[0].keys == (LINES[1].case.key, LINES[2].case.key)
    assert told[1].keys == (LINES[1].case.key,)


@pytest.mark.parametrize(("language", "said"), [("en", "broken"), ("zh", "损坏")])
def test_the_table_says_the_verdict(sweep: Sweep, language: str, said: str) -> None:
    found = [measured(sweep, LINES[1], 2.5, "broken")]
    out = io.StringIO()
    show_quality(Printer(language=language, out=out), sweep, LINES, by_line(sweep, LINES, found))
    (row,) = [each for each in out.getvalue().splitlines() if "2.5000" in each]
    assert "q4_0" in row
    assert said in row


def test_nothing_is_shown_where_nothing_was_measured(sweep: Sweep) -> None:
    out = io.StringIO()
    show_quality(Printer(out=out), sweep, LINES, {})
    assert out.getvalue() == ""


def test_what_is_told_of_one_model_is_not_taken_from_another(sweep: Sweep) -> None:
    """The second model's f16 is quick; its q4_0 is slow and broken, which nobody would pick."""
    other = [
        replace(each, case=replace(each.case, model=1), figures=(figure(DECODE, *speeds),))
        for each, speeds in ((LINES[0], (899, 900, 901)), (LINES[1], (99, 100, 101)))
    ]
    lines = [*LINES, *other]
    broken = measured(sweep, LINES[1], 2.5, "broken")
    keys = [each.case.key for each in (LINES[1], other[1])]
    assert keys[0] != keys[1]
    told = noticed(lines, dict.fromkeys(keys, broken))
    assert [(each.code, each.keys) for each in told] == [(BROKEN, (keys[0],))]
