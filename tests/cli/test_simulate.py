"""`kvwise simulate`: the engine's own ledger, what stands beside it, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.tools import MARKS, folder

from .conftest import QWEN, Kvwise

WORDS = ("simulate", QWEN, "-c", "8192", "-np", "1")


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
class TestEmbedded:
    def test_the_document(self, kvwise: Kvwise) -> None:
        done = kvwise(*WORDS, "--cpu-only", "--engine", "embedded", "--json")
        assert done.code == 0
        document = done.json
        assert document["schema"] == "kvwise/ledger/1"
        (host,) = document["buffers"]
        assert host["basis"]["compute"] == "simulated"
        beside = document["beside"]
        assert beside["engine"]["kind"] == "embedded"
        assert document["launch"]["build"] == beside["engine"]["build"]
        assert beside["agrees"], beside["lines"]
        assert {line["part"] for line in beside["lines"]} == {
            "weights", "context", "compute", "output",
        }  # fmt: skip

    def test_the_table_and_the_verdict(self, kvwise: Kvwise) -> None:
        done = kvwise(*WORDS, "--cpu-only", "--engine", "embedded")
        assert done.code == 0
        assert "simulated MiB" in done.out
        assert "no difference: all 4 lines agree" in done.out

    def test_what_does_not_fit_is_an_answer(self, kvwise: Kvwise) -> None:
        done = kvwise(*WORDS, "--cpu-only", "--ram", "1GiB", "--engine", "embedded")
        assert done.code == 3
        assert "does not fit" in done.out

    def test_what_the_engine_refuses_is_refused(self, kvwise: Kvwise) -> None:
        words = ("-fa", "off", "-ctv", "q8_0", "--engine", "embedded", "--json")
        done = kvwise(*WORDS, "--cpu-only", *words)
        assert (done.code, done.json["code"]) == (3, "v_quant_needs_flash_attn")

    def test_it_knows_no_gpus(self, kvwise: Kvwise) -> None:
        done = kvwise(*WORDS, "--gpu", "8GiB", "--engine", "embedded")
        assert done.code == 2
        assert "cannot simulate 8GiB" in done.err
        assert "-DGGML_RPC=ON" in done.err


def _tools(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("llama-server", "llama-fit-params"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)


def test_a_folder_of_llama_cpp_is_an_engine(kvwise: Kvwise, tmp_path: Path) -> None:
    bins = tmp_path / "llama.cpp" / "build" / "bin"
    _tools(bins)
    words = (*WORDS, "--gpu", "8GiB", "--engine", str(tmp_path / "llama.cpp"), "--dry-run")
    argv = kvwise(*words, "--json").json["commands"][0]
    assert argv[0] == str(bins / "llama-server")  # llama-fit-params keeps no single row of logits
    plain = kvwise(*words, "--n-outputs-max", "0", "--json").json["commands"][0]
    assert plain[:4] == [str(bins / "llama-fit-params"), "-m", "TWIN", "--rpc"]
    shown = kvwise(*words)
    assert shown.code == 0
    assert "127.0.0.1:PORT" in shown.out


def test_gpus_are_asked_of_the_engine_on_path(kvwise: Kvwise, tmp_path: Path) -> None:
    _tools(tmp_path / "bin")
    done = kvwise(
        *WORDS, "--gpu", "8GiB", "--dry-run", env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    )
    assert done.out.startswith(str(tmp_path / "bin" / "llama-server"))


def test_what_is_no_model_or_no_engine_is_told(quick: Kvwise, tmp_path: Path) -> None:
    assert quick("simulate", "--cpu-only").code == 2
    assert quick("simulate", str(tmp_path / "none.gguf"), "--cpu-only").code == 1
    assert quick(*WORDS, "--gpu", "8GiB", "--engine", str(tmp_path)).code == 2


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
class TestOracle:
    pytestmark = MARKS

    def test_gpus_that_are_not_here(self, kvwise: Kvwise) -> None:
        words = ("--gpu", "8GiB", "--gpu", "6GiB", "--engine", str(folder()))
        done = kvwise(*WORDS, *words)
        assert done.code == 0
        assert "no difference: all 9 lines agree" in done.out
        assert "llama.cpp's own estimate is wrong on VGPU1 6GiB" in done.out
        document = kvwise(*WORDS, *words, "--json").json
        assert [buffer["buffer"] for buffer in document["buffers"]] == ["VGPU0", "VGPU1", "CPU"]
        lines = {(row["buffer"], row["part"]): row for row in document["beside"]["lines"]}
        row = lines["VGPU1", "compute"]
        assert row["reserved_bytes"] > row["computed_bytes"]
        assert row["difference_bytes"] == 0

    def test_what_is_too_small(self, kvwise: Kvwise) -> None:
        done = kvwise(*WORDS, "--gpu", "2GiB", "-ngl", "37", "--engine", str(folder()))
        assert done.code == 3
        assert "does not fit; missing on VGPU0" in done.out
