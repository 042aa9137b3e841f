"""`kvwise results`: list, show, compare, export, import, report, as a user types them."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvwise.results import Measurement, line, load, save
from kvwise.store import Store
from report_made import AT, BENCH, QWEN, bench, failed, samples
from results_made import MACHINE

from .conftest import Kvwise

AWAY = replace(MACHINE, name="laptop", cores=4, cpu="Intel Core i5-1240P", devices=())


def keep(found: Sequence[Measurement]) -> None:
    with Store() as store:
        save(store, *found)


def kept() -> list[str]:
    with Store() as store:
        return sorted(map(line, load(store)))


@pytest.fixture
def measured() -> list[Measurement]:
    """Two builds, two machines, a failure."""
    newer = replace(BENCH, build="b11549", version="version: 11549")
    found = [*bench(), *bench(engine=newer, factor=1.2), *bench(machine=AWAY), failed()]
    keep(found)
    return found


# -- list and show ---------------------------------------------------------------------------------


def test_nothing_measured_is_said(quick: Kvwise) -> None:
    found = quick("results", "list")
    assert (found.code, found.out) == (0, "nothing was measured yet\n")
    assert quick("results", "list", "--json").json["results"] == []
    found = quick("results", "export")
    assert (found.code, found.out, found.err) == (0, "", "nothing was measured yet\n")
    found = quick("results", "compare", "a", "b")
    assert (found.code, found.err.splitlines()[0]) == (2, "error: nothing was measured yet")


def test_the_list_says_once_what_all_share(quick: Kvwise, measured: list[Measurement]) -> None:
    out = quick("results", "list", "--engine", "b10605", "--machine", "desk").out
    assert out.count("NVIDIA GeForce RTX 4060") == 1
    assert "812 ± 3 tokens/s" in out
    assert "failed: the KV cache does not fit" in out
    assert "KL 0.0065, 97.2 %" in out


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ((), 55), (("--kind", "fidelity"), 18), (("--engine", "b11549"), 18),
        (("--engine", "llama-perplexity", "--machine", "laptop"), 6), (("--model", "qwen"), 55),
        (("--state", "failed"), 1), (("--age", "90y"), 55), (("--machine", AWAY.id), 18),
    ],
)  # fmt: skip
def test_filters(
    quick: Kvwise, measured: list[Measurement], words: tuple[str, ...], count: int
) -> None:
    document = quick("results", "list", *words, "--json").json
    assert document["schema"] == "kvwise/result-list/1"
    assert len(document["results"]) == count


@pytest.mark.parametrize(
    "words",
    [("list", "--model", "nothing"), ("list", "--age", "0m"), ("show", "ffffff"), ("show",),
     ("list", "--age", "soon"), ("list", "more"), ("list", "--out", "x.csv"), ("frob",),
     ("import",), ("report",), ("report", "--report", "a.pdf"), ("compare", "b10605"),
     ("compare", "b10605", "laptop"), ("compare", "b10605", "nobody"), ("export", "--report", "a")],
)  # fmt: skip
def test_what_makes_no_sense_is_one_line_and_code_2(
    quick: Kvwise, measured: list[Measurement], words: tuple[str, ...]
) -> None:
    found = quick("results", *words)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("error: ")


@pytest.mark.parametrize("rows", [7, True, "x", {}, [None], [1.5, []], [{"context_bytes": "x"}]])
def test_memory_in_another_shape_is_left_out(quick: Kvwise, rows: Any) -> None:
    odd = replace(bench()[0], figures={"memory": {"predicted": rows, "measured": rows}})
    keep([odd])
    found = quick("results", "show", odd.identity[:10])
    assert found.code == 0
    assert "memory" not in found.out


def test_one_result_with_all_its_times(quick: Kvwise) -> None:
    first = bench()[0]
    flagged = replace(samples(700.0, 1)[0], flags=("contended",))
    later = replace(first, at=AT + 999, samples=(*samples(815.0), flagged))
    keep([first, later])
    out = quick("results", "show", first.identity[:10]).out
    assert first.identity in out
    assert "550.54.14 #1a2b3c4d" in out
    assert "812, 805, 816" in out
    assert "not counted: 700 (contended)" in out
    assert "cache 576.0 MiB" in out
    chinese = quick("results", "show", first.identity[:10], "--lang", "zh").out
    assert "700（受其他程序干扰）" in chinese
    assert "缓存 576.0 MiB" in chinese
    assert "812 ± 3 词元/秒" in quick("results", "list", "--lang", "zh").out
    assert "读取 512 个词元" in chinese
    for raw in ("metric", "n_prompt", "tokens/s", "contended"):
        assert raw not in chinese
    document = quick("results", "show", first.identity[:10], "--json").json
    assert [each["at"] for each in document["results"]] == [first.at, later.at]


def test_the_list_tells_lengths_apart_and_which_samples_count(quick: Kvwise) -> None:
    first = bench()[0]
    flagged = replace(samples(700.0, 1)[0], flags=("contended",))
    longer = replace(first, test={**first.test, "n_prompt": 4096},
                     samples=(*first.samples, flagged))  # fmt: skip
    keep([first])
    found = quick("results", "list")
    assert "reading a prompt, 512 tokens" in found.out
    assert "were disturbed" not in found.err
    keep([longer])
    found = quick("results", "list")
    assert "reading a prompt, 4,096 tokens" in found.out
    assert "5 of 6" in found.out
    assert "were disturbed" in found.err


def test_threads_are_said_once(quick: Kvwise) -> None:
    first = bench()[0]
    given = replace(first, settings={**first.settings, "extra": ["-t", "1"], "threads": 1})
    keep([given])
    out = quick("results", "show", given.identity[:10]).out
    assert "-t 1" in out
    assert "threads=1" not in out


def test_a_beginning_of_several_results_is_not_one(quick: Kvwise, measured: object) -> None:
    found = quick("results", "show", "")
    assert found.code == 2
    assert "beginning of" in found.err


# -- compare ---------------------------------------------------------------------------------------


def test_two_builds(quick: Kvwise, measured: list[Measurement]) -> None:
    document = quick("results", "compare", "b10605", "b11549", "--kind", "speed", "--json").json
    assert document["schema"] == "kvwise/results-comparison/1"
    assert len(document["pairs"]) == 12
    assert {pair["verdict"] for pair in document["pairs"]} == {"more"}
    assert all(abs(pair["change"] - 0.2) < 0.001 for pair in document["pairs"])
    assert all(0.01 <= pair["noise"] < 0.03 for pair in document["pairs"])


def test_two_machines_are_the_same_here(quick: Kvwise, measured: list[Measurement]) -> None:
    found = quick("results", "compare", "desk", "laptop", "--kind", "speed", "--engine", "b10605")
    assert found.out.count("within noise") == 12


def test_two_pairs_of_types_and_a_setting(quick: Kvwise, measured: list[Measurement]) -> None:
    words = ("--kind", "speed", "--machine", "desk", "--engine", "b10605", "--json")
    pairs = quick("results", "compare", "f16/f16", "f16/q4_0", *words).json["pairs"]
    changes = {pair["test"]["metric"]: pair["verdict"] for pair in pairs}
    assert changes == {"prompt": "less", "decode": "less"}
    small = [replace(each, settings={**each.settings, "n_ubatch": 128},
                     samples=samples(400.0)) for each in bench()[:1]]  # fmt: skip
    keep(small)
    found = quick("results", "compare", "n_ubatch=512", "n_ubatch=128", "--machine", "desk")
    assert "-50.7 %" in found.out
    assert "less" in found.out


def test_two_results_by_their_beginnings(quick: Kvwise, measured: list[Measurement]) -> None:
    a, b = measured[0].identity[:12], measured[6].identity[:12]
    (pair,) = quick("results", "compare", a, b, "--json").json["pairs"]
    assert pair["verdict"] == "more"  # q8_0/q8_0 reads faster than f16/f16 there


def test_one_sample_tells_nothing(quick: Kvwise) -> None:
    newer = replace(BENCH, build="b11549")
    keep([replace(each, samples=each.samples[:1]) for each in (*bench(), *bench(engine=newer))])
    assert "too few samples" in quick("results", "compare", "b10605", "b11549").out


# -- export and import -----------------------------------------------------------------------------


def test_there_and_back_into_another_home(
    quick: Kvwise, measured: list[Measurement], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "desk.jsonl"
    assert quick("results", "export", "--out", str(place)).code == 0
    assert quick("results", "export").out == place.read_text("utf-8")
    before = kept()
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path / "other"))
    first = quick("results", "import", str(place), "--json").json
    assert first == {"schema": "kvwise/results-import/1", "results": 55, "new": 55}
    assert quick("results", "import", str(place)).out == "55 results, 0 of them new\n"
    assert kept() == before


def test_two_machines_merge_the_same_in_any_order(
    quick: Kvwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for name, machine in (("desk", MACHINE), ("laptop", AWAY)):
        monkeypatch.setenv("KVWISE_HOME", str(tmp_path / name))
        keep(bench(machine=machine))
        files.append(str(tmp_path / f"{name}.jsonl"))
        quick("results", "export", "--out", files[-1])
    merged = []
    for order in (files, files[::-1]):
        monkeypatch.setenv("KVWISE_HOME", str(tmp_path / f"merged-{len(merged)}"))
        assert quick("results", "import", *order).code == 0
        merged.append(kept())
    assert merged[0] == merged[1]
    assert len(merged[0]) == 36


def test_a_broken_line_takes_nothing_in_from_any_file(
    quick: Kvwise, measured: list[Measurement], tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(f"{line(bench(machine=replace(MACHINE, cores=2))[0])}\n", "utf-8")
    bad.write_text(good.read_text("utf-8") + '{"schema":"kvwise/results/1","kind"', "utf-8")
    before = kept()
    found = quick("results", "import", str(good), str(bad))
    assert (found.code, found.out) == (2, "")
    assert "bad.jsonl, line 2: it is no JSON" in found.err
    assert "nothing was taken" in found.err
    assert kept() == before


@pytest.mark.parametrize("name", ["missing.jsonl", "/dev/zero", "."])
def test_what_is_no_file_is_refused(quick: Kvwise, tmp_path: Path, name: str) -> None:
    found = quick("results", "import", name)
    assert found.code == 1
    assert found.err.startswith("error: ")
    assert len([line for line in found.err.splitlines() if not line.startswith("hint: ")]) == 1


def test_a_file_that_is_not_there_or_is_csv_says_what_to_do(
    quick: Kvwise, measured: object, tmp_path: Path
) -> None:
    found = quick("results", "import", "nofile.jsonl", "--lang", "zh")
    assert found.err.splitlines()[0] == "错误：nofile.jsonl：没有这个文件"
    assert "kvwise results export --out FILE.jsonl" in found.err
    place = tmp_path / "desk.csv"
    quick("results", "export", "--out", str(place))
    found = quick("results", "import", str(place))
    assert found.code == 2
    assert "is the CSV for spreadsheets" in found.err
    assert "Expecting value" not in found.err


def test_settings_are_the_flags_that_differ(quick: Kvwise) -> None:
    server = replace(BENCH, tool="llama-server")
    settings = {"type_k": "q8_0", "type_v": "f16", "n_ctx": 4096, "flash_attn": "auto",
                "fit": False, "extra": ["-t", "1"], "poll": 50}  # fmt: skip
    one = replace(bench()[0], engine=server, settings=settings)
    odd = replace(one, settings={"override_tensor": [1, {"a": None}], "n_ctx": "x"})
    keep([one, odd])
    out = quick("results", "show", one.identity[:10]).out
    assert "-c 4096 -ctk q8_0 -fit off -t 1 poll=50" in out
    assert quick("results", "show", odd.identity[:10]).code == 0  # out of a stranger's file


def test_the_action_that_is_missing_is_one_of_these(quick: Kvwise) -> None:
    assert "one of list, show, compare" in quick("results").err


def test_standard_input_can_be_imported(measured: list[Measurement]) -> None:
    words = [sys.executable, "-m", "kvwise", "results", "import", "-"]
    text = "".join(f"{line(each)}\n\n" for each in measured[:2])
    done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    assert done.stdout == "2 results, 0 of them new\n"


def test_anonymous_tells_neither_machine_nor_folders(quick: Kvwise, tmp_path: Path) -> None:
    keep(bench())
    text = quick("results", "export", "--anonymous").out
    assert "desk" not in text
    assert "/opt/" not in text
    assert "/models/" not in text
    assert [json.loads(each)["identity"] for each in text.splitlines()] == [
        json.loads(each)["identity"] for each in quick("results", "export").out.splitlines()
    ]


def test_csv_by_the_name_and_a_strangers_file_is_kept(
    quick: Kvwise, measured: list[Measurement], tmp_path: Path
) -> None:
    place = tmp_path / "all.csv"
    place.write_text("mine", "utf-8")
    found = quick("results", "export", "--out", str(place))
    assert "all.csv.bak" in found.err
    rows = list(csv.DictReader(io.StringIO(place.read_text("utf-8"))))
    assert len(rows) == 55
    assert rows[0]["settings.type_k"] == "f16"
    assert (tmp_path / "all.csv.bak").read_text("utf-8") == "mine"


# -- report ----------------------------------------------------------------------------------------


def test_a_report_of_what_the_filters_leave(
    quick: Kvwise, measured: list[Measurement], tmp_path: Path
) -> None:
    place = tmp_path / "a.md"
    words = ("--report", str(place), "--machine", "laptop", "--title", "My *speeds*")
    found = quick("results", "report", *words, "--lang", "zh")
    assert (found.code, found.out) == (0, "")
    text = place.read_text("utf-8")
    assert "# My \\*speeds\\*" in text
    assert "Intel Core i5-1240P" in text
    assert "RTX 4060" not in text
    assert "困惑度之比" in text


def test_a_report_in_json_is_on_stdout_too(
    quick: Kvwise, measured: list[Measurement], tmp_path: Path
) -> None:
    place = tmp_path / "a.md"
    found = quick("results", "report", "--report", str(place), "--machine", "laptop", "--json")
    assert place.exists()
    assert found.json["schema"] == "kvwise/report/1"
    assert {row["machine"]["name"] for row in found.json["results"]} == {"laptop"}


def test_a_report_names_its_figures_and_leaves_out_empty_ones(
    quick: Kvwise, tmp_path: Path
) -> None:
    figures = {"state": "ok", "accepted_length": 2.31, "peak_rss_bytes": 123 << 20, "error": None}
    keep([replace(bench()[1], kind="speculation", test={"metric": "speculation"},
                  settings={"spec_types": ["draft-simple"]}, figures=figures)])  # fmt: skip
    place = tmp_path / "a.md"
    quick("results", "report", "--report", str(place))
    text = place.read_text("utf-8")
    assert "| settings | what | outcome | tokens per pass | most memory |" in text
    assert "123.0 MiB" in text
    assert "*Weights" not in text  # the caption of a picture that Markdown has not


def test_filters_do_not_read_sql(quick: Kvwise, measured: list[Measurement]) -> None:
    found = quick("results", "list", "--model", "' OR 1=1 --", "--json")
    assert found.code == 2


def test_the_model_of_a_result_is_asked_by_its_fingerprint(quick: Kvwise) -> None:
    keep(bench())
    found = quick("results", "list", "--model", QWEN.fingerprint, "--json").json
    assert len(found["results"]) == 18
