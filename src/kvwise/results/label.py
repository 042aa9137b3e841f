"""Short names for settings: what all have in common is not said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvwise.results.record import Measurement, canonical
from kvwise.text import Phrase, phrase

_FLAGS = {
    "n_ctx": "-c", "n_batch": "-b", "n_ubatch": "-ub", "n_seq_max": "-np", "flash_attn": "-fa",
    "n_gpu_layers": "-ngl", "split_mode": "-sm", "main_gpu": "-mg", "n_cpu_moe": "-ncmoe",
    "n_threads": "-t", "threads": "-t", "n_threads_batch": "-tb", "threads_batch": "-tb",
    "draft_n_max": "--spec-draft-n-max", "spec_types": "--spec-type", "load_mode": "-lm",
    "poll": "--poll", "model_draft": "-md",
}  # fmt: skip
_SWITCHES = {"offload_kqv": "-nkvo", "repack": "--no-repack", "op_offload": "--no-op-offload"}
"""Fields that are a flag when they are off."""
_UNSET = {"n_gpu_layers": -1, "draft_gpu_layers": -1}
"""Values that nobody sets: llama.cpp chooses."""
_TYPES = ("type_k", "type_v")


def types_of(settings: Mapping[str, Any]) -> str:
    """`q8_0/f16` (K/V); empty where no types were set."""
    types = [str(settings[name]) for name in _TYPES if settings.get(name)]
    return "/".join(types)


def labels(found: Sequence[Measurement]) -> list[str]:
    """One per measurement: cache types, and whatever else of the settings, the test's depth among
    it, differs between them. Types that all share are said only where nothing else is."""
    names = sorted(
        {name for each in found for name in each.settings} - {*_TYPES, *_SPECULATION, *_FOLLOWS}
    )
    varying = [name for name in names if _differs(found, name)]
    depths = any(each.test.get("depth") for each in found)
    others = [_words(each, varying, depths=depths) for each in found]
    types = [types_of(each.settings) for each in found]
    shared = len(set(types)) == 1 and all(others)
    return [
        " ".join(words if shared or not pair else [pair, *words]) or "-"
        for pair, words in zip(types, others, strict=True)
    ]


def _differs(found: Sequence[Measurement], name: str) -> bool:
    """Among all that have it, or that one of a kind has it and another has not."""
    said = {canonical(each.settings[name]) for each in found if name in each.settings}
    has = {(each.kind, name in each.settings) for each in found}
    return len(said) > 1 or any((kind, not there) in has for kind, there in has)


_SPECULATION = ("spec_types", "draft_n_max", "model_draft")
_FOLLOWS = ("fit", "n_outputs_max", "embeddings")
"""What the other settings and the kind of measurement bring about."""


def _words(found: Measurement, varying: Sequence[str], *, depths: bool) -> list[str]:
    words = [_speculation(found)]
    twice = {"threads"} if "extra" in varying and says_threads(found.settings) else set()
    words += [
        _word(name, found.settings.get(name))
        for name in varying
        if name not in twice
        and (name != "n_ctx" or "depth" not in found.test)  # it follows from prompt and depth
    ]
    if depths and "depth" in found.test:
        words.append(f"@{found.test['depth']}")
    return [word for word in words if word]


def _speculation(found: Measurement) -> str:
    """`plain`, `draft-simple/4`: what the measurement calls it, else the kind and its depth."""
    variant = found.test.get("variant")
    if isinstance(variant, str):
        return variant
    kinds = found.settings.get("spec_types")
    if not kinds:
        return "plain" if found.kind == "speculation" else ""
    named = ",".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds)
    depth = found.settings.get("draft_n_max")
    return f"{named}/{depth}" if depth else named


def _word(name: str, value: Any) -> str:
    if name in _SWITCHES:
        return _SWITCHES[name] if value is False else ""
    if value is None or value in ("", []) or value == _UNSET.get(name):
        return ""
    if name == "extra" and isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if isinstance(value, bool):
        return f"{name}={str(value).lower()}"
    return f"{_FLAGS[name]} {value}" if name in _FLAGS else f"{name}={value}"


def says_threads(settings: Mapping[str, Any]) -> bool:
    """Whether `-t` stands among the flags that were given: what was used is no news then."""
    extra = settings.get("extra")
    words = extra if isinstance(extra, list) else []
    return any(word in ("-t", "--threads") for word in words)


def task_of(found: Measurement) -> Phrase:
    """What was measured and of how many tokens: `generating, 128 tokens`."""
    counts = [found.test.get(name) for name in ("n_prompt", "n_gen")]
    known = [count for count in counts if isinstance(count, int) and count > 0]
    if len(known) != 1:
        return metric_of(found)
    return phrase("{what}, {count} tokens", what=metric_of(found), count=f"{known[0]:,}")


def metric_of(found: Measurement) -> Phrase:
    """What was measured, for people."""
    known = {
        "decode": phrase("generating"),
        "prompt": phrase("reading a prompt"),
        "fidelity": phrase("fidelity"),
        "speculation": phrase("speculation"),
        "embedding": phrase("embedding"),
        "speed": phrase("speed"),
        "tune": phrase("tuning"),
    }
    metric = str(found.test.get("metric", ""))
    return known.get(metric) or known[found.kind]
