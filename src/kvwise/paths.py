"""Where kvwise keeps things: config, data, cache and state folders.

KVWISE_HOME puts all of them under one folder. Nothing is written beside a model.
"""

from __future__ import annotations

import os
from pathlib import Path


def _folder(kind: str) -> Path:
    home = os.environ.get("KVWISE_HOME")
    if home:
        return Path(home) / kind
    import platformdirs  # noqa: PLC0415  (4 ms that `kvwise size` does not need)

    return Path(getattr(platformdirs, f"user_{kind}_dir")("kvwise", appauthor=False))


def is_ours(path: Path) -> bool:
    """Whether a path is one of kvwise's own folders, in one, or above one."""
    folders = [config_dir(), data_dir(), cache_dir(), state_dir()]
    return any(path == each or each in path.parents or path in each.parents for each in folders)


def config_dir() -> Path:
    """Presets and `config.toml`."""
    return _folder("config")


def data_dir() -> Path:
    """What was measured (`kvwise.db`)."""
    return _folder("data")


def cache_dir() -> Path:
    """What can be fetched or made again: headers, help pages, test models."""
    return _folder("cache")


def state_dir() -> Path:
    """Engine logs, lock files."""
    return _folder("state")
