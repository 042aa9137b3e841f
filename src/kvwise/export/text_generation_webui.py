"""A model's load settings in text-generation-webui (config-user.yaml).

Read off oobabooga/text-generation-webui v4.7.3 modules/models_settings.py and
llama_cpp_server.py: top keys are regular expressions on the lower-cased file name, and its own
*Save settings* writes the name plus `$`, so that a later save replaces what stands here; it always
sends `--flash-attn on`; what it has no key for goes through `extra_flags`, which win.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Mapping
from typing import Any

from kvwise.errors import SourceError
from kvwise.export import Written, _yaml
from kvwise.export._kept import kept
from kvwise.export._words import posix_split
from kvwise.export.found import Found, flags, number, string, truth
from kvwise.export.settings import LeftOut, Settings, Told, one_line
from kvwise.text import Phrase, phrase, template

ABOUT = template("load settings of text-generation-webui")
FILE = "config-user.yaml"
PLACE = template("user_data/models/config-user.yaml of text-generation-webui; read when it starts")

TYPES = {"f16": "fp16", "q8_0": "q8_0", "q4_0": "q4_0"}
_OWN = {"--host", "--port", "--alias", "--api-key"}
_BATCH = 1024


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is no such YAML, UsageError without a file's path."""
    document = _yaml.mapping(old)
    name = one_line(settings.file_name, phrase("config-user.yaml"))
    model = _yaml.table(document, _yaml.text(key_of(name)))
    pairs, left = keys(settings)
    model.pop("n_gpu_layers", None)
    before = string(model, "extra_flags").strip()
    old_flags = posix_split(before) if before.startswith("-") else []
    flags_kept = [word for words in kept(old_flags, settings) for word in words]
    if flags_kept:
        pairs["extra_flags"] = f"{pairs.get('extra_flags', '')} {shlex.join(flags_kept)}".strip()
    elif "extra_flags" not in pairs and before:
        model["extra_flags"] = ""
    for key, value in pairs.items():
        model[key] = _yaml.text(value) if isinstance(value, str) else value
    return Written(_yaml.dump(document, old), left, values=pairs)


def key_of(name: str) -> str:
    """The key that matches this file: as the UI would write it, unless that does not match.

    >>> key_of("a+b.gguf")
    'a\\\\+b\\\\.gguf$'
    """
    plain = f"{name}$"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of "[[", which is no set yet
            matches = re.match(plain.lower(), name.lower())
    except re.error:
        matches = None
    return plain if matches else f"{re.escape(name)}$"


def keys(settings: Settings) -> tuple[dict[str, Any], tuple[LeftOut, ...]]:
    """(the keys of the UI's llama.cpp loader, what it cannot be told)."""
    told = Told(settings)
    launch = settings.launch
    pairs: dict[str, Any] = {
        "loader": "llama.cpp",
        "gpu_layers": -1 if settings.auto else settings.gpu_layers,
        "ctx_size": settings.n_ctx,
        "cache_type": TYPES.get(launch.type_k, "fp16"),
        "batch_size": launch.n_batch,
        "ubatch_size": launch.n_ubatch,
        "parallel": launch.n_seq_max,
        "no_mmap": not launch.mmap,
        "mlock": "mlock" in launch.load_mode,
        "cpu_moe": _all_experts(settings),
        "no_kv_offload": not launch.offload_kqv,
    }
    told.say("model", "n_gpu_layers", "n_ctx", "n_batch", "n_ubatch", "n_seq_max", "offload_kqv",
             "fit")  # fmt: skip
    if _all_experts(settings):
        told.say("n_cpu_moe")
    if launch.load_mode != "dio":
        told.say("load_mode")
    if launch.tensor_split:
        pairs["tensor_split"] = ",".join(f"{part:g}" for part in launch.tensor_split)
        told.say("tensor_split")
    if launch.split_mode != "layer":
        pairs["split_mode"] = launch.split_mode
        told.say("split_mode")
    threads = told.value("--threads")
    if threads is not None:
        pairs["threads"] = int(threads)
    extra = _extra(told, settings)
    if extra:
        pairs["extra_flags"] = shlex.join(extra)
    return pairs, told.left_out(phrase("text-generation-webui sets this itself"))


