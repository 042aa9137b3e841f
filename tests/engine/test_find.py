"""Which engines are here, and what they know."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvwise.engine import find as finder
from kvwise.engine.find import Engine, binary, build_of, embedded, find, for_gpus
from kvwise.errors import EngineError, UsageError

HELP = """
usage: llama-server [options]
-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the prompt context (default: 0)
-lm,   --load-mode MODE                 how to read the model
-kvu,  --kv-unified                     (default: disabled)
"""


def program(folder: Path, version: str, name: str = "llama-server", body: str = "") -> Path:
    """A real program that answers as llama-server does, and counts how often it is asked."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        f"open({str(folder / 'asked')!r}, 'a').write(sys.argv[1] + '\\n')\n"
        f"{body}\n"
        f"if sys.argv[1] == '--version': print({version!r}, file=sys.stderr)\n"
        f"if sys.argv[1] == '--help': print({HELP!r})\n"
    )
    path.chmod(0o755)
    return path


VERSIONS = [
    ("version: 4713 (a4f011e8d)\nbuilt with cc for x86_64", "b4713"),
    ("version: 0.2.0-dev (build 10605, commit 1a2b3c4)\nbuilt with GNU", "b10605"),
    ("version: 0.2.0-dev (build 0, commit unknown)", None),
    ("version: 0 (unknown)", None),
    ("something else", None),
    ("", None),
]


@pytest.mark.parametrize(("text", "build"), VERSIONS)
def test_builds_of_all_ages(text: str, build: str | None) -> None:
    assert build_of(text) == build


def test_a_binary_is_asked_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = program(tmp_path, VERSIONS[0][0])
    first = binary(path)
    assert first.build == "b4713"
    assert {"-c", "--ctx-size", "-lm", "--load-mode", "-kvu", "--usage"} <= first.flags
    assert first.knows("-kvu")
    assert not first.knows("--no-such")
    assert binary(path) == first
    assert (tmp_path / "asked").read_text().split() == ["--version", "--help"]
    program(tmp_path, VERSIONS[1][0])
    assert binary(path).build == "b10605"
    (tmp_path / "libllama.so").write_bytes(b"another library, another build")
    binary(path)
    assert (tmp_path / "asked").read_text().count("--help") == 3


def test_a_broken_cache_is_asked_again(tmp_path: Path) -> None:
    path = program(tmp_path, VERSIONS[0][0])
    binary(path)
    (kept,) = (Path(os.environ["KVWISE_HOME"]) / "cache/engines").glob("*.json")
    for content in ("", "{", "[]", '{"build": 1}', "null"):
        kept.write_text(content)
        assert binary(path).build == "b4713"


def test_the_user_s_settings_are_not_passed_to_a_binary_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_MODEL", "x")
    body = "import os; assert not [k for k in os.environ if k.startswith('LLAMA_ARG')]"
    assert binary(program(tmp_path, VERSIONS[0][0], body=body)).build == "b4713"


def test_what_does_not_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, "")
    path.write_bytes(b"\x7fELF not a program")
    with pytest.raises(EngineError, match="cannot be run"):
        binary(path)
    with pytest.raises(EngineError, match="cannot be read"):
        binary(tmp_path / "nothing")
    crashing = program(tmp_path, "", "crash", "import os; os.abort()")
    with pytest.raises(EngineError, match="signal 6"):
        binary(crashing)
    monkeypatch.setattr(finder, "_TIMEOUT_S", 0.3)
    slow = program(tmp_path, "", "slow", "import time; time.sleep(60)")
    with pytest.raises(EngineError, match="gave no answer"):
        binary(slow)


def test_order_of_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (program(tmp_path / name, VERSIONS[0][0]) for name in ("one", "two"))
    monkeypatch.setenv("PATH", str(one.parent))
    monkeypatch.delenv("KVWISE_ENGINE", raising=False)
    assert find().kind == "embedded"
    assert find(str(two)).path == str(two)
    assert find(str(two.parent)).path == str(two)  # a folder: the server in it
    assert find("llama-server").path == str(one)
    monkeypatch.setenv("KVWISE_ENGINE", str(two))
    assert find().path == str(two)
    assert find("embedded").kind == "embedded"
    monkeypatch.delenv("KVWISE_ENGINE")
    monkeypatch.setattr(finder, "embedded", lambda: None)
    assert find().path == str(one)
    with pytest.raises(UsageError, match="not installed"):
        find("embedded")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineError, match="no engine found"):
        find()


@pytest.mark.parametrize("wanted", ["/no/such/server", "no-such-program-at-all"])
def test_a_wanted_engine_that_is_not_there_is_a_usage_error(wanted: str) -> None:
    with pytest.raises(UsageError, match="not a program"):
        find(wanted)


def test_the_embedded_engine_knows_its_build_from_its_version() -> None:
    pytest.importorskip("xllamacpp")
    engine = embedded()
    assert engine is not None
    assert engine.build is not None
    assert engine.build[1:] in engine.version.split(".")
    assert engine.name.startswith("xllamacpp ")
    assert engine.knows("--anything")


def test_tools_are_looked_for_beside_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = program(tmp_path / "a", "")
    bench = program(tmp_path / "a", "", "llama-bench")
    other = program(tmp_path / "b", "", "llama-tokenize")
    monkeypatch.setenv("PATH", str(other.parent))
    engine = Engine("binary", str(server))
    assert engine.tool("llama-bench") == bench
    assert engine.tool("llama-tokenize") == other
    assert engine.tool("llama-nothing") is None
    assert Engine("embedded").tool("llama-tokenize") == other


@pytest.mark.parametrize("place", ["", "build/bin", "bin"])
@pytest.mark.parametrize("name", ["llama-server", "llama-fit-params"])
def test_the_folder_of_a_llama_cpp_is_an_engine(tmp_path: Path, place: str, name: str) -> None:
    tool = program(tmp_path / place, "echo 'version: 7 (abc)'", name)
    assert find(str(tmp_path)).path == str(tool.resolve())


def test_only_a_binary_can_be_asked_about_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KVWISE_ENGINE", raising=False)
    assert for_gpus() is None
    tool = program(tmp_path, "echo 'version: 7 (abc)'", "llama-fit-params")
    found = for_gpus()
    assert found is not None
    assert (found.path, found.build) == (str(tool.resolve()), "b7")
    if importlib.util.find_spec("xllamacpp"):
        assert for_gpus("embedded") is None
    with pytest.raises(UsageError, match="not a program"):
        for_gpus("/no/such/server")


def test_a_plan_without_an_engine_loads_no_reader_of_logs() -> None:
    code = (
        "import sys, kvwise.cli.plan, kvwise.cli._planning, kvwise.results\n"
        "print(sorted({'kvwise.engine.log', 'importlib.metadata'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
