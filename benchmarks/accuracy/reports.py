"""Allocations that other people's llama.cpp printed (tests/reports), predicted from what the report
says of its model.

Caches and output follow from hyperparameters alone. A compute buffer needs the whole header: it is
predicted where a model of the zoo has every hyperparameter that the log printed. Builds, backends
and drivers are other people's; most are no build whose rules we know.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

from kvwise.device import Device
from kvwise.errors import KvwiseError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.units import GIB, MIB
from zoo import TESTS, ZOO, load, model_of

Report = dict[str, Any]
_NEEDED = frozenset({"n_layer", "n_embd", "n_head", "n_vocab"})
_NOT_COMPARED = frozenset({"n_ctx_train", "n_swa", "n_embd_k_gqa", "n_embd_v_gqa"})
_KINDS = {"CUDA": "cuda", "ROCm": "hip", "Vulkan": "vulkan", "MTL": "metal", "Metal": "metal"}
_DEVICE = re.compile(r"([A-Za-z]+?)(\d*)\Z")


@dataclass(frozen=True, slots=True)
class Line:
    """One printed figure in MiB and what was computed for it: one figure, or, for a compute buffer,
    those with a row of logits for each slot and with all rows (which of them depends on the build).
    """

    report: str
    build: str
    what: str
    printed: float
    computed: tuple[float, ...]

    @property
    def same(self) -> bool:
        """Would one of them print the same, to 0.01 MiB?"""
        return any(abs(self.printed - each) < 0.0101 for each in self.computed)


@cache
def _tests() -> Any:
    """tests/memory/test_cache_reports.py, which knows how a report becomes a model."""
    sys.path[:0] = [str(TESTS), str(TESTS / "memory")]
    return import_module("test_cache_reports")


def reports() -> list[Report]:
    found: list[Report] = json.loads((TESTS / "reports/allocations.dev.json").read_text())
    return found


def lines() -> Iterator[Line]:
    """Every figure that can be predicted, report by report."""
    sized = {report["id"] for report in _tests().reports()}
    for report in reports():
        if report["id"] in sized:
            yield from _caches(report)
        yield from _output(report)
        yield from _compute(report)


def unlike() -> dict[str, str]:
    """Reports that were not compared: why."""
    return dict(_tests().UNLIKE)


def _line(report: Report, what: str, printed: float, *sizes: int) -> Line:
    build = (report.get("build") or "not said").split(" (")[0]
    return Line(report["id"], build, what, printed, tuple(size / MIB for size in sizes))


def _caches(report: Report) -> Iterator[Line]:
    made = _tests().made_for(report)
    for kind, key, name in (("kv", "kv", "cache"), ("recurrent", "rs", "states")):
        ours = [each for each in made if each.kind == kind]
        for each, printed in zip(ours, report["measured"].get(key, []), strict=False):
            yield _line(report, f"{name} {each.role}", printed["size_mib"], each.nbytes)


def _output(report: Report) -> Iterator[Line]:
    """A row of logits for each sequence: what a server and a command line keep."""
    n_vocab = report["hparams"].get("n_vocab")
    printed = report["measured"].get("output_mib") or {}
    if n_vocab and len(printed) == 1 and report["id"] not in _tests().UNLIKE:
        (size,) = printed.values()
        rows = report["params"].get("n_seq_max") or 1
        yield _line(report, "output", size, n_vocab * 4 * rows)


def _compute(report: Report) -> Iterator[Line]:
    printed = report["measured"].get("compute_mib") or {}
    model = _counterpart(report) if printed else None
    launch = _launch(report)
    if model is None or launch is None:
        return
    devices = _devices(printed)
    try:
        few, every = (
            account(model, replace(launch, n_outputs_max=rows), devices)
            for rows in (launch.n_seq_max, 0)
        )
    except KvwiseError:  # what that build took and ours would not
        return
    names = [name for name in printed if not _is_host(name)]
    names += [name for name in printed if _is_host(name)]
    for name, one, other in zip(names, few.lines, every.lines, strict=False):
        yield _line(report, f"compute {name}", printed[name], one.compute_bytes,
                    other.compute_bytes)  # fmt: skip


def _is_host(name: str) -> bool:
    return name == "CPU" or name.endswith("_Host")


def _devices(printed: dict[str, float]) -> list[Device]:
    found: list[Device] = []
    for name in printed:
        match = _DEVICE.match(name)
        if match and not _is_host(name):
            kind = _KINDS.get(match[1], "generic")
            found.append(Device(name, kind, 1024 * GIB, 1024 * GIB, index=len(found)))
    return found


def _launch(report: Report) -> Launch | None:
    """The settings, where the report says all that move compute buffers."""
    params = report["params"]
    if not {"n_ctx", "n_ubatch", "flash_attn"} <= params.keys() or params.get("override_tensor"):
        return None
    flash = str(params["flash_attn"])
    layers = re.match(r"(\d+)/", str(params.get("offloaded", "")))
    slots = params.get("n_seq_max") or 1
    return Launch(
        n_ctx=params["n_ctx"],
        n_batch=params.get("n_batch") or 2048,
        n_ubatch=params["n_ubatch"],
        n_seq_max=slots,
        kv_unified=bool(params.get("kv_unified")) and slots > 1,
        flash_attn="off" if "off" in flash else "auto" if "auto" in flash else "on",
        type_k=params.get("type_k") or "f16",
        type_v=params.get("type_v") or "f16",
        n_gpu_layers=int(layers[1]) if layers else -1,
    )


def _counterpart(report: Report) -> Model | None:
    """A model of the zoo with every hyperparameter that the report has."""
    known = {k: v for k, v in report["hparams"].items() if v is not None and k not in _NOT_COMPARED}
    if not known.keys() >= _NEEDED:
        return None
    if "n_ff_exp" in known:
        known.pop("n_ff", None)  # no layer of a mixture has it, and files say different things
    if "n_layer_all" not in known and report["arch"] == "glm4moe":
        known["n_layer_all"] = known.pop("n_layer")  # logs of its builds count every layer
    for path in sorted((ZOO / "models").glob("*.gz")):
        name = path.name.removesuffix(".json.gz")
        if not name.startswith("tiny-") and load(path)["architecture"] == report["arch"]:
            model = model_of(name)
            if all(_same(model, key, value) for key, value in known.items()):
                return model
    return None


def _same(model: Model, name: str, value: object) -> bool:
    mine = getattr(model, _tests().RENAMED.get(name, name), None)
    if isinstance(mine, tuple):  # one for each layer
        return set(mine) == {value}
    return mine is None or callable(mine) or mine == value