def _all_experts(settings: Settings) -> bool:
    """Whether the UI's own switch says it; before tensors of -ot it would go first."""
    return settings.launch.n_cpu_moe > settings.layers and not settings.launch.override_tensor


def _extra(told: Told, settings: Settings) -> list[str]:
    """Flags for which the UI has no key; later ones win over what it sends before."""
    launch = settings.launch
    words: list[str] = []
    if launch.type_k not in TYPES or launch.type_k != launch.type_v:
        words += ["--cache-type-k", launch.type_k, "--cache-type-v", launch.type_v]
    if launch.flash_attn == "off":
        words += ["--flash-attn", "off"]
    elif launch.flash_attn == "auto" and not settings.flash:
        words += ["--flash-attn", "auto"]
    if launch.kv_unified and launch.n_seq_max > 1:
        words.append("--kv-unified")
    told.say("type_k", "type_v", "flash_attn", "kv_unified")
    for each in told.rest():
        if each.option.name not in _OWN:
            words += [one_line(word, phrase("config-user.yaml")) for word in each.typed]
            told.say(each.option.name)
    return words


def is_mine(name: str, text: str) -> bool:
    """YAML with the UI's loader in it."""
    return name == FILE or bool(re.search(r"^\s+loader:\s*llama", text, re.MULTILINE))


def read(text: str) -> list[Found]:
    """One per model with the llama.cpp loader. Raises SourceError."""
    document = _yaml.plain(_yaml.mapping(text))
    found = [_model(name, each) for name, each in document.items()
             if isinstance(each, Mapping) and _is_llama(each)]  # fmt: skip
    if not found:
        raise SourceError("no model here is loaded by llama.cpp")
    return found


def _is_llama(model: Mapping[str, Any]) -> bool:
    return str(model.get("loader", "llama.cpp")).lower().startswith("llama")


def _model(name: str, model: Mapping[str, Any]) -> Found:
    layers = number(model, "gpu_layers", number(model, "n_gpu_layers", -1))
    context = number(model, "ctx_size", number(model, "n_ctx", 0)) or 0
    fixed = layers is not None and layers >= 0
    cache = string(model, "cache_type", "fp16")
    known = cache if cache in ("q8_0", "q4_0") else None
    mmap, lock = not truth(model, "no_mmap"), truth(model, "mlock")
    mode = "mmap+mlock" if mmap and lock else "mlock" if lock else None if mmap else "none"
    words = flags(
        ("-c", context or (8192 if fixed else 0)),
        ("-b", number(model, "batch_size", _BATCH)), ("-ub", number(model, "ubatch_size", _BATCH)),
        ("-np", number(model, "parallel", 1)), ("-fa", "on"), ("-ctk", known), ("-ctv", known),
        ("-ngl", layers if fixed else None), ("-fit", "off" if fixed else "on"),
        ("-cmoe", truth(model, "cpu_moe")), ("-nkvo", truth(model, "no_kv_offload")),
        ("-lm", mode), ("-ts", string(model, "tensor_split")),
        ("-sm", string(model, "split_mode")), ("--swa-full", truth(model, "streaming_llm")),
        ("--threads", _above_zero(number(model, "threads", 0))),
    )  # fmt: skip
    extra = string(model, "extra_flags").strip()
    unread: tuple[Phrase, ...] = ()
    if extra.startswith("-"):
        words += tuple(posix_split(extra))
    elif extra:
        unread = (phrase("what {key} says is not read", key="extra_flags"),)
    model_name = re.sub(r"\\(.)", r"\1", name.removesuffix("$"))
    return Found(words, model_name, "text-generation-webui", unread=unread)


def _above_zero(count: int | None) -> int | None:
    return count if count and count > 0 else None
