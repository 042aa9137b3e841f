"""`kvwise export`: planned, as given or saved; shown, written or compared; nothing lost."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from kvwise.export import names, target
from kvwise.gguf.open import open_header
from kvwise.gguf.writer import write_twin
from kvwise.options import read

from .conftest import QWEN, Kvwise

GPU = ("--gpu", "name=Card,total=8188MiB,free=7600MiB,kind=cuda,reserve=200MiB", "--ram", "32GiB")


def said(script: str) -> list[str]:
    """The words of a script's command, the program first."""
    command = script.replace(" \\\n", " ").split("exec ")[1].split("\n")[0]
    return shlex.split(command)[:-1]


@pytest.mark.parametrize("name", names())
def test_every_target_writes_and_writes_the_same_again(
    name: str, quick: Kvwise, tmp_path: Path
) -> None:
    path = tmp_path / target(name).FILE
    flags = ("--as-given", "-c", "4096", "-ngl", "99")
    words = ("export", name, QWEN, *GPU, *flags, "--out", str(path))
    first = quick(*words)
    assert (first.code, first.out) == (0, f"{path} is written\n")
    again = quick(*words, "--json")
    assert again.json["schema"] == "kvwise/export/1"
    assert (again.json["changed"], again.json["backup"]) == (False, None)
    assert list(tmp_path.iterdir()) == [path]


def test_the_plan_is_the_one_of_plan(quick: Kvwise) -> None:
    planned = quick("plan", QWEN, *GPU, "--goal", "code", "-np", "2", "--no-simulate", "--json")
    script = quick("export", "bash", QWEN, *GPU, "--goal", "code", "-np", "2").out
    words = said(script)
    assert words[0] == "llama-server"
    given = read(planned.json["commands"]["argv"][1:]).launch
    assert replace(read(words[1:]).launch, model="") == replace(given, model="")


def test_a_saved_plan_is_exported_as_it_was(quick: Kvwise, tmp_path: Path) -> None:
    done = quick("plan", QWEN, *GPU, "--no-simulate", "-c", "5120", "--json")
    saved = tmp_path / "plan.json"
    saved.write_text(done.out)
    out = quick("export", "koboldcpp", QWEN, *GPU, "--plan", str(saved)).out
    assert json.loads(out)["contextsize"] == 5120 - 128
    saved.write_text("{}")
    assert quick("export", "bash", "--plan", str(saved)).code == 1


def test_flags_as_given_are_written_as_given(quick: Kvwise) -> None:
    words = ("-c", "4096", "-fa", "off", "-ngl", "9", "--jinja")
    script = quick("export", "bash", QWEN, *GPU, "--as-given", *words).out
    spoken = said(script)[3:]
    assert read(spoken).launch == read(words).launch
    assert len(spoken) == len(words)


def test_what_the_target_cannot_say_is_said(quick: Kvwise) -> None:
    words = ("export", "ollama", QWEN, *GPU, "--as-given", "-c", "4096", "-ctk", "q8_0", "--jinja")
    done = quick(*words)
    assert done.code == 0
    assert "left out: --cache-type-k q8_0: it is the service's" in done.err
    assert "left out: --jinja: a Modelfile has no word for it" in done.err
    assert "left out" not in done.out
    left = quick(*words, "--json").json["left_out"]
    assert ["--jinja"] in [each["flags"] for each in left]


