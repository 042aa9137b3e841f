"""Measurements as lines of a report: what belongs together, and beside what it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.report.charts.tradeoff import pareto
from kvwise.report.lines import Task, groups
from kvwise.report.markdown import markdown
from kvwise.report.of_results import results_report
from kvwise.results import Measurement
from kvwise.results.label import labels
from report_made import BENCH, QWEN, bench, failed, memory, samples
from results_made import MACHINE

PP512 = Task("prompt", 512)


def test_speeds_memory_and_fidelity_of_a_setting_are_one_line() -> None:
    (group,) = groups(bench())
    assert [line.types for line in group.lines] == [
        "f16/f16", "q8_0/f16", "q8_0/q8_0", "f16/q4_0", "q8_0/q4_0", "q4_0/q4_0",
    ]  # fmt: skip
    line = group.lines[3]
    assert line.speeds[PP512].median == 438.0
    assert line.figure("kl_mean") == 0.0065
    assert line.predicted["context_bytes"] == line.measured["context_bytes"] == 369 << 20
    assert line.verdict == "high"


def test_each_line_stands_beside_f16_at_its_own_depth() -> None:
    (group,) = groups(bench(depths=(0, 4096)))
    deep = [line for line in group.lines if line.depth == 4096]
    assert [group.base(line) for line in deep] == [deep[0]] * 6
    slower = deep[3].than(deep[0], PP512)
    assert slower is not None
    assert (slower.verdict, round(slower.change, 3)) == ("less", -0.461)
    assert deep[0].than(deep[0], PP512) is None


def test_other_machines_engines_and_models_are_other_groups() -> None:
    other = replace(QWEN, name="other", fingerprint="x")
    away = replace(MACHINE, cores=2)
    found = [
        *bench(), *bench(model=other), *bench(machine=away),
        *bench(engine=replace(BENCH, build="b11549")),
        *bench(engine=replace(BENCH, tool="llama-server")),
    ]  # fmt: skip
    assert len(groups(found)) == 5


def test_what_failed_is_a_line_too() -> None:
    (group,) = groups([*bench(), failed()])
    (line,) = [line for line in group.lines if line.failed]
    assert (line.types, dict(line.speeds)) == ("f32/f32", {})


def test_a_later_measurement_of_the_same_counts() -> None:
    first = bench()[0]
    later = replace(first, at=first.at + 99, samples=samples(999.0))
    (group,) = groups([later, *bench()])
    assert group.lines[0].speeds[PP512].median == 999.0


def several() -> list[Measurement]:
    """The matrix with two lengths of prompt and of answer; the long ones are slower by a half and
    take a longer context."""
    longer = []
    for each in bench():
        if each.kind == "speed":
            test = {name: 4 * n if str(name).startswith("n_") else n
                    for name, n in each.test.items()}  # fmt: skip
            figures = {"memory": memory(1000.0, each.model.tensor_bytes)}
            settings = {**each.settings, "n_ctx": 8192}
            longer.append(replace(each, test=test, figures=figures, settings=settings,
                                  samples=samples((each.median or 0) / 2)))  # fmt: skip
    return [*longer, *bench()]


def test_each_length_of_prompt_and_answer_keeps_its_speed() -> None:
    (group,) = groups(several())
    assert [test.name for test in group.tests] == ["pp512", "pp2048", "tg128", "tg512"]
    assert len(group.lines) == 6
    medians = [group.lines[3].speeds[test].median for test in group.tests]
    assert medians == [438.0, 219.0, 30.2, 15.1]
    assert group.lines[3].measured["context_bytes"] == 1000 << 20  # of the longest context


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_length_is_in_the_table_the_picture_and_the_remarks(language: str) -> None:
    report = results_report(several())
    text = markdown(report, language)
    (heading,) = [line for line in text.splitlines() if "pp512, " in line or "pp512，" in line]
    assert [name for name in ("pp512", "pp2048", "tg128", "tg512") if name in heading] == [
        "pp512", "pp2048", "tg128", "tg512",
    ]  # fmt: skip
    row = next(line for line in text.splitlines() if line.startswith("| **q8\\_0/q8\\_0"))
    assert [value in row for value in ("845", "422", "32.2", "16.1")] == [True] * 4
    titles = [str(picture.title) for picture in report.pictures]
    assert sum("Speed against fidelity" in title for title in titles) == 2
    panels = report.pictures[0].spec["hconcat"]
    assert len(panels) == 6  # four speeds, memory, fidelity
    slower = [line for line in text.splitlines() if line.startswith("- f16/q4")]
    assert [name for line in slower for name in ("pp512", "pp2048", "tg128", "tg512")
            if f"({name})" in line or f"（{name}）" in line] == [
        "pp512", "pp2048", "tg128", "tg512"
    ]  # fmt: skip


def test_labels_say_only_what_differs() -> None:
    found = bench()[:3]
    assert labels(found) == ["f16/f16", "f16/f16", "f16/f16"]
    other = replace(found[0], settings={**found[0].settings, "n_ubatch": 128})
    assert labels([found[0], other]) == ["-ub 512", "-ub 128"]
    deep = replace(found[0], test={**found[0].test, "depth": 4096})
    assert labels([found[0], deep]) == ["@0", "@4096"]
    off = replace(found[0], settings={**found[0].settings, "offload_kqv": False, "type_v": "q8_0"})
    assert labels([found[0], off]) == ["f16/f16", "f16/q8_0 -nkvo"]


def test_labels_leave_out_what_nobody_set_and_say_nothing_twice() -> None:
    first = bench()[0]

    def given(**more: object) -> Measurement:
        return replace(first, settings={**first.settings, **more})

    some = given(n_gpu_layers=20, embeddings=True)
    assert labels([first, some]) == ["f16/f16", "f16/f16 -ngl 20"]
    threads = [given(extra=["-t", "1"], threads=1), given(extra=["-t", "2"], threads=2)]
    assert labels(threads) == ["-t 1", "-t 2"]
    assert labels([given(threads=1), given(threads=2)]) == ["-t 1", "-t 2"]


points = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)


@given(points)
def test_nothing_beats_what_is_on_the_line_and_something_beats_the_rest(
    found: list[tuple[float, float]],
) -> None:
    best = pareto(found)

    def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] <= b[0] and a[1] >= b[1] and a != b

    for place, point in enumerate(found):
        beaten = any(beats(found[other], point) for other in range(len(found)))
        assert (place in best) != beaten
