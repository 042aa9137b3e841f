"""Where the model zoo is, and how its files are read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

ZOO = Path(__file__).parent / "zoo"


def zoo_names() -> list[str]:
    return sorted(path.name.removesuffix(".json.gz") for path in (ZOO / "models").glob("*.gz"))


def load_json(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))
