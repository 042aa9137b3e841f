"""The GPUs that an engine sees, with the bytes it reports; asked in a child process.

Same code as llama.cpp's own `--fit` uses, so the same answers (conventions: the engine first).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence

from kvwise.device import Device
from kvwise.engine.find import Engine
from kvwise.engine.limits import clean_environment
from kvwise.errors import EngineError
from kvwise.units import MIB

_TIMEOUT_S = 60
_LINE = re.compile(r"^\s+(\w+?)(\d+): (.+) \((\d+) MiB, (\d+) MiB free\)\s*$", re.MULTILINE)
_KINDS = {"CUDA": "cuda", "ROCm": "hip", "Vulkan": "vulkan", "MTL": "metal", "Metal": "metal"}
_ASK_EMBEDDED = """
import json, xllamacpp
rows = xllamacpp.get_device_info()
print(json.dumps([[r["name"], r["description"], r["memory_total"], r["memory_free"]] for r in rows
                  if "GPU" in str(r["type"])]))
"""


def list_devices(engine: Engine, flags: Sequence[str] = ()) -> list[Device]:
    """The engine's GPUs in its order; `flags` are a binary's own that bring in more (`--rpc`).

    Raises EngineError when it does not answer.
    """
    if engine.kind == "embedded":
        return read_rows(json.loads(_run([sys.executable, "-c", _ASK_EMBEDDED]) or "[]"))
    return read_listing(_run([engine.path, *flags, "--list-devices"]))


def read_listing(text: str) -> list[Device]:
    """Devices of `llama-server --list-devices`: `  CUDA0: NAME (8188 MiB, 7078 MiB free)`."""
    return [
        _device(prefix, int(number), name, int(total) * MIB, int(free) * MIB)
        for prefix, number, name, total, free in _LINE.findall(text)
    ]


def read_rows(rows: list[tuple[str, str, int, int]]) -> list[Device]:
    """Devices of the embedded engine: (name, description, total bytes, free bytes)."""
    found = []
    for name, description, total, free in rows:
        prefix = name.rstrip("0123456789")
        number = int(name.removeprefix(prefix) or 0)
        found.append(_device(prefix, number, description, total, free))
    return found


def _device(prefix: str, number: int, name: str, total: int, free: int) -> Device:
    return Device(
        name=name,
        kind=_KINDS.get(prefix, "generic"),
        total_bytes=total,
        free_bytes=free,
        index=number,
        source="engine",
    )


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_TIMEOUT_S, env=clean_environment(), check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError("the engine does not list its devices: {why}", why=str(error)) from error
    if done.returncode:
        raise EngineError(
            "the engine does not list its devices: exit code {code}", code=done.returncode,
            hint="name the GPU yourself with --gpu, or give --cpu-only",
        )  # fmt: skip
    return done.stdout
