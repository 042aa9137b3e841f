"""What decides the results of a verification: runs of other settings never mix."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from kvwise.engine.find import Engine
from kvwise.gguf.model import Model
from kvwise.launch import Launch

KIND = "verify"
_HEADER = 1 << 20


def about(
    model: Model, launch: Launch, engine: Engine, prompt_tokens: int | None, version: str
) -> dict[str, Any]:
    """Names and values for `Job.open`: files, engine, prompt, every setting, kvwise's `version`.

    Of a file: path, size, time, and a hash of its first MiB. Raises OSError.
    """
    if engine.build:
        launch = Launch.from_dict(launch.as_dict() | {"build": engine.build})
    files = {
        "model file": model.path,
        "draft file": launch.model_draft,
        "projector file": launch.mmproj,
        "engine file": engine.path,
    }
    return {
        **{name: fingerprint(path) for name, path in files.items() if path},
        "engine": [engine.kind, engine.build, engine.version],
        "prompt": "full" if prompt_tokens is None else prompt_tokens,
        "kvwise": version,
        **launch.as_dict(),
    }


def stamp(path: str) -> tuple[int, int]:
    """Size and time of change of a file. Raises OSError."""
    state = Path(path).stat()
    return state.st_size, state.st_mtime_ns


def fingerprint(path: str) -> list[Any]:
    """What tells a file from another, and from itself after a change. Raises OSError."""
    with Path(path).open("rb") as file:
        head = hashlib.sha256(file.read(_HEADER)).hexdigest()[:16]
    return [str(Path(path).resolve()), *stamp(path), head]
