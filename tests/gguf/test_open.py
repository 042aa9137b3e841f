"""The one door: what a MODEL argument means, and that a local file opens light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvwise.errors import HeaderError, KvwiseError
from kvwise.gguf.open import open_header
from kvwise.gguf.source import SourceMissing
from kvwise.gguf.writer import Entry, encode

LIGHT = """
import json, sys
from kvwise.gguf.open import open_header
header = open_header(sys.argv[1])
peak = 0
try:
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            peak = int(line.split()[1]) * 1024
except OSError:
    pass
heavy = {"httpx2", "huggingface_hub", "rich", "click", "numpy", "subprocess", "asyncio", "ssl"}
print(json.dumps({"peak": peak, "heavy": sorted(heavy & set(sys.modules)), "name": header.get("general.name")}))
"""  # noqa: E501


def test_a_large_vocabulary_opens_in_20_mib_and_without_heavy_modules(tmp_path: Path) -> None:
    entries = [
        Entry("tokenizer.ggml.tokens", "[string]", [f"token {i}" for i in range(262_144)]),
        Entry("tokenizer.ggml.scores", "[float32]", [0.0] * 262_144),
        Entry("general.name", "string", "large"),
    ]
    path = tmp_path / "large.gguf"
    path.write_bytes(encode(entries, []))
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, str(path)], capture_output=True, text=True, check=True
    )
    facts = json.loads(done.stdout)
    assert facts["name"] == "large"
    assert facts["heavy"] == []
    # Measured 14.4 MiB on CPython 3.11; a coverage tool or a newer Python adds its own.
    assert facts["peak"] < 24 * 2**20


def test_an_unsound_file_is_named(tmp_path: Path) -> None:
    """Every command that reads several would leave open which; and what is cut short says so."""
    path = tmp_path / "cut.gguf"
    tokens = Entry("tokenizer.ggml.tokens", "[string]", [f"token {i}" for i in range(999)])
    whole = encode([tokens, Entry("general.name", "string", "x")], [])
    for size in (5, 20, 40, 200, 4000, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(HeaderError) as caught:
            open_header(str(path))
        assert str(caught.value).count(str(path)) == 1
        assert "download it again" in str(caught.value.hint)


@pytest.mark.parametrize(
    "ref",
    [
        "",
        ".",
        "C:\\absent.gguf",
        "hf",
        "file:///x",
        "http:/x",
        "\0",
        "x:y",
        "a\nb",
        "\x1b[2J",
        "\udcff",
    ],
)
def test_what_is_no_model(ref: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KvwiseError) as caught:
        open_header(ref)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_path_with_a_colon_is_a_path(tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("no colons in names there")
    path = tmp_path / "a:b.gguf"
    path.write_bytes(encode([Entry("general.name", "string", "colon")], []))
    assert open_header(str(path)).get("general.name") == "colon"


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
@pytest.mark.parametrize("name", ["a\nb.gguf", "\x1b[31m.gguf", "caf\udce9.json"])
def test_an_odd_name_stays_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    try:
        path.write_bytes(b"no model")
    except OSError:
        pytest.skip("this file system refuses the name")
    with pytest.raises(KvwiseError) as caught:
        open_header(str(path))
    assert str(caught.value).isprintable()


def test_a_link_to_a_model_is_the_model(tmp_path: Path) -> None:
    """The Hub's cache is made of links."""
    (tmp_path / "blob").write_bytes(encode([Entry("general.name", "string", "blob")], []))
    try:
        (tmp_path / "m.gguf").symlink_to("blob")
    except OSError:
        pytest.skip("no links here")
    assert open_header(str(tmp_path / "m.gguf")).get("general.name") == "blob"
    (tmp_path / "blob").unlink()
    with pytest.raises(SourceMissing):
        open_header(str(tmp_path / "m.gguf"))
