"""The READMEs stay true: every command in them runs, and both languages show the same ones."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from models import minilm, smollm2

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
TEXT = "The quick brown fox jumps over the lazy dog. " * 40


def commands(page: Path) -> list[str]:
    """Lines that a reader would type: `$ kvwise ...` inside the code blocks."""
    blocks = re.findall(r"```(?:console|sh)\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line for line in lines if line.startswith("kvwise ")]


ALL = sorted({line for page in PAGES for line in commands(page)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the READMEs assume: two models, another model's header, a text, a log."""
    (tmp_path / "model.gguf").symlink_to(smollm2())
    (tmp_path / "embed.gguf").symlink_to(minilm())
    packed = ROOT / "tests/zoo/models/qwen3-8b.json.gz"
    (tmp_path / "qwen3-8b.json").write_bytes(gzip.decompress(packed.read_bytes()))
    (tmp_path / "report.txt").write_text(TEXT, "utf-8")
    log = ROOT / "tests/diagnose/logs/device-cache-b10605.log"
    (tmp_path / "server.log").write_bytes(log.read_bytes())
    return tmp_path


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line)
    if "run" in words and "--dry-run" not in words:
        return serve(words, folder)
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        timeout=240,
        check=False,
    )


def serve(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Start a server, wait for its readiness line, and press Ctrl-C."""
    with subprocess.Popen(
        [sys.executable, "-m", *words], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=(folder / "log").open("w"),
    ) as process:  # fmt: skip
        assert process.stdout
        ready = next((line for line in process.stdout if line.startswith("ready http")), "")
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    log = (folder / "log").read_text("utf-8")
    return subprocess.CompletedProcess(words, process.returncode, ready + rest, log)


LOADS = ("run", "digest", "verify", "tokens")
"""Commands that load a model: in one language they are slow enough."""


def _marked(line: str) -> Any:
    words = shlex.split(line)
    again = "--lang zh" in line and ("--prompt" in words or not set(LOADS).isdisjoint(words))
    return pytest.param(line, id=line, marks=pytest.mark.slow if again else ())


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize("line", [_marked(line) for line in ALL])
def test_every_command_of_the_readme_runs(line: str, folder: Path) -> None:
    done = run(line, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_both_readmes_show_the_same_commands() -> None:
    english, chinese = (
        [line.replace("--lang zh ", "").replace(" --lang zh", "") for line in commands(page)]
        for page in PAGES
    )
    assert english == chinese
    assert len(english) >= 5


def test_the_annotated_tree_is_true() -> None:
    for page in PAGES:
        tree = re.search(r"```text\nsrc/kvwise/\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        assert tree, page.name
        for row in tree[1].splitlines():
            for name in re.split(r"\s{2,}", row.strip())[0].split():
                assert (ROOT / "src/kvwise" / name).exists(), f"{page.name} names {name}"


def test_the_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        for page in PAGES:
            assert f"make {target}" in page.read_text("utf-8")
