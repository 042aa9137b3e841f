"""Every configuration of zoo/golden against the ledger: weights, caches, output, refusals, notes.

Compute buffers are not looked at here. Run as a script it prints a summary, or with names of
models what differs in each of their configurations.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.memory.report import ledger_json, ranges
from kvwise.memory.zoo_config import read_config

Row = dict[str, Any]

GOLDEN = setup.golden_names()


def differences(model: Model, config: Row, result: Row) -> list[str]:
    """What the ledger says otherwise than the engine."""
    zoo = read_config(config)
    try:
        ledger = account(model, zoo.launch, zoo.devices, compute_mode="none")
    except Refused as refused:
        wanted = "nothing refused" if result["ok"] else result["error_code"]
        return [] if refused.code == wanted else [f"refusal: {refused.code} != {wanted}"]
    if not result["ok"]:
        return [f"refusal: none != {result['error_code']}"]
    return [
        f"{what}: {ours} != {theirs}"
        for what, ours, theirs in (*resolved(ledger, result), *sizes(ledger, result))
        if ours != theirs
    ]


def resolved(ledger: Ledger, result: Row) -> Iterator[tuple[str, object, object]]:
    """What the engine made of the launch."""
    for field in ("n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "flash_attn"):
        yield field, getattr(ledger.context, field), result[field]
    for field in ("pipeline_parallel", "sched_copies", "gpu_layers"):
        yield field, getattr(ledger.placement, field), result[field]
    for field in ("n_layer", "n_layer_all"):
        yield field, getattr(ledger.model, field), result[field]
    where = ledger_json(ledger)["placement"]
    for field in ("layer_device", "output_device"):
        yield field, where[field], result[field]
    codes = sorted(note.code for note in ledger.notes)
    yield "notes", codes, sorted(result.get("notes", []))


def sizes(ledger: Ledger, result: Row) -> Iterator[tuple[str, object, object]]:
    """Bytes of each buffer."""
    ours: Counter[tuple[str, str]] = Counter()
    for part in (part for line in ledger.lines for part in line.parts):
        ours["model", part.buffer] += part.weights_bytes
        ours["context", part.buffer] += part.context_bytes
    for buffer in result["buffers"]:
        for part in ("model", "context"):
            yield (
                f"{part} of {buffer['buffer']}",
                ours.pop((part, buffer["buffer"]), 0),
                buffer[part],
            )
    yield "other buffers", {key: size for key, size in ours.items() if size}, {}
    yield "output", ledger.host.output_bytes, result["output_buffer_bytes"]
    roles = [(cache.role, ranges(list(cache.layers))) for cache in ledger.caches]
    yield "caches", roles, [(row["role"], row.get("layers", "")) for row in result["caches"]]


def check(name: str) -> Iterator[tuple[Row, list[str]]]:
    """Each configuration of a model with its differences.

    What is repacked (`extra_bufts`) depends on the processor: the zoo's was an x86 with AVX2.
    """
    model = setup.zoo_model(name)
    golden = setup.golden(name)
    for row in golden["results"]:
        config = golden["defaults"] | row["config"]
        yield row["config"], differences(model, config, row["result"])


@pytest.mark.parametrize("name", GOLDEN)
def test_every_configuration(name: str) -> None:
    assert [(config, bad) for config, bad in check(name) if bad] == []


def test_all_golden_models_are_there() -> None:
    assert len(GOLDEN) == 220


def main(wanted: list[str]) -> None:
    exact = total = 0
    kinds: Counter[str] = Counter()
    for name in wanted or GOLDEN:
        for config, bad in check(name):
            total, exact = total + 1, exact + (not bad)
            kinds.update(text.split(":")[0] for text in bad)
            if bad and wanted:
                print(name, config, bad)
    print(f"{exact} of {total} configurations exact", dict(kinds) or "")


if __name__ == "__main__":
    main(sys.argv[1:])
