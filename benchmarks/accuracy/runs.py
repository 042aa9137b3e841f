"""Real loads: computed, simulated and measured, from `kvwise verify` itself or its documents."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kvwise
from kvwise.engine.find import find
from kvwise.verify import verification_json, verify
from zoo import TESTS

SETTINGS = (
    "-c 512 -np 1",
    "-c 4096 -np 1 -ctk q8_0 -ctv q8_0",
    "-c 4096 -np 4 -kvu",
    "-c 4096 -np 4 -no-kvu",
    "-c 2048 -np 1 -fa off",
    "-c 4096 -np 2 --swa-full -ub 256",
    "-c 2048 -np 1 -lm none --no-repack",
)
"""What each model of the packages is loaded with."""


@dataclass(frozen=True, slots=True)
class Run:
    """One line of one load, in MiB as printed; `misjudged` = the engine's own pass was wrong."""

    engine: str
    build: str
    model: str
    settings: str
    kind: str
    name: str
    computed: int | None
    simulated: int | None
    printed: str
    exact: bool
    misjudged: bool


def here(engines: list[str], progress: Callable[[str], None]) -> Iterator[Run]:
    """Load the models of packages with each engine."""
    sys.path.insert(0, str(TESTS))
    from models import gemma3, smollm2

    for wanted in engines:
        engine = find(wanted)
        for path in (smollm2(), gemma3()):
            model = kvwise.open_model(str(path))
            for words in SETTINGS:
                progress(f"{engine.name} {path.name} {words}")
                launch = kvwise.Launch.parse(words.split())
                done = verify(model, launch, engine=engine, n_predict=1, simulate=True)
                document = verification_json(done)
                yield from _lines(document, path.name.removesuffix(".gguf"), words)


def read(paths: list[str]) -> Iterator[Run]:
    """Documents that `kvwise verify --json` printed."""
    for text in paths:
        document = json.loads(Path(text).read_text(encoding="utf-8"))
        launch = document["computed"]["launch"]
        yield from _lines(
            document, document["computed"]["model"]["name"], " ".join(launch["argv"][2:])
        )


def _lines(document: dict[str, Any], model: str, settings: str) -> Iterator[Run]:
    engine = document["engine"]
    rules = document["computed"]["launch"]["build"]
    wrong = document.get("engine_misjudges", [])
    for line in document["lines"]:
        yield Run(
            "embedded" if engine["kind"] == "embedded" else "llama-server",
            engine["build"] or f"build not said; rules of {rules}",
            model,
            settings,
            line["kind"],
            line["name"],
            line["computed_bytes"],
            line["simulated_bytes"],
            " + ".join(line["measured_mib"] or ()),
            line["difference_bytes"] == 0,
            line["kind"] == "compute" and line["name"] in wrong,
        )