def test_a_dry_run_shows_the_difference_and_changes_nothing(quick: Kvwise, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    old = "# mine\nmodels:\n  x: {cmd: y}\n"
    path.write_text(old)
    done = quick("export", "llama-swap", QWEN, *GPU, "--as-given", "--out", str(path), "--dry-run")
    assert done.out.startswith(f"--- {path}\n+++ {path}\n")
    assert " # mine\n" in done.out
    assert "\n-" not in done.out.replace("\n--- ", "")
    assert path.read_text() == old
    assert list(tmp_path.iterdir()) == [path]


def test_files_keep_the_rest_and_a_backup(quick: Kvwise, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xef\xbb\xbf# mine\r\nmodels:\r\n  x: {cmd: y}\r\n")
    done = quick(
        "export", "llama-swap", QWEN, *GPU, "--as-given", "--out", str(path), "--name", "My Qwen!"
    )
    assert done.out == f"{path} is changed; the old one is {path}.bak\n"
    assert Path(f"{path}.bak").read_bytes().startswith(b"\xef\xbb\xbf# mine\r\n")
    content = path.read_bytes()
    assert content.startswith(b"\xef\xbb\xbf# mine\r\n")
    assert content.count(b"\n") == content.count(b"\r\n")
    assert set(yaml.safe_load(content)["models"]) == {"x", "my-qwen"}


@pytest.mark.parametrize("old", [b"models: [", b"\xff\xff", b"- a\n", b"models: 3\n"])
def test_a_malformed_file_is_one_line_and_stays(quick: Kvwise, tmp_path: Path, old: bytes) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(old)
    done = quick("export", "llama-swap", QWEN, *GPU, "--as-given", "--out", str(path))
    assert done.code == 1
    assert done.err.startswith(f"error: {path}")
    assert done.err.count("\n") <= 2
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_what_does_not_fit_is_said(quick: Kvwise) -> None:
    done = quick("export", "bash", QWEN, *GPU, "--as-given", "-c", "131072", "-np", "1")
    assert done.code == 0
    assert "these settings do not fit here: " in done.err


def test_wrong_requests_are_usage_errors(quick: Kvwise) -> None:
    assert quick("export").code == 2
    assert "did you mean llama-swap?" in quick("export", "lama-swap", QWEN).err
    assert quick("export", "bash", QWEN, "--dry-run").code == 2
    two = quick("export", "bash", QWEN, "--as-given", "--goal", "chat")
    assert two.err.startswith("error: --as-given and --goal exclude each other")
    assert (
        quick("export", "koboldcpp", QWEN, *GPU, "--as-given", "--model-path", "hf:a/b").code == 2
    )
    assert quick("export", "cmd", QWEN, *GPU, "--as-given", "--model-path", "a\nb").code == 2


def test_what_cannot_be_planned_is_exit_3(quick: Kvwise) -> None:
    done = quick("export", "bash", QWEN, *GPU, "-c", "3584", "--prompt-tokens", "3982")
    assert done.code == 3
    assert done.out == ""


def test_paths_of_another_machine(quick: Kvwise) -> None:
    words = (
        "--model-path",
        "D:\\My Models\\Qwen3 ü.gguf",
        "--program",
        "C:\\llama\\llama-server.exe",
    )
    done = quick("export", "powershell", QWEN, *GPU, *words)
    assert (
        "& C:\\llama\\llama-server.exe `\n  --model 'D:\\My Models\\Qwen3 ü.gguf' `\n" in done.out
    )


@pytest.mark.parametrize("name", names())
def test_a_model_known_by_its_header_gets_a_path_that_nobody_takes_for_one(
    name: str, quick: Kvwise
) -> None:
    words = ("export", name, QWEN, *GPU, "--as-given", "-c", "4096")
    done = quick(*words, "--json").json
    named = "qwen3-8b.gguf" in done["text"]
    shown = {"localai": "qwen3-8b.gguf", "text-generation-webui": "qwen3-8b.gguf",
             "docker-compose": "qwen3-8b.gguf"}.get(name, "/path/to/qwen3-8b.gguf")  # fmt: skip
    assert done["stand_ins"] == ([shown] if named else [])
    assert named == (name not in {"lm-studio", "ollama-env", "text-generation-webui-hook"})
    if named:
        assert f"{shown} stands for a file" in quick(*words).err
    elsewhere = quick(*words, "--model-path", "/srv/qwen.gguf", "--json").json
    assert elsewhere["stand_ins"] == []
    assert "/path/to" not in elsewhere["text"]


def test_files_beside_the_model_are_written_so_that_they_are_found(
    quick: Kvwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_twin(open_header(QWEN), tmp_path / "a.gguf")
    monkeypatch.chdir(tmp_path)
    words = ("--as-given", "-c", "4096", "-md")
    script = quick("export", "bash", "a.gguf", *GPU, *words, "a.gguf").out
    assert [word for word in said(script) if word.endswith("gguf")] == [f"{tmp_path}/a.gguf"] * 2
    done = quick("export", "bash", "a.gguf", *GPU, *words, QWEN, "--json").json
    assert done["stand_ins"] == ["/path/to/qwen3-8b.gguf"]


def test_a_saved_plan_of_a_header_asks_for_the_model(quick: Kvwise, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    saved.write_text(quick("plan", QWEN, *GPU, "--no-simulate", "--json").out)
    none = quick("export", "bash", "--plan", str(tmp_path / "none"), *GPU)
    assert (none.code, none.err.partition("\n")[0]) == (1, f"error: no file {tmp_path}/none")
    done = quick("export", "bash", "--plan", str(saved), *GPU)
    assert done.code == 2
    assert "hint: name the model beside --plan" in done.err


def test_the_list_names_all_targets(quick: Kvwise) -> None:
    lines = quick("export", "--list").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == names()
    rows = quick("export", "--list", "--json").json["targets"]
    assert [row["target"] for row in rows] == names()
    chinese = quick("export", "--list", "--lang", "zh").out
    assert "llama-swap" in chinese
    assert "Modelfile" in chinese
