"""kvwise in text-generation-webui: measure what the GPUs really give, then set what fits.

As an extension (user_data/extensions/kvwise/script.py, switched on with `--extensions kvwise`)
it plans every model that is loaded from then on. Run by itself, it plans one model and writes its
settings before the program starts:

    python user_data/extensions/kvwise/script.py user_data/models/MODEL.gguf

Each time `kvwise probe` allocates and times real memory, `kvwise export` plans with what it found
and writes user_data/models/config-user.yaml. If either fails, the settings stay as they are.
"""

# ruff: noqa: INP001, SLF001  (text-generation-webui has this file alone, and no other way in)

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

params = {"display_name": "kvwise", "is_tab": False}

KVWISE: list[str] = ["kvwise"]
OPTIONS: list[str] = []
SECONDS = 600


def plan(model: str | Path, config: Path) -> dict[str, Any]:
    """Keys of the llama.cpp loader for a model's file, written to `config` too; {}: as it is."""
    _run(["probe", "--json"])
    export = ["export", "text-generation-webui", str(model), *OPTIONS, "--out", str(config)]
    try:
        values = json.loads(_run([*export, "--json"]) or "{}").get("values", {})
    except (ValueError, AttributeError):
        values = None
    if not isinstance(values, dict):
        _say("its answer is not understood")
        return {}
    if values:
        context, layers = values.get("ctx_size"), values.get("gpu_layers")
        _say(f"{Path(model).name}: {context} tokens of context, {layers} layers on the GPU")
    return values


def _run(words: list[str]) -> str:
    """What kvwise answers; nothing if it fails, and then why is said."""
    try:
        done = subprocess.run(
            [*KVWISE, *words],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        _say(f"{KVWISE[0]}: {error}")
        return ""
    if done.returncode:
        _say(f"kvwise {words[0]}: {(done.stderr or done.stdout).strip()[:500]}")
        return ""
    return done.stdout


def _say(text: str) -> None:
    sys.stderr.write(f"kvwise: {text}\n")


def setup() -> None:
    """Called by text-generation-webui: from now on each start of llama-server is planned first."""
    server: Any = import_module("modules.llama_cpp_server").LlamaServer
    shared: Any = import_module("modules.shared")
    start = server._start_server
    if getattr(start, "is_kvwise", False):
        return

    def planned_start(self: Any, *args: Any, **kwargs: Any) -> Any:
        _apply(shared, self.model_path)
        return start(self, *args, **kwargs)

    planned_start.is_kvwise = True  # type: ignore[attr-defined]
    server._start_server = planned_start


def _apply(shared: Any, model: str | Path) -> None:
    values = plan(model, Path(shared.user_data_dir) / "models" / "config-user.yaml")
    for key, value in values.items():
        if key != "loader" and hasattr(shared.args, key):
            setattr(shared.args, key, value)
    if values:
        shared.user_config[f"{re.escape(Path(model).name)}$"] = dict(values)


def main(words: list[str]) -> int:
    """Plan the one model that is named; 0 if that worked."""
    if len(words) != 1:
        _say(f"usage: python {sys.argv[0]} MODEL.gguf")
        return 2
    config = Path(__file__).resolve().parents[2] / "models" / "config-user.yaml"
    return 0 if plan(words[0], config) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
