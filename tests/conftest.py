"""Shared by all tests: the model zoo and where things are."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

ZOO = Path(__file__).parent / "zoo"


def zoo_names() -> list[str]:
    return sorted(path.name.removesuffix(".json.gz") for path in (ZOO / "models").glob("*.gz"))


def load_json(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's folders or is steered by the user's environment."""
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path_factory.mktemp("home")))
    for name in ("LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_MODEL", "KVWISE_LANG"):
        monkeypatch.delenv(name, raising=False)
