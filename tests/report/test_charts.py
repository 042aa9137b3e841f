"""Charts are valid Vega-Lite, and show the figures that were measured."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import altair as alt
import pytest

from kvwise.report import results_report
from kvwise.report.charts.common import bars
from kvwise.report.charts.contexts import Curve, contexts
from kvwise.report.document import Grid, Picture, worded
from kvwise.report.theme import DARK, LIGHT, NAMES, coloured
from report_made import QWEN, bench, embedding, failed, speculation, tuning

CURVES = [Curve("f16/f16", ((2048, 5 << 20), (4096, 9 << 20))), Curve("a", ((2048, 4 << 20),))]


def pictures(language: str = "en") -> dict[str, Any]:
    report = results_report(
        [*bench(), failed(), *speculation(), *embedding(), *tuning()], curves=lambda _: CURVES
    )
    return {str(each.title): worded(each.spec, language) for each in report.pictures}


PICTURES = pictures()


def test_all_kinds_are_there() -> None:
    assert list(PICTURES) == [
        "All settings at a glance", "Memory: predicted beside measured", "Speed against fidelity",
        "Context against memory", "Speculation beside plain decoding", "Texts to vectors",
        "The search",
    ]  # fmt: skip


@pytest.mark.parametrize("name", list(PICTURES))
def test_the_schema_of_vega_lite_takes_it(name: str) -> None:
    spec = coloured(PICTURES[name], LIGHT)
    alt.Chart.from_dict(spec, validate=True)  # raises for what is no Vega-Lite
    assert not any(token in json.dumps(spec) for token in NAMES)


def values(spec: Any, field: str) -> list[Any]:
    """Everything that is called so in the data of a specification."""
    found: list[Any] = []
    if isinstance(spec, dict):
        rows = [row for row in spec.get("values", ()) if isinstance(row, dict)]
        found += [row[field] for row in rows if field in row]
        for each in spec.values():
            found += values(each, field)
    elif isinstance(spec, list):
        for each in spec:
            found += values(each, field)
    return found


def test_the_one_picture_has_every_setting_speed_spread_and_verdict() -> None:
    spec = PICTURES["All settings at a glance"]
    speeds = [value for value in values(spec, "value") if value is not None]
    assert {812.0, 438.0, 31.4, 32.6} <= set(speeds)
    lows, highs = values(spec, "low"), values(spec, "high")
    assert all(low < high for low, high in zip(lows, highs, strict=True) if low is not None)
    assert {"lossless", "high", "medium", "failed"} <= set(values(spec, "text"))
    assert sum(value == 576.0 for value in values(spec, "mib")) == 1


def test_only_what_no_other_beats_is_on_the_line() -> None:
    spec = PICTURES["Speed against fidelity"]
    line = next(each for each in spec["layer"] if each["mark"]["type"] == "line")
    assert [row["label"] for row in line["data"]["values"]] == [
        "f16/f16 -fa on", "q8_0/q8_0 -fa on", "q4_0/q4_0 -fa on",
    ]  # fmt: skip


def test_what_a_driver_takes_is_compared_with_nothing() -> None:
    spec = PICTURES["Memory: predicted beside measured"]
    assert "driver" not in values(spec, "part")
    assert values(spec, "text")[0].startswith("6,021")


def test_what_was_disturbed_is_pale_with_a_question_mark() -> None:
    flagged = [replace(each, samples=tuple(replace(one, flags=("contended",))
               for one in each.samples)) for each in bench()[:2]]  # fmt: skip
    (first, *_) = results_report(flagged).pictures
    spec = worded(first.spec, "en")
    assert values(spec, "pale") == [True, True]
    assert {"812?", "31.4?"} <= set(values(spec, "text"))


def test_samples_that_are_shown_are_not_set_aside() -> None:
    good, bad = bench()[:2]
    some = replace(good, samples=(replace(good.samples[0], flags=("hot",)), *good.samples[1:]))
    bad = replace(bad, samples=tuple(replace(one, flags=("hot",)) for one in bad.samples))
    for found, said in (
        ([good], "5 counted, 0 set aside"),
        ([some], "4 counted, 1 set aside"),
        ([some, bad], "4 counted, 1 set aside, 5 disturbed and shown for want of others"),
    ):
        assert str({str(k): v for k, v in results_report(found).facts}["samples"]) == said


def test_a_change_against_what_was_disturbed_has_a_question_mark() -> None:
    good = [each for each in bench() if each.settings["type_v"] == "f16"]
    flagged = [replace(each, samples=tuple(replace(one, flags=("contended",))
               for one in each.samples)) for each in good]  # fmt: skip
    for found in (flagged, [*flagged[:2], *good[2:]], [*good[:2], *flagged[2:]]):
        (grid, *_) = [block for block in results_report(found).sections[0].blocks
                      if isinstance(block, Grid)]  # fmt: skip
        assert [row[2] for row in grid.rows] == ["", "-1.7 %?"]


def test_each_text_that_became_a_vector_has_its_speed_and_memory() -> None:
    spec = PICTURES["Texts to vectors"]
    names = {"f16/f16 embd64", "f16/f16 embd512", "f16/f16 embd512 #2"}
    assert set(values(spec, "label")) == names
    speeds, sizes = ([row["value"] for row in panel["data"]["values"]] for panel in spec["hconcat"])
    assert speeds == pytest.approx([2100.0, 3300.0, 2800.0], rel=0.02)
    assert all(size > QWEN.tensor_bytes / (1 << 20) for size in sizes)


def test_a_curve_needs_two_points() -> None:
    assert set(values(PICTURES["Context against memory"], "label")) == {"f16/f16"}
    assert contexts([CURVES[1]]) is None


def test_nothing_is_drawn_of_nothing() -> None:
    assert results_report([failed()]).pictures == ()
    lonely = [each for each in bench(QWEN) if each.kind == "fidelity"][:1]
    assert all(isinstance(each, Picture) for each in results_report(lonely).pictures)


def test_light_and_dark_name_the_same_colours() -> None:
    assert set(LIGHT) == set(DARK) == set(NAMES.values())


def test_a_far_sample_lies_on_the_axis_and_its_figure_stays_at_the_bar() -> None:
    def row(label: str, *samples: float) -> dict[str, Any]:
        return {"label": label, "value": 20.0, "low": 19.0, "high": 21.0, "samples": list(samples),
                "text": "20.0", "says": label}  # fmt: skip

    spec = bars([row("near", 20.0, 22.0), row("far", 20.0, 22.0, 60.0)], "", LIGHT["blue"],
                first=True, width=225)  # fmt: skip
    axes = [layer["encoding"]["x"]["scale"]["domain"] for layer in spec["layer"]]
    assert all(low == 0 and high > 60 for low, high in axes)
    assert [each["edge"] for each in spec["data"]["values"]] == [22.0, 22.0]
