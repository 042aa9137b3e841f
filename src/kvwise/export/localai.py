"""A model of LocalAI with its llama-cpp backend (NAME.yaml in the models folder).

Read off mudler/LocalAI v4.9 core/config/model_config.go and grpc-server.cpp: `on` and `off` must
be quoted; an entry of `options` that starts with a dash goes to llama.cpp's own parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

from kvwise.errors import SourceError
from kvwise.export import Written, _yaml
from kvwise.export.found import Found, flags, number, string, strings, truth
from kvwise.export.settings import Settings, Told, one_line
from kvwise.text import phrase, template

ABOUT = template("a model of LocalAI")
FILE = "MODEL.yaml"
PLACE = template("put {file} into LocalAI's models folder, beside the model's file")

_TYPES = ("f16", "f32", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1")
_OWN = {"--host", "--port", "--alias", "--api-key"}


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is no such YAML, UsageError without a file's path."""
    told = Told(settings)
    launch = settings.launch
    document = _yaml.mapping(old)
    document["name"] = document.get("name") or _yaml.text(settings.name)
    document["backend"] = "llama-cpp"
    parameters = _yaml.table(document, "parameters")
    parameters["model"] = _yaml.text(one_line(settings.file_name, phrase("a YAML line")))
    parameters["batch"] = launch.n_batch
    document["context_size"] = settings.n_ctx
    if not settings.auto:
        document["gpu_layers"] = settings.gpu_layers
    document["flash_attention"] = _yaml.text("on" if settings.flash else "off")
    document["no_kv_offloading"] = not launch.offload_kqv
    document["mmap"] = launch.mmap
    document["mmlock"] = "mlock" in launch.load_mode
    for name, key in (("type_k", "cache_type_k"), ("type_v", "cache_type_v")):
        document[key] = _yaml.text(getattr(launch, name))
        if getattr(launch, name) not in _TYPES:
            told.lacks(name, phrase("LocalAI's manual lists no cache type {type}; it is written "
                                    "all the same", type=getattr(launch, name)))  # fmt: skip
    told.say("model", "n_ctx", "n_gpu_layers", "flash_attn", "type_k", "type_v", "n_batch",
             "n_ubatch", "offload_kqv", "load_mode", "n_seq_max", "kv_unified", "fit")  # fmt: skip
    _placed(told, document)
    _options(told, document)
    return Written(_yaml.dump(document, old), told.left_out(phrase("LocalAI sets this itself")))


def _placed(told: Told, document: MutableMapping[str, Any]) -> None:
    launch = told.settings.launch
    if launch.tensor_split:
        document["tensor_split"] = _yaml.text(",".join(f"{each:g}" for each in launch.tensor_split))
        told.say("tensor_split")
    if launch.main_gpu:
        document["main_gpu"] = _yaml.text(str(launch.main_gpu))
        told.say("main_gpu")
    threads = told.value("--threads")
    if threads is not None:
        document["threads"] = int(threads)


def _options(told: Told, document: MutableMapping[str, Any]) -> None:
    launch = told.settings.launch
    mine = {
        "fit_params": str(launch.fit).lower(),
        "parallel": str(launch.n_seq_max),
        "kv_unified": str(launch.kv_unified).lower(),
        "n_ubatch": str(launch.n_ubatch),
    }
    for each in told.rest():
        if each.option.name not in _OWN and len(each.words) < 2:
            mine[each.flag] = each.words[0] if each.words else ""
            told.say(each.option.name)
    options = document.get("options")
    if options is None:
        options = document["options"] = []
    if not isinstance(options, list):
        raise SourceError("{key} is not a list", key="options")
    for at in reversed(range(len(options))):  # in place: the comments of the others stay
        if _entry_name(options[at]) in mine:
            del options[at]
    options += [_yaml.text(_entry(name, value)) for name, value in mine.items()]


def _entry_name(entry: object) -> str:
    return str(entry).partition(":")[0]


def _entry(name: str, value: str) -> str:
    return one_line(f"{name}:{value}" if value else name, phrase("a YAML line"))


def is_mine(_name: str, text: str) -> bool:
    """YAML with LocalAI's keys."""
    return bool(re.search(r"^(backend|context_size):", text, re.MULTILINE)) and "parameters" in text


def read(text: str) -> list[Found]:
    """The one model. Raises SourceError."""
    document = _yaml.plain(_yaml.mapping(text))
    parameters = document.get("parameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    options = dict(_pair(each) for each in strings(document, "options"))
    batch = number(parameters, "batch", 512)
    mmap, lock = truth(document, "mmap", True), truth(document, "mmlock")
    mode = "mmap+mlock" if mmap and lock else "mlock" if lock else None if mmap else "none"
    slots = number(options, "parallel", 1)
    words = flags(
        ("-m", string(parameters, "model")),
        ("-c", number(document, "context_size", 8192)),
        ("-ngl", number(document, "gpu_layers")),
        ("-fa", string(document, "flash_attention") or None),
        ("-ctk", string(document, "cache_type_k")),
        ("-ctv", string(document, "cache_type_v")),
        ("-b", batch),
        ("-ub", number(options, "n_ubatch", batch)),
        ("-np", slots),
        ("-kvu", truth(options, "kv_unified", True)),
        ("-nkvo", truth(document, "no_kv_offloading")),
        ("-lm", mode),
        ("-ts", string(document, "tensor_split")),
        ("--swa-full", truth(options, "swa_full")),
        ("-ncmoe", number(options, "n_cpu_moe")),
        ("-fit", "on" if truth(options, "fit_params", True) else "off"),
    )
    for name, value in options.items():
        if name.startswith("--"):
            words += (name, value) if value else (name,)
    return [Found(words, string(document, "name"), "localai")]


def _pair(entry: str) -> tuple[str, str]:
    name, _, value = entry.partition(":")
    return name, value
