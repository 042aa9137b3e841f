"""A KoboldCpp settings file (.kcpps): a flat JSON of argument names.

Read off koboldcpp.py and gpttype_adapter.cpp as of 1.115: it allocates contextsize + 128 cells,
always in one cache for all slots; one batchsize serves both batches; `quantkv` is K and V.
"""

from __future__ import annotations

from typing import Any

from kvwise.export import Written, _json
from kvwise.export.found import Found, flags, number, string, truth
from kvwise.export.settings import Settings, Told
from kvwise.options.kinds import ALL_LAYERS
from kvwise.text import Phrase, phrase, template

ABOUT = template("a settings file of KoboldCpp")
FILE = "MODEL.kcpps"
PLACE = template("start `koboldcpp --config {file}`")

BATCHES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
TYPES = ("f16", "bf16", "q8_0", "q5_1", "q4_0")
_OLD_TYPES = {"0": "f16", "1": "q8_0", "2": "q4_0", "3": "bf16"}
_MORE_CELLS = 128
_LEAST, _MOST = 256, 262144
_BACKENDS = ("usecuda", "usecublas", "usevulkan", "usehipblas", "usecpu", "device")


def write(settings: Settings, old: str | None) -> Written:
    """Raises SourceError for a file that is no JSON object, UsageError without a file's path."""
    told = Told(settings)
    launch = settings.launch
    document = _json.load(old) if old and old.strip() else {}
    notes: list[Phrase] = []
    told.say("model", "n_ctx", "n_gpu_layers", "fit", "n_seq_max", "flash_attn", "offload_kqv",
             "swa_full")  # fmt: skip
    context = min(max(settings.n_ctx - _MORE_CELLS, _LEAST), _MOST)
    document |= {
        "model_param": settings.file,
        "contextsize": context,
        "gpulayers": -1 if settings.auto else settings.gpu_layers,
        "autofit": settings.auto,
        "batchsize": max([each for each in BATCHES if each <= launch.n_ubatch] or BATCHES[:1]),
        "noflashattention": not settings.flash,
        "quantkv": _cache(told),
        "lowvram": not launch.offload_kqv,
        "noswa": launch.swa_full,
        "usemmap": launch.mmap,
        "usemlock": "mlock" in launch.load_mode,
        "parallelrequests": launch.n_seq_max,
    }
    notes.append(phrase("contextsize {size:,}: KoboldCpp adds 128 cells of its own", size=context))
    told.say("load_mode")
    _placed(told, document)
    _batches(told, document["batchsize"])
    if launch.n_seq_max > 1 and not launch.kv_unified:
        told.lacks("kv_unified", phrase("KoboldCpp's slots always share one cache"))
    told.say("kv_unified")
    threads = told.value("--threads")
    if threads is not None:
        document["threads"] = int(threads)
    _backend(settings, document, new=not old)
    return Written(_json.dump(document, old), told.left_out(phrase("KoboldCpp has no key for it")),
                   tuple(notes))  # fmt: skip


def _cache(told: Told) -> str:
    """The one type of K and V: the smaller where they differ, so that it fits."""
    launch = told.settings.launch
    k, v = launch.type_k, launch.type_v
    if k == v and k in TYPES and (told.settings.flash or k == "f16"):
        told.say("type_k", "type_v")
        return k
    if told.settings.flash:
        known = [each for each in (k, v) if each in TYPES]
        written = min(known, key=_width) if known else "q8_0"
    else:
        written = k if k in TYPES else "f16"
    for name, value in (("type_k", k), ("type_v", v)):
        if value == written if told.settings.flash or name == "type_k" else value == "f16":
            told.say(name)
        elif not told.settings.flash and name == "type_v":
            told.lacks(name, phrase("without flash attention quantkv is K's type alone"))
        else:
            told.lacks(name, phrase("quantkv is one type for K and V out of {types}; {type} is "
                                    "written", types=", ".join(TYPES), type=written))  # fmt: skip
    return written


def _width(type_name: str) -> int:
    return {"q4_0": 4, "q5_1": 5, "q8_0": 8}.get(type_name, 16)


