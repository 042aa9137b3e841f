"""One graph for all quantized caches gives what a graph for each gives, to the byte."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from kvwise.device import Device
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.compute import alike, growing, result
from kvwise.memory.compute.alike import KINDS, QUANTIZED
from kvwise.opening import open_model
from kvwise.units import GIB

ZOO = Path(__file__).parents[2] / "zoo/models"
FAST = (
    "tiny-deepseek32", "tiny-deepseek4", "tiny-gemma3", "tiny-falcon-h1", "tiny-gpt-oss",
)  # fmt: skip
PAIRS = (*((each, each) for each in sorted(QUANTIZED)), ("q8_0", "q4_0"), ("q5_1", "q8_0"))
BUILDS = ("b10605", "b11549")
START = replace(Launch.parse([]), fit=False)


@dataclass(frozen=True)
class Range:
    """What is compared."""

    kinds: tuple[str, ...] = tuple(sorted(KINDS))
    counts: tuple[int, ...] = (1, 2)
    lengths: tuple[int, ...] = (512, 8192)
    pairs: tuple[tuple[str, str], ...] = PAIRS
    flags: tuple[dict[str, object], ...] = ({}, {"n_seq_max": 3, "kv_unified": False})


FEW = Range(("cuda", "vulkan"), (1,), (8192,), (("q4_0", "q4_0"), ("q8_0", "q8_0"),
            ("q5_1", "q5_1"), ("q8_0", "q4_0"), ("iq4_nl", "iq4_nl")), ({},))  # fmt: skip


def _sizes(model: Model, what: Range) -> dict[str, list[int]]:
    """Compute buffers of everything that llama.cpp takes, nothing remembered from before."""
    result._result.cache_clear()
    growing._kept.cache_clear()
    found = {}
    for kind, count, build, n_ctx, (k, v), flags in product(
        what.kinds, what.counts, BUILDS, what.lengths, what.pairs, what.flags
    ):
        devices = [Device(f"A{n}", kind, 900 * GIB, 900 * GIB, index=n) for n in range(count)]
        launch = replace(START, n_ctx=n_ctx, type_k=k, type_v=v, build=build, **flags)  # type: ignore[arg-type]
        try:
            ledger = account(model, launch, devices)
        except Refused:
            continue
        name = f"{kind} {count} {build} {n_ctx} {k}/{v} {flags}"
        found[name] = [line.compute_bytes for line in ledger.lines]
    return found


def _compared(name: str, what: Range, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many layouts were spared."""
    model = open_model(str(ZOO / f"{name}.json.gz"))
    together = _sizes(model, what)
    layouts = growing._kept.cache_info().misses
    monkeypatch.setattr(result, "as_one", lambda _model, context, *_: context)
    assert _sizes(model, what) == together
    return growing._kept.cache_info().misses - layouts


@pytest.mark.parametrize("name", FAST)
def test_one_graph_for_all_quantized_caches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _compared(name, FEW, monkeypatch) > 0


def test_a_decoder_that_copies_its_cache_has_a_graph_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _compared("tiny-t5", FEW, monkeypatch) == 0


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "gemma-4-e2b"])
def test_rows_of_caches_keep_their_own_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSeek V4 puts them together, and Gemma 4's upper layers copy the cache of a lower one
    from the other card: q8_0 takes more there than the q4_0 asked about first."""
    pairs = (("q4_0", "q4_0"), ("q8_0", "q8_0"))
    slots = ({"n_seq_max": 3, "kv_unified": False},)
    _compared(name, Range(("cuda",), (2,), (512,), pairs, slots), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(ZOO.glob("*.json.gz")), ids=lambda path: path.name)
def test_in_the_whole_zoo(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _compared(path.name.removesuffix(".json.gz"), Range(), monkeypatch)


def test_what_is_not_alike_stays_apart() -> None:
    model = open_model(str(ZOO / "qwen3-0.6b.json.gz"))
    device = [Device("A", "cuda", 24 * GIB, 24 * GIB)]

    def shown(**flags: object) -> str:
        launch = replace(START, n_ctx=4096, type_k="q4_0", type_v="q4_0", **flags)
        ledger = account(model, launch, device)
        found = alike.as_one(model, ledger.context, ledger.placement, ledger.devices)
        return found.type_k

    assert shown() == "q8_0"
    assert shown(n_gpu_layers=5) == "q4_0"  # part of the cache on the host
    assert shown(offload_kqv=False) == "q4_0"
    for kind in ("q5_1", "f16"):  # no flash attention in this build's CUDA; not quantized
        launch = replace(START, n_ctx=4096, type_k=kind, type_v=kind, build="b10605")
        ledger = account(model, launch, device)
        found = alike.as_one(model, ledger.context, ledger.placement, ledger.devices)
        assert found.type_k == kind
