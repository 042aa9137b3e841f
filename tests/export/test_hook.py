"""The extension of text-generation-webui, run for real; only the program around it is ours.

`modules` stands in for the program's own (its LlamaServer and shared, as v4.7.3 has them).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from kvwise.errors import SourceError
from kvwise.export import text_generation_webui_hook as hook
from models import smollm2

KVWISE = [sys.executable, "-m", "kvwise"]


class Program:
    """As much of text-generation-webui as an extension can see."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        started: list[dict[str, Any]] = []
        args = SimpleNamespace(ctx_size=0, gpu_layers=-1, cache_type="fp16", batch_size=1024,
                               ubatch_size=1024, parallel=1, extra_flags="")  # fmt: skip

        class LlamaServer:
            def __init__(self, model_path: Path) -> None:
                self.model_path = model_path
                self._start_server()

            def _start_server(self) -> int:
                started.append(dict(vars(args)))
                return 5005

        shared = ModuleType("modules.shared")
        shared.__dict__.update(args=args, user_data_dir=folder, user_config={})
        server = ModuleType("modules.llama_cpp_server")
        server.__dict__.update(LlamaServer=LlamaServer)
        monkeypatch.setitem(sys.modules, "modules", ModuleType("modules"))
        monkeypatch.setitem(sys.modules, "modules.shared", shared)
        monkeypatch.setitem(sys.modules, "modules.llama_cpp_server", server)
        self.started, self.args, self.load = started, args, LlamaServer
        self.shared: Any = shared


def extension(folder: Path, program: list[str], *options: str) -> dict[str, Any]:
    """The script where it belongs, executed as an extension is."""
    script = folder / "extensions" / "kvwise" / "script.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(hook.write_script(program, options, None).text, "utf-8")
    space: dict[str, Any] = {"__name__": "user_ext_kvwise", "__file__": str(script)}
    exec(compile(script.read_text("utf-8"), str(script), "exec"), space)  # noqa: S102
    return space


def test_each_load_is_measured_planned_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path, monkeypatch)
    space = extension(tmp_path, KVWISE, "--cpu-only", "--ram", "2GiB", "-np", "1")
    space["setup"]()
    space["setup"]()  # a second time changes nothing
    model = Path(smollm2())
    program.load(model)
    assert len(program.started) == 1
    started = program.started[0]
    assert started["ctx_size"] >= 4096
    assert started["gpu_layers"] == 0
    saved = yaml.safe_load((tmp_path / "models" / "config-user.yaml").read_text("utf-8"))
    assert saved[f"{model.name}$"]["ctx_size"] == started["ctx_size"]
    assert (
        program.shared.user_config[f"{re.escape(model.name)}$"]["ctx_size"] == started["ctx_size"]
    )
    assert any((Path(str(space["__file__"])).parent).iterdir())


def test_a_failing_kvwise_leaves_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(tmp_path, monkeypatch)
    for command in ([str(tmp_path / "no-such")], [sys.executable, "-c", "raise SystemExit('bad')"]):
        extension(tmp_path, command)["setup"]()
        program.load(tmp_path / "a.gguf")
        assert program.started[-1]["ctx_size"] == 0
        assert "kvwise" in capsys.readouterr().err
    assert not (tmp_path / "models").exists()


def test_the_script_by_itself_writes_the_settings_before_a_start(tmp_path: Path) -> None:
    space = extension(tmp_path, KVWISE, "--cpu-only", "--ram", "2GiB")
    script = str(space["__file__"])
    done = subprocess.run([sys.executable, script, str(smollm2())], check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tokens of context" in done.stderr
    assert (tmp_path / "models" / "config-user.yaml").exists()
    wrong = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True)
    assert wrong.returncode == 2


def test_options_and_program_survive_any_character() -> None:
    words = ["a'b", 'c"d', "e\\f", "ü\n", "KVWISE: list[str] = []"]
    space: dict[str, Any] = {"__name__": "x"}
    exec(hook.write_script(words, words[::-1], None).text, space)  # noqa: S102
    assert (space["KVWISE"], space["OPTIONS"]) == (words, words[::-1])


def test_a_script_of_others_is_not_replaced() -> None:
    with pytest.raises(SourceError):
        hook.write_script(["kvwise"], [], "def setup(): pass\n")