def _placed(told: Told, document: dict[str, Any]) -> None:
    launch = told.settings.launch
    if launch.n_cpu_moe or "moecpu" in document:
        document["moecpu"] = min(launch.n_cpu_moe, 999)
        told.say("n_cpu_moe")
    if launch.override_tensor:
        pairs = [f"{pattern}={buffer}" for pattern, buffer in launch.override_tensor]
        document["overridetensors"] = ",".join(pairs)
        told.say("override_tensor")
    if launch.tensor_split:
        document["tensor_split"] = list(launch.tensor_split)
        told.say("tensor_split")
    if launch.split_mode in ("layer", "row", "tensor"):
        told.say("split_mode")
        if launch.split_mode != "layer":
            document["splitmode"] = launch.split_mode
    if launch.model_draft and not launch.model_draft.startswith("hf:"):
        document |= {"draftmodel": launch.model_draft, "draftamount": launch.draft_n_max}
        told.say("model_draft", "draft_n_max", "spec_types")
    if launch.mmproj:
        document["mmproj"] = launch.mmproj
        told.say("mmproj")


def _batches(told: Told, written: int) -> None:
    launch = told.settings.launch
    why = phrase("batchsize is one value for -b and -ub; {size} is written", size=written)
    for name in ("n_batch", "n_ubatch"):
        if getattr(launch, name) == written:
            told.say(name)
        else:
            told.lacks(name, why)


def _backend(settings: Settings, document: dict[str, Any], *, new: bool) -> None:
    if not new and any(key in document for key in _BACKENDS):
        return
    kinds = settings.gpu_kinds
    if not kinds:
        document["usecpu"] = True
    elif "vulkan" in kinds:
        document["usevulkan"] = []
    elif "metal" not in kinds:
        document["usecuda"] = ["all"] if len(kinds) > 1 else ["0"]


def is_mine(name: str, text: str) -> bool:
    """A .kcpps, or JSON with KoboldCpp's keys."""
    return name.lower().endswith((".kcpps", ".kcppt")) or '"contextsize"' in text


def read(text: str) -> list[Found]:
    """What KoboldCpp would allocate, as llama-server's flags. Raises SourceError."""
    return [found_of(_json.load(text))]


def found_of(values: dict[str, Any]) -> Found:
    """The same for arguments by name. Raises SourceError."""
    context = (number(values, "contextsize", 16384) or 16384) + _MORE_CELLS
    batch = number(values, "batchsize", number(values, "blasbatchsize", 512)) or 512
    layers = number(values, "gpulayers", -1)
    flash = not truth(values, "noflashattention", not truth(values, "flashattention", True))
    quant = string(values, "quantkv", "f16").lower()
    quant = _OLD_TYPES.get(quant, quant)
    slots = max(1, number(values, "parallelrequests", 1) or 1)
    mmap, lock = truth(values, "usemmap"), truth(values, "usemlock")
    mode = "mmap+mlock" if mmap and lock else "mlock" if lock else None if mmap else "none"
    split = values.get("tensor_split")
    experts = number(values, "moecpu", 0)
    words = flags(
        ("-m", string(values, "model_param") or string(values, "model")),
        ("-c", -(-context // 256) * 256), ("-np", slots), ("-kvu", slots > 1),
        ("-b", max(batch, 1)), ("-ub", max(batch, 1)), ("-fa", "on" if flash else "off"),
        ("-ctk", quant), ("-ctv", quant if flash else "f16"),
        ("-ngl", layers if layers is not None and layers >= 0 else None),
        ("-nkvo", truth(values, "lowvram")), ("--swa-full", truth(values, "noswa")),
        ("-lm", mode), ("-ot", string(values, "overridetensors")),
        ("-ncmoe", min(experts, ALL_LAYERS) if experts and experts > 0 else None),
        ("-ts", ",".join(map(str, split)) if isinstance(split, list) and split else None),
        ("-sm", string(values, "splitmode")), ("-md", string(values, "draftmodel")),
        ("--mmproj", string(values, "mmproj")), ("--threads", number(values, "threads")),
        ("-fit", "on" if layers == -1 else "off"),
    )  # fmt: skip
    return Found(words, "", "koboldcpp")
