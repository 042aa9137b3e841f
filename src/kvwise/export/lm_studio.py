"""LM Studio's load settings of one model.

The file is not documented by its makers: keys are those of lmstudio-js (lms-kv-config schema,
2026-08), the place is what several public programs of 2026 use.
"""

from __future__ import annotations

from typing import Any

from kvwise.errors import SourceError
from kvwise.export import Written, _json
from kvwise.export.found import Found, flags, number, truth
from kvwise.export.settings import Settings, Told
from kvwise.text import phrase, template

ABOUT = template("load settings of a model in LM Studio")
FILE = "MODEL.gguf.json"
PLACE = template("~/.lmstudio/.internal/user-concrete-model-default-config/PUBLISHER/REPO/"
                 "{model}.json, named as the model's file under models; close the app first. The "
                 "format is not documented")  # fmt: skip

_LLM = "llm.load."
_LLAMA = "llm.load.llama."
_TYPES = ("f32", "f16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is no such JSON."""
    told = Told(settings)
    launch = settings.launch
    told.say("model", "fit", "n_ctx", "n_gpu_layers", "n_batch", "n_ubatch", "n_seq_max",
             "flash_attn", "offload_kqv")  # fmt: skip
    pairs: dict[str, Any] = {
        f"{_LLAMA}autoFit": settings.auto,
        f"{_LLM}contextLength": settings.n_ctx,
        f"{_LLAMA}flashAttention": settings.flash,
        f"{_LLAMA}evalBatchSize": launch.n_batch,
        f"{_LLAMA}physicalBatchSize": launch.n_ubatch,
        f"{_LLM}numParallelSessions": launch.n_seq_max,
        f"{_LLM}useUnifiedKvCache": launch.kv_unified,
        f"{_LLM}offloadKVCacheToGpu": launch.offload_kqv,
        f"{_LLAMA}tryMmap": launch.mmap,
        f"{_LLAMA}keepModelInMemory": "mlock" in launch.load_mode,
    }
    told.say("kv_unified", *(["load_mode"] if launch.load_mode != "dio" else []))
    notes = []
    if not settings.auto:
        ratio = _ratio(settings)
        pairs[f"{_LLAMA}acceleration.offloadRatio"] = ratio
        if isinstance(ratio, float):
            notes.append(phrase("LM Studio counts layers as a share of all ({share}) and rounds it "
                                "its own way: check the layers in its log",
                                share=ratio))  # fmt: skip
    for name, key in (("type_k", "kCacheQuantizationType"), ("type_v", "vCacheQuantizationType")):
        value = getattr(launch, name)
        if value in _TYPES:
            pairs[f"{_LLAMA}{key}"] = {"checked": value != "f16", "value": value}
            told.say(name)
        else:
            told.lacks(name, phrase("LM Studio has no cache type {type}", type=value))
    threads = told.value("--threads")
    if threads is not None:
        pairs[f"{_LLAMA}cpuThreadPoolSize"] = int(threads)
    left = told.left_out(phrase("LM Studio's file has no key for it"))
    return Written(_merged(old, pairs), left, tuple(notes))


def _ratio(settings: Settings) -> str | float:
    if settings.gpu_layers >= settings.layers:
        return "max"
    return round(settings.gpu_layers / settings.layers, 4) if settings.gpu_layers else "off"


def _merged(old: str | None, pairs: dict[str, Any]) -> str:
    document = (
        _json.load(old) if old and old.strip() else {"preset": "", "operation": {"fields": []}}
    )
    fields = _fields(document)
    todo = dict(pairs)
    for field in fields:
        if field.get("key") in todo:
            field["value"] = todo.pop(field["key"])
    fields += [{"key": key, "value": value} for key, value in todo.items()]
    return _json.dump(document, old)


def _fields(document: dict[str, Any]) -> list[dict[str, Any]]:
    load = document.setdefault("load", {})
    fields = load.setdefault("fields", []) if isinstance(load, dict) else None
    if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
        raise SourceError("this JSON has no list load.fields")
    return fields


def is_mine(_name: str, text: str) -> bool:
    """JSON with keys of LM Studio."""
    return '"llm.load.' in text or ('"load"' in text and '"fields"' in text)


def read(text: str) -> list[Found]:
    """What LM Studio would load with. Raises SourceError."""
    values = {str(each.get("key")): each.get("value") for each in _fields(_json.load(text))}
    ratio = values.get(f"{_LLAMA}acceleration.offloadRatio")
    auto = truth(values, f"{_LLAMA}autoFit", True)
    share = {"max": 1.0, "off": 0.0}.get(ratio) if isinstance(ratio, str) else None
    if isinstance(ratio, int | float) and not isinstance(ratio, bool):
        share = min(max(float(ratio), 0.0), 1.0)
    words = flags(
        ("-c", number(values, f"{_LLM}contextLength", 4096)),
        ("-b", number(values, f"{_LLAMA}evalBatchSize")),
        ("-ub", number(values, f"{_LLAMA}physicalBatchSize")),
        ("-np", number(values, f"{_LLM}numParallelSessions", 4)),
        ("-kvu", truth(values, f"{_LLM}useUnifiedKvCache", True)),
        ("-ctk", _type(values, "kCacheQuantizationType")),
        ("-ctv", _type(values, "vCacheQuantizationType")),
        ("-nkvo", not truth(values, f"{_LLM}offloadKVCacheToGpu", True)),
        ("-lm", _mode(values)),
        ("-fit", "on" if auto else "off"),
    )
    flash = values.get(f"{_LLAMA}flashAttention")
    if isinstance(flash, bool):
        words += ("-fa", "on" if flash else "off")
    return [Found(words, "", "lm-studio", share=share)]


def _type(values: dict[str, Any], key: str) -> str | None:
    value = values.get(f"{_LLAMA}{key}")
    if isinstance(value, dict):
        value = value.get("value") if value.get("checked") else None
    return str(value) if isinstance(value, str) else None


def _mode(values: dict[str, Any]) -> str | None:
    mmap = truth(values, f"{_LLAMA}tryMmap", True)
    lock = truth(values, f"{_LLAMA}keepModelInMemory", True)
    return "mmap+mlock" if mmap and lock else "mlock" if lock else None if mmap else "none"
