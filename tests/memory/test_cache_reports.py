"""Sizes that other people's llama.cpp printed, where the report says enough to compute them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cache_setup as setup

from kvwise.gguf.model import KEYS, Model
from kvwise.memory.cache import caches
from kvwise.memory.ledger import Cache
from kvwise.units import MIB

REPORTS = Path(__file__).parents[1] / "reports" / "allocations.dev.json"
UNLIKE = {
    "gemma3-1b-vulkan-8k-preiswa": "a build before windows had caches of their own",
    "gemma3-270m-np3-np4-padding": "adds all caches up, for two settings at once",
    "qwythos27b-mtp-rocm-262k": "target and draft context in one list",
}
RENAMED = {
    "n_embd_head_k": "n_embd_head_k_full",
    "n_embd_head_v": "n_embd_head_v_full",
    "n_embd_head_k_mla": "n_embd_head_k_mla_impl",
    "n_embd_head_v_mla": "n_embd_head_v_mla_impl",
}
FILLED: dict[str, Any] = {
    "rope.dimension_sections": (11, 11, 10, 0),
    "expert_feed_forward_length": 1,
    "expert_shared_count": 1,
    "logit_scale": 1.0,
    "use_parallel_residual": True,
    "ssm.time_step_rank": 1,
}
"""Required keys that change no cache and that logs do not print."""


def reports() -> list[dict[str, Any]]:
    def enough(report: dict[str, Any]) -> bool:
        known, measured = report["hparams"], report["measured"]
        heads = {"n_head_kv", "n_embd_head_k"} <= known.keys() or not measured.get("kv")
        sized = measured.get("kv") or measured.get("rs")
        return bool(sized) and heads and report["id"] not in UNLIKE

    return [report for report in json.loads(REPORTS.read_text()) if enough(report)]


def model_of(report: dict[str, Any]) -> Model:
    known = dict(report["hparams"])
    trunk = known.get("n_layer_kv", known["n_layer"])
    known.setdefault("n_layer_all", known["n_layer"])
    known["n_layer_nextn"] = known["n_layer_all"] - trunk
    known.setdefault("n_embd_head_v", known.get("n_embd_head_k"))
    keys: dict[str, Any] = dict(FILLED)
    for name, value in known.items():
        attribute = RENAMED.get(name, name)
        if attribute in KEYS and value is not None:
            keys[KEYS[attribute][0].removeprefix(".")] = value
    if keys.get("expert_count", 0) == 0:
        keys.pop("expert_count", None)
    return setup.shape(report["arch"], **keys)


def made_for(report: dict[str, Any]) -> list[Cache]:
    model, params = model_of(report), report["params"]
    slots = params.get("n_seq_max") or 1
    unified = bool(params.get("kv_unified"))
    whole = params.get("n_ctx_seq") or params["n_ctx"] // (1 if unified else slots)
    off = "off" in str(params.get("flash_attn"))
    context = setup.context(
        n_ctx=params["n_ctx"],
        n_ctx_seq=whole,
        n_ubatch=params.get("n_ubatch") or 512,
        n_seq_max=slots,
        kv_unified=unified,
        flash_attn=not off,
        v_trans=off,
        type_k=params.get("type_k") or "f16",
        type_v=params.get("type_v") or "f16",
        n_rs_seq=params.get("n_rs_seq") or 0,
    )
    build = "b11549" if report["arch"] == "glm4moe" else "b10605"
    return list(caches(model, context, setup.on_one_gpu(model), [setup.gpu()], build))


@pytest.mark.parametrize("report", reports(), ids=lambda report: str(report["id"]))
def test_the_log_agrees(report: dict[str, Any]) -> None:
    made = made_for(report)
    kv = [cache for cache in made if cache.kind == "kv"]
    states = [cache for cache in made if cache.kind == "recurrent"]
    for cache, printed in zip(kv, report["measured"].get("kv", []), strict=True):
        assert (cache.cells, len(cache.layers)) == (printed["cells"], printed["layers"])
        assert cache.streams == printed["n_stream"]
        assert cache.nbytes / MIB == pytest.approx(printed["size_mib"], abs=0.01)
    for cache, printed in zip(states, report["measured"].get("rs", []), strict=False):
        assert cache.cells == printed["cells"]
        assert cache.nbytes / MIB == pytest.approx(printed["size_mib"], abs=0.01)


def test_most_reports_say_enough() -> None:
    assert len(reports()) >= 25
