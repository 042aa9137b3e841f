"""`kvwise table`: the reports' tables, formats, exit codes."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys

import pytest

from kvwise.plan.table_report import COLUMNS

from .conftest import QWEN, ROOT, ZOO, Kvwise

MIB = 1024**2
DEEPSEEK = str(ZOO / "deepseek-r1-distill-qwen-7b.json.gz")
EMBEDDING = str(ZOO / "qwen3-embedding-0.6b.json.gz")


# -- the reports' tables (requirements.md A9, B1, B5; docs/tables.md) ----------------------------


def test_b1_context_against_mib_and_share(quick: Kvwise) -> None:
    card = "name=GTX 1660 Ti,total=6144MiB,kind=cuda"
    found = quick("table", QWEN, "--gpu", card, "--contexts", "4k,8k,16k,32k", "--types", "f16")
    assert found.code == 0
    for size, share in (("576.0", "9.4 %"), ("1,152.0", "18.8 %"), ("2,304.0", "37.5 %"),
                        ("4,608.0", "75.0 %")):  # fmt: skip
        assert f"{size} ({share})" in found.out


def test_b1_pairs_of_types(quick: Kvwise) -> None:
    words = ("--contexts", "4096", "--types", "f16,q8_0/f16,f16/q4_0,q8_0", "--gpu", "6GiB")
    document = quick("table", QWEN, *words, "--json").json
    sizes = [cell["contexts"][0]["cache_bytes"] // MIB for cell in document["cells"]]
    assert sizes == [576, 441, 369, 306]
    assert document["cells"][0]["bytes_per_token"] == 147_456


def test_b5_two_architectures_on_six_gigabytes(quick: Kvwise) -> None:
    words = ("table", QWEN, DEEPSEEK, "--gpu", "GTX 1660 Ti", "--types", "f16",
             "--contexts", "4k,8k,16k,32k", "--json")  # fmt: skip
    document = quick(*words).json
    qwen, deepseek = document["cells"]
    assert [cell["bytes_per_token"] for cell in (qwen, deepseek)] == [147_456, 57_344]
    assert deepseek["contexts"][1]["cache_bytes"] == 448 * MIB
    assert [at["fits"] for at in qwen["contexts"]] == [True, False, False, False]
    assert [at["fits"] for at in deepseek["contexts"]] == [True, True, True, False]
    assert deepseek["n_ctx_max"] > 2 * qwen["n_ctx_max"]


def test_a9_safe_contexts_and_answers_of_five_cards(quick: Kvwise) -> None:
    cards = ("RTX 4060", "RTX 4070", "RTX 4080", "RTX 4090", "RTX 4090D")
    gpus = [word for card in cards for word in ("--gpu", card)]
    words = ("--contexts", "3584,4096", "--types", "f32,f16", "--prompt-tokens", "3982")
    found = quick("table", "--shape", "24x16x48", EMBEDDING, *gpus, "--os", "windows", *words,
                  "--json")  # fmt: skip
    document = found.json
    cells = document["cells"]
    assert len(cells) == 2 * 5 * 2
    shape = next(cell for cell in cells if cell["model"] == 1 and cell["type_k"] == "f32")
    assert shape["bytes_per_token"] == 147_456
    assert [at["cache_bytes"] for at in shape["contexts"]] == [528_482_304, 603_979_776]
    assert [at["n_predict"] for at in shape["contexts"]] == [3584 - 3982, 114]
    real = next(cell for cell in cells if cell["model"] == 0 and cell["type_k"] == "f16")
    assert real["bytes_per_token"] == 114_688
    assert document["models"][0]["embeds"] is True
    assert document["models"][1]["embeds"] is False
    totals = [gpu["total_bytes"] for gpu in document["gpus"]]
    assert totals[0] == 8187 * MIB
    assert totals == sorted(totals)
    by_card = [
        cell["n_ctx_max"] for cell in cells if cell["model"] == 1 and cell["type_k"] == "f32"
    ]
    assert by_card == sorted(by_card)


# -- the document --------------------------------------------------------------------------------


def test_the_document(quick: Kvwise) -> None:
    words = ("table", QWEN, "--gpu", "RTX 4060", "--gpu", "6GiB", "--json")
    document = quick(*words).json
    assert document["schema"] == "kvwise/table/1"
    assert document["contexts"] == [4096, 8192, 16384, 32768]
    assert document["cache_types"] == [["f16", "f16"], ["q8_0", "q8_0"], ["q4_0", "q4_0"]]
    assert [gpu["name"] for gpu in document["gpus"]] == ["NVIDIA GeForce RTX 4060", "6GiB"]
    assert document["models"][0]["name"] == "qwen3-8b"
    places = [(cell["model"], cell["gpu"], cell["type_k"]) for cell in document["cells"]]
    assert places == [(0, gpu, kind) for gpu in (0, 1) for kind in ("f16", "q8_0", "q4_0")]
    for cell in document["cells"]:
        assert cell["n_ctx_max"] == cell["n_ctx_max_all_layers"]
        assert cell["limit"] in ("memory", "training")


def test_a_cell_is_what_size_says(quick: Kvwise) -> None:
    card = ("--gpu", "name=RTX 4060,os=linux")
    build = ("--engine-build", "b10605")
    cell = quick("table", QWEN, *card, *build, "--types", "q8_0", "--json").json["cells"][0]
    card += build
    flags = ("-ctk", "q8_0", "-ctv", "q8_0", "-c", str(cell["n_ctx_max"]))
    ledger = quick("size", QWEN, *flags, *card, "--json").json
    assert ledger["fits"] is True
    gpu = ledger["buffers"][0]
    at = next(at for at in cell["contexts"] if at["n_ctx"] == 32768)
    same = quick("size", QWEN, *flags[:4], "-c", "32768", *card, "--json").json["buffers"][0]
    assert at["gpu_bytes"] == same["total_bytes"]
    assert at["cache_bytes"] == same["context_bytes"]
    assert 0 <= gpu["headroom_bytes"] - 192 * MIB < 256 * 80_000


def test_flags_of_the_engine_count(quick: Kvwise) -> None:
    def best(*words: str) -> int:
        document = quick("table", QWEN, "--gpu", "8GiB", "--json", *words).json
        found = document["cells"][0]["n_ctx_max"]
        assert isinstance(found, int)
        return found

    plain = best("-ctk", "f16")
    assert best("-ub", "128") > plain
    assert best("-ngl", "20") > plain
    document = quick("table", QWEN, "--gpu", "8GiB", "--json", "-ctk", "q8_0", "-c", "5000").json
    assert document["cache_types"] == [["q8_0", "f16"]]
    assert document["contexts"] == [5000]


def test_joined_gpus_are_one_machine(quick: Kvwise) -> None:
    words = ("--gpu", "6GiB + 4GiB", "--gpu", "6GiB", "--types", "f16", "--json")
    document = quick("table", QWEN, *words).json
    assert [len(gpu["devices"]) for gpu in document["gpus"]] == [2, 1]
    two, one = (cell["n_ctx_max"] for cell in document["cells"])
    assert two > one


def test_without_a_gpu_the_host_is_what_there_is(quick: Kvwise) -> None:
    words = ("table", QWEN, "--cpu-only", "--ram", "16GiB", "--types", "f16")
    document = quick(*words, "--json").json
    assert document["gpus"][0]["ram_bytes"] == 16 * 1024**3
    assert document["cells"][0]["n_ctx_max_all_layers"] is None
    assert "host" in quick(*words).out


# -- formats -------------------------------------------------------------------------------------


def test_markdown_has_whole_tables(quick: Kvwise) -> None:
    words = ("--gpu", "RTX 4060", "--format", "md", "--types", "all", "--engine-build", "b10605")
    out = quick("table", QWEN, *words).out
    tables = re.findall(r"(?:^\|.*\n)+", out, re.MULTILINE)
    assert len(tables) == 2
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "| on the CPU |" in out
    assert out.count("### ") == 2
    assert "no flash attention" in out


def test_csv_has_a_row_per_cell_and_context(quick: Kvwise) -> None:
    words = ("table", QWEN, DEEPSEEK, "--gpu", "RTX 4060", "--gpu", "8GiB", "--contexts", "4k,8k",
             "--types", "f16,q5_1", "--format", "csv", "--engine-build", "b10605")  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(quick(*words).out)))
    assert len(rows) == 2 * 2 * 2 * 2
    assert tuple(rows[0]) == COLUMNS
    first = rows[0]
    assert (first["model"], first["gpu"], first["n_ctx"], first["cache_bytes"]) == (
        "qwen3-8b", "NVIDIA GeForce RTX 4060", "4096", "603979776",
    )  # fmt: skip
    assert {row["refused"] for row in rows} == {"", "no_gpu_attention"}


def test_format_json_is_json(quick: Kvwise) -> None:
    words = ("table", QWEN, "--gpu", "8GiB", "--types", "f16")
    assert quick(*words, "--format", "json").out == quick(*words, "--json").out


def test_a_heat_map_on_a_terminal(terminal: Kvwise) -> None:
    out = terminal("table", QWEN, "--gpu", "6GiB", "--lang", "en", columns=120).out
    assert "\x1b[" in out
    backgrounds = set(re.findall(r"\x1b\[30;(4[0-9;]*)m|\x1b\[37;(41)m", out))
    assert len(backgrounds) >= 3
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert "4,608.0 (75.0 %) no" in plain  # readable without colour


def test_what_is_too_large_says_what_is_missing(quick: Kvwise) -> None:
    large = str(ZOO / "llama-3.3-70b.json.gz")
    out = quick("table", large, "--gpu", "RTX 4060", "--types", "f16").out
    assert re.search(r"no \(-[\d.]+ GiB\)", out)


def test_layers_beside_a_context(quick: Kvwise) -> None:
    words = ("table", QWEN, "--gpu", "GTX 1660 Ti", "--os", "linux", "--contexts", "4k,16k",
             "--types", "f16", "--layers", "--engine-build", "b10605")  # fmt: skip
    found = quick(*words, "--json").json
    assert found["models"][0]["n_gpu_layers_all"] == 37
    whole, part = (at["n_gpu_layers"] for at in found["cells"][0]["contexts"])
    assert whole == 37
    assert 20 < part < 37
    out = quick(*words).out
    assert f"2,304.0 (40.1 %) {part}/37" in out
    assert "-ngl" in out
    rows = list(csv.DictReader(io.StringIO(quick(*words, "--format", "csv").out)))
    assert [row["n_gpu_layers"] for row in rows] == ["37", str(part)]
    both = quick(*words, "--gpu", "RTX 4090", "--format", "md", "--lang", "zh").out
    assert f"| all | {part}/37 |" not in both  # worded in Chinese
    assert f"{part}/37 |" in both
    size = ("size", QWEN, "--gpu", "name=GTX 1660 Ti,os=linux", "-c", "16384", "--json",
            "--engine-build", "b10605", "-ngl")  # fmt: skip
    reserve = 192 * MIB
    for layers, holds in ((part, True), (part + 1, False)):
        gpu = quick(*size, str(layers)).json["buffers"][0]
        assert (gpu["headroom_bytes"] >= reserve) is holds


def test_the_legend_explains_only_what_is_shown(quick: Kvwise) -> None:
    words = ("table", QWEN, "--types", "f16", "--contexts", "4k", "--gpu")
    plain, whole, short = (quick(*words, card).out for card in ("RTX 4060", "RTX 3090", "GTX 1050"))
    for out, cell in ((plain, ""), (whole, "40,960 all"), (short, "no (-")):
        assert "usable: free at start" in out
        assert cell in out
    assert ("all: what" in plain, "all: what" in whole, "all: what" in short) == (
        False,
        True,
        False,
    )
    assert ("no (-x)" in plain, "no (-x)" in whole, "no (-x)" in short) == (False, False, True)
    assert "a/b:" not in short
    assert "a/b:" in quick(*words, "GTX 1050 Ti", "--layers").out


def test_a_name_of_several_sizes_is_asked_back(kvwise: Kvwise) -> None:
    words = ("table", QWEN, "--types", "f16", "--contexts", "4k", "--gpu")
    for name in ("RTX 5060 Ti", "RTX 4060 + RTX 5060 Ti"):
        done = kvwise(*words, name)
        assert (done.code, done.out) == (2, "")
        assert 'say which: "RTX 5060 Ti 8GB", "RTX 5060 Ti 16GB"' in done.err


def test_chinese(quick: Kvwise) -> None:
    words = ("table", EMBEDDING, "--gpu", "RTX 4060", "--types", "all", "--prompt-tokens", "3982")
    out = quick(*words, "--lang", "zh").out
    assert "最长" in out
    english = re.findall(r"\b(?:longest|refused|context|reserve|left)\b", out)
    assert english == []


# -- wrong usage ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        (),
        (QWEN, "--types", "q9"),
        (QWEN, "--contexts", "0"),
        (QWEN, "--contexts", "4k,many"),
        (QWEN, "--contexts", "4k,99999999999", "--gpu", "6GiB"),
        (QWEN, "--gpu=-8GiB"),
        (QWEN, "--engine-build", "b0"),
        (QWEN, "--gpu", "RTX 9090"),
        (QWEN, "--gpu", "6GiB", "--cpu-only"),
        (QWEN, "--format", "xml"),
        (QWEN, "--gpu", "6GiB", "--prompt-tokens", "-4"),
        (QWEN, "--gpu", "RTX 4060", "--os", "beos"),
        ("--shape", "24x16", "--gpu", "6GiB"),
    ],
)
def test_wrong_usage_is_exit_2(quick: Kvwise, words: tuple[str, ...]) -> None:
    done = quick("table", *words, "--json")
    assert done.code == 2
    assert done.json["schema"] == "kvwise/error/1"


def test_a_file_that_is_not_there_is_exit_1(quick: Kvwise) -> None:
    assert quick("table", QWEN, "none.gguf", "--gpu", "6GiB").code == 1


def test_the_page_shows_what_is_printed_today() -> None:
    script = str(ROOT / "scripts/tables.py")
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0
