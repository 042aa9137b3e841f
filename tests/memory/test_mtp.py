"""Contexts of MTP layers beside what llama.cpp's own pass said of them (oracle/measure_mtp.py).

`mtp.json.gz` holds models with an MTP layer of every architecture that has a graph for it (those of
newer builds: compute/test_newer.py), and what b10605 (on virtual GPUs, too) and b11549 printed.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvwise.arch import describe
from kvwise.engine.printed import Printed, Total
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.memory.account import account
from kvwise.memory.compute.families import MTP
from kvwise.memory.ledger import Ledger
from oracle.measure_mtp import MODELS, devices_of, grown, header_of, launch_of

Row = dict[str, Any]
GOLDEN = {"glm4moe", "qwen35moe", "deepseek32"}
"""Measured in the zoo, too."""


@cache
def recorded() -> dict[str, Row]:
    data = (Path(__file__).parent / "mtp.json.gz").read_bytes()
    known: dict[str, Row] = json.loads(gzip.decompress(data))
    return known


def ledger_of(model: Model, row: Row) -> Ledger:
    launch = launch_of(row["build"], row["fields"])
    return account(model, launch, devices_of(row["gpus"]), compute_mode="no-alloc")


def ours(ledger: Ledger, buffer: str, part: str) -> int:
    """Bytes of a part of the MTP context in a buffer; the host's are one buffer in a pass."""
    device = [line for line in ledger.lines if not line.host and line.buffer == buffer]
    line = device[0] if device else ledger.host
    return sum(getattr(e, f"{part}_bytes") for e in line.extras if e.of == "mtp")


def differences(model: Model, row: Row) -> list[str]:
    ledger = ledger_of(model, row)
    found = []
    for buffer, part, parts in row["said"]:
        size = ours(ledger, buffer, part)
        if not Total(tuple(Printed(*each) for each in parts)).agrees(size):
            found.append(f"{row} {buffer} {part}: {size}")
    mine = [extra for extra in ledger.extras if extra.of == "mtp" and extra.compute_bytes]
    if not mine or any(extra.basis["compute"] != "computed" for extra in mine):
        found.append(f"{row}: not computed")
    return found


@pytest.mark.parametrize("name", sorted(MODELS))
def test_mtp_contexts_take_what_llama_cpp_printed(name: str) -> None:
    known = recorded()[name]
    model = describe(header_of(known))
    assert len(known["results"]) >= (5 if name == "glm4" else 9)
    assert all(any(part == "compute" for _, part, _ in row["said"]) for row in known["results"])
    assert [wrong for row in known["results"] for wrong in differences(model, row)] == []


def test_every_graph_is_proven() -> None:
    newer = {"glm5-next", "qwen4exp"}
    drawn = {describe(header_of(row)).architecture for row in recorded().values()}
    assert drawn | GOLDEN | newer >= MTP


@pytest.mark.parametrize("name", ["tiny-glm4", "exaone-4-1.2b"])
def test_newer_builds_refuse_the_whole_model_on_caches_of_its_mtp_layer(name: str) -> None:
    model = describe(header_of(grown(name, 0)))
    old, new = (launch_of(build, {"n_ctx": 1024}) for build in ("b10605", "b11549"))
    assert any(extra.of == "mtp" for extra in account(model, old, ()).extras)
    with pytest.raises(Refused) as caught:
        account(model, new, ())
    assert caught.value.code == "mtp_unavailable"
