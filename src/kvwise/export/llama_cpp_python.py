"""A model in the configuration of llama-cpp-python's server (`--config_file`).

Read off abetlen/llama-cpp-python 0.3.35 llama_cpp/server/settings.py, which refuses keys it does
not know; cache types are ggml's numbers.
"""

from __future__ import annotations

from typing import Any

from kvwise.errors import SourceError
from kvwise.export import Written, _json
from kvwise.export.found import Found, flags, number, string, truth
from kvwise.export.settings import LeftOut, Settings, Told
from kvwise.gguf.types import CACHE_TYPES, by_name
from kvwise.text import phrase, template

ABOUT = template("the configuration of llama-cpp-python's server")
FILE = "llama-cpp-python.json"
PLACE = template("start `python -m llama_cpp.server --config_file {file}`")

SPLITS = {"none": 0, "layer": 1, "row": 2}  # llama.h, llama_split_mode


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is no such JSON, UsageError without a file's path."""
    values, left = arguments(settings)
    mine = {"model": settings.file, "model_alias": settings.name, **values}
    document = _json.load(old) if old and old.strip() else {"host": "127.0.0.1", "port": 8000}
    models = _models(document)
    there = next((each for each in models if each.get("model_alias") == settings.name), None)
    if there is None:
        models.append(mine)
    else:
        there.update(mine)
    return Written(_json.dump(document, old), left)


def _models(document: dict[str, Any]) -> list[dict[str, Any]]:
    models = document.setdefault("models", [])
    if not isinstance(models, list) or not all(isinstance(each, dict) for each in models):
        raise SourceError("{key} is not a list of tables", key="models")
    return models


def arguments(settings: Settings) -> tuple[dict[str, Any], tuple[LeftOut, ...]]:
    """(what the package takes for a model, what it cannot be told)."""
    told = Told(settings)
    launch = settings.launch
    told.say("model", "n_ctx", "n_gpu_layers", "fit", "n_batch", "n_ubatch", "flash_attn",
             "offload_kqv", "load_mode", "type_k", "type_v", "main_gpu")  # fmt: skip
    values: dict[str, Any] = {
        "n_ctx": settings.n_ctx,
        "n_gpu_layers": -1 if settings.gpu_layers >= settings.layers else settings.gpu_layers,
        "n_batch": launch.n_batch,
        "n_ubatch": launch.n_ubatch,
        "flash_attn": settings.flash,
        "type_k": _number(launch.type_k),
        "type_v": _number(launch.type_v),
        "offload_kqv": launch.offload_kqv,
        "use_mmap": launch.mmap,
        "use_mlock": "mlock" in launch.load_mode,
        "logits_all": False,
    }
    if launch.main_gpu:
        values["main_gpu"] = launch.main_gpu
    if launch.split_mode in SPLITS:
        told.say("split_mode")
        if launch.split_mode != "layer":
            values["split_mode"] = SPLITS[launch.split_mode]
    if launch.tensor_split:
        values["tensor_split"] = list(launch.tensor_split)
        told.say("tensor_split")
    if launch.embeddings:
        values["embedding"] = True
        told.say("embeddings")
    threads = told.value("--threads")
    if threads is not None:
        values["n_threads"] = int(threads)
    if launch.n_seq_max > 1:
        told.lacks("n_seq_max", phrase("llama-cpp-python answers one request at a time"))
    told.say("n_seq_max", "kv_unified")
    return values, told.left_out(phrase("llama-cpp-python has no argument for it"))


def _number(cache_type: str) -> int:
    found = by_name(cache_type)
    if found is None:
        raise SourceError("{type} is no ggml type", type=cache_type)
    return found.id


def is_mine(_name: str, text: str) -> bool:
    """JSON with a list of models."""
    return '"models"' in text and '"model"' in text


def read(text: str) -> list[Found]:
    """One per model. Raises SourceError."""
    return [found_of(each) for each in _models(_json.load(text))]


def found_of(model: dict[str, Any]) -> Found:
    """A launch by the package with these arguments. Raises SourceError for odd ones."""
    layers = number(model, "n_gpu_layers", 0)
    mmap, lock = truth(model, "use_mmap", True), truth(model, "use_mlock", True)
    mode = "mmap+mlock" if mmap and lock else "mlock" if lock else None if mmap else "none"
    split = model.get("tensor_split")
    modes = {number: name for name, number in SPLITS.items()}
    words = flags(
        ("-m", string(model, "model")),
        ("-c", number(model, "n_ctx", 2048)),
        ("-ngl", "all" if layers == -1 else layers),
        ("-b", number(model, "n_batch", 512)),
        ("-ub", number(model, "n_ubatch", 512)),
        ("-np", 1),
        ("-fa", "on" if truth(model, "flash_attn") else "off"),
        ("-ctk", _name(model, "type_k")),
        ("-ctv", _name(model, "type_v")),
        ("-nkvo", not truth(model, "offload_kqv", True)),
        ("-lm", mode),
        ("-sm", modes.get(number(model, "split_mode", 1) or 0)),
        ("-ts", ",".join(map(str, split)) if isinstance(split, list) and split else None),
        ("-fit", "off"),
    )
    return Found(words, string(model, "model_alias"), "llama-cpp-python")


def _name(model: dict[str, Any], key: str) -> str | None:
    value = number(model, key)
    return next((name for name in CACHE_TYPES if _number(name) == value), None)
