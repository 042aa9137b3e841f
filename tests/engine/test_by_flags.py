"""Builds told by the flags of a program: those that llama.cpp b10605 printed, and changed ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvwise import builds
from kvwise.engine.build import build_here, embedded_build
from kvwise.engine.by_flags import build_by_flags, shown_in
from kvwise.engine.find import binary
from kvwise.launch import Launch
from kvwise.options.row import EVERY, SERVER
from kvwise.options.table import spellings

PAGES = {tool: (Path(__file__).parent / f"help/{tool}-b10605.txt").read_text() for tool in EVERY}
"""The spellings of each option, as the tools' own --help begins its lines; without values."""
UNNUMBERED = "version: 0.2.0-dev (build 0, commit unknown)"


def of_rows(tool: str, build: int) -> set[str]:
    rows = {flag: row for flag, row in spellings(tool).items() if not row.ours}
    return {flag for flag, row in rows.items() if build > row.lacking and not row.gone(build)}


@pytest.mark.parametrize("tool", EVERY)
def test_what_a_tool_printed_is_its_build(tool: str) -> None:
    shown = shown_in(PAGES[tool])
    assert build_by_flags(shown) == "b10605"
    assert build_by_flags(shown - {"-rpc", "--rpc"}) == "b10605"  # built without RPC


@pytest.mark.parametrize("tool", EVERY)
@pytest.mark.parametrize("build", builds.KNOWN)
def test_the_rows_of_each_known_build_are_told_apart(tool: str, build: int) -> None:
    assert build_by_flags(of_rows(tool, build)) == builds.name(build)


@pytest.mark.parametrize("tool", EVERY)
def test_one_flag_more_or_less_is_another_build(tool: str) -> None:
    shown = shown_in(PAGES[tool])
    assert build_by_flags(shown | {"--of-tomorrow"}) is None
    assert build_by_flags(shown - {"--threads"}) is None
    assert build_by_flags(set()) is None


def test_what_a_description_mentions_is_no_flag() -> None:
    page = "-c,    --ctx-size N          as --keep\n                 --temp is not one\n----- x\n"
    assert shown_in(page) == {"-c", "--ctx-size"}
    assert shown_in("  -ot --override-tensor <regex>  (default: none)\n") == {
        "-ot", "--override-tensor"
    }  # fmt: skip


def program(folder: Path, name: str, version: str, page: str) -> Path:
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"print({version!r} if sys.argv[1] == '--version' else {page!r})\n"
    )
    path.chmod(0o755)
    return path


def test_an_engine_without_a_number_says_that_its_flags_told(tmp_path: Path) -> None:
    path = program(tmp_path, SERVER, UNNUMBERED, PAGES[SERVER])
    for _ in range(2):  # asked, then kept
        engine = binary(path)
        assert (engine.build, engine.by_flags) == ("b10605", True)
        here = build_here(str(path))
        assert here is not None
        assert (here.build, here.engine) == ("b10605", f"{path} --help")
    assert engine.name == f"{path} (b10605 by its flags)"
    assert engine.ruled(Launch()).build_from == f"{path} --help"
    assert engine.as_json()["build_by_flags"] is True


def test_a_number_counts_more_than_flags(tmp_path: Path) -> None:
    numbered = program(tmp_path, SERVER, "version: 12000 (abc1234)", PAGES[SERVER])
    assert (binary(numbered).build, binary(numbered).by_flags) == ("b12000", False)


def test_tools_that_have_no_rows_are_told_by_the_server_beside_them(tmp_path: Path) -> None:
    fit = program(tmp_path, "llama-fit-params", UNNUMBERED, "-m,    --model\n--fit-print\n")
    assert binary(fit).build is None
    program(tmp_path, SERVER, UNNUMBERED, PAGES[SERVER])
    assert (binary(fit).build, binary(fit).by_flags) == ("b10605", True)
    program(tmp_path, SERVER, UNNUMBERED + " of another day", PAGES[SERVER])
    assert binary(fit).build is None


VERSIONS = {"2026.10.11549": "b11549", "2026.4.8672.1": "b8672", "2026.10.11549+cuda": "b11549",
            "0.2.14": None, "2026.10": None, "": None}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_the_build_in_the_embedded_engines_version(version: str) -> None:
    assert embedded_build(version) == VERSIONS[version]
