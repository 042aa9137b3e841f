"""Whose rules apply when nobody says: the zoo's, the engine's at hand, or the newest known."""

from __future__ import annotations

import importlib.util
import os
import shlex
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from kvwise import builds
from kvwise.cli._build import read_for_build
from kvwise.engine import build as building

from .conftest import QWEN, ROOT, Kvwise

NEWEST = builds.name(builds.NEWEST)
SCRIPT = """#!/bin/sh
echo x >> {count}
echo "version: 0.3.0 (build {build}, commit abc1234)"
"""


def program(folder: Path, build: int) -> Path:
    """A llama-server that only says its version, and counts how often it is asked."""
    folder.mkdir(exist_ok=True)
    path = folder / "llama-server"
    path.write_text(SCRIPT.format(count=folder.parent / "asked", build=build))
    path.chmod(0o755)
    return path


def asked(tmp_path: Path) -> int:
    return len((tmp_path / "asked").read_text().split())


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No engine but what a test puts there, and a cache of its own."""
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("KVWISE_ENGINE", raising=False)
    monkeypatch.setattr(building, "find_spec", lambda name: None)
    return tmp_path


def launch(quick: Kvwise, *words: str) -> Any:
    done = quick("size", "--shape", "4x4x64", "-c", "512", "--cpu-only", "--json", *words)
    return done.json["launch"]


def test_a_model_of_the_zoo_has_the_zoos_build(quick: Kvwise, clean: Path) -> None:
    program(clean / "bin", 12345)
    document = quick("size", QWEN, "-c", "512", "--cpu-only", "--json").json
    assert (document["launch"]["build"], document["launch"]["build_from"]) == ("b10605", "zoo")
    assert not (clean / "asked").exists()
    newer = str(ROOT / "tests/zoo/newer/tiny-maple.json")
    document = quick("size", newer, "-c", "512", "--cpu-only", "--json").json
    assert (document["launch"]["build"], document["doubts"]) == (NEWEST, [])


def test_without_an_engine_it_is_the_newest_known(quick: Kvwise, clean: Path) -> None:
    found = launch(quick)
    assert (found["build"], found["build_from"]) == (NEWEST, "newest known")
    shown = quick("size", "--shape", "4x4x64", "-c", "512", "--cpu-only")
    assert f"llama-server {NEWEST} (the newest known)" in shown.out


def test_a_program_on_path_is_asked_once(quick: Kvwise, clean: Path) -> None:
    path = program(clean / "bin", 10605)
    for _ in range(3):
        found = launch(quick)
        assert (found["build"], found["build_from"]) == ("b10605", str(path))
    first = asked(clean)  # --version, and --help for its flags
    assert first <= 2
    path.write_text(path.read_text().replace("10605", "11549"))
    os.utime(path, ns=(1, 1))
    assert launch(quick)["build"] == "b11549"
    assert asked(clean) > first


def test_a_wanted_engine_comes_before_the_one_on_path(
    quick: Kvwise, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(clean / "bin", 10605)
    wanted = program(clean / "other", 11549)
    for name in (wanted, wanted.parent):
        monkeypatch.setenv("KVWISE_ENGINE", str(name))
        assert launch(quick)["build"] == "b11549"
    assert launch(quick, "--engine-build", "b10605")["build_from"] == "--engine-build"


@pytest.mark.parametrize("build", [0, 1])
def test_a_program_that_does_not_know_its_build_decides_nothing(
    quick: Kvwise, clean: Path, build: int
) -> None:
    program(clean / "bin", build)  # 1: built from a clone without history
    for _ in range(2):
        assert launch(quick)["build"] == NEWEST
    assert asked(clean) <= 2


def test_a_program_without_its_build_is_told_by_its_flags_and_that_is_said(
    quick: Kvwise, clean: Path
) -> None:
    path = program(clean / "bin", 0)
    page = ROOT / "tests/engine/help/llama-server-b10605.txt"
    path.write_text(path.read_text() + f"[ $1 = --help ] && while read -r x; do echo \"$x\"; done "
                    f"<{page}\n")  # fmt: skip
    found = launch(quick)
    assert (found["build"], found["build_from"]) == ("b10605", f"{path} --help")
    words = ("size", "--shape", "4x4x64", "-c", "512", "--cpu-only")
    assert f"b10605 (by the flags of {path})" in quick(*words).out
    assert f"b10605（由 {path} 的选项得知）" in quick(*words, "--lang", "zh").out


def test_a_newer_build_has_the_newest_rules_and_says_so(quick: Kvwise, clean: Path) -> None:
    program(clean / "bin", 12345)
    words = ("size", "--shape", "4x4x64", "-c", "512", "--cpu-only", "--json")
    document = quick(*words).json
    assert document["launch"]["build"] == "b12345"
    assert document["verified"] is False
    told = f"build b12345 is newer than all that we know: the rules are those of {NEWEST}"
    assert told in document["doubts"]
    known = quick(*words, "--engine-build", NEWEST).json
    for one, other in zip(document["buffers"], known["buffers"], strict=True):
        assert one["total_bytes"] == other["total_bytes"]


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="no xllamacpp")
def test_the_embedded_engines_build_is_that_of_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KVWISE_ENGINE", raising=False)
    version = metadata.version("xllamacpp")
    found = building.build_here()
    assert found == building.Here(f"b{version.split('.')[2]}", f"xllamacpp {version}")


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "{" * 9])
def test_a_broken_cache_is_none(quick: Kvwise, clean: Path, text: str) -> None:
    program(clean / "bin", 11549)
    kept = clean / "home" / "cache" / "engines" / "builds.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(text)
    assert launch(quick)["build"] == "b11549"


@pytest.mark.parametrize(("build", "rules"), [(0, "b10605"), (11549, "b11549")])
def test_an_engine_that_is_named_decides_for_the_zoo_too_if_it_knows_its_build(
    clean: Path, build: int, rules: str
) -> None:
    path = program(clean / "bin", build)
    reading = read_for_build(["-c", "512"], QWEN, str(path))
    assert reading.launch.build == rules


@pytest.mark.parametrize(
    "asked_for", [(), ("--engine-build", "b10605"), ("--engine-build", NEWEST)]
)
def test_a_dry_run_says_what_the_plan_says(quick: Kvwise, asked_for: tuple[str, ...]) -> None:
    line = (QWEN, "--gpu", "GTX 1660 Ti", "--ram", "16GiB", *asked_for)
    planned = quick("plan", *line, "--no-simulate", "--json").json
    assert planned["choice"]["launch"]["build"] == (asked_for[1] if asked_for else "b10605")
    assert planned["commands"]["bash"] in quick("run", "--dry-run", *line).out.splitlines()
    document = quick("run", "--dry-run", *line, "--json").json
    assert document["internal"] is True
    (typed,) = document["as_llama_server"]
    assert shlex.join(typed) == planned["commands"]["bash"]
    assert all(step["as_llama_server"][0] == "llama-server" for step in document["ladder"])
