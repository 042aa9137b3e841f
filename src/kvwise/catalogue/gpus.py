"""The GPUs we know, and which one a name means.

Data: data/gpus.json, from vendor sheets and public logs.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kvwise.errors import UsageError
from kvwise.units import MIB

_WORD = re.compile(r"\d+gb(?![a-z])|[a-z]+|\d+|[^\W\d_]+")
# words that vendors print and people leave out
_NOISE = {"nvidia", "geforce", "amd", "radeon", "intel", "r", "tm", "apple", "graphics", "gpu",
          "generation", "tesla", "qualcomm", "vram", "graphic", "card", "rx", "memory"}  # fmt: skip
_WAY = {"mobile": "laptop", "notebook": "laptop"}
_MARKS = dict.fromkeys(map(ord, "™®©"), " ")
_MODELS = {"x", "xp", "z", "v", "d", "ti", "super", "xt", "xtx", "gre", "laptop", "maxq"}
"""Words that make another card of a name: nobody leaves them out."""
_SHORT = (
    (re.compile(r"笔记本|笔电|移动[版端]?|筆記型|筆電|行動版"), " laptop "),
    (re.compile(r"昇腾|昇騰"), " ascend "),
    (re.compile(r"[\u3000-\u9fff\uac00-\ud7af]+"), " "),  # makers, "card", "modified"
    (
        re.compile(
            r"(?:(?<![a-z\d])|(?<=ti)|(?<=super)|(?<=xt)|(?<=xtx))(\d{1,3})\s?g(?:i?b|ig)?(?![a-z\d])"
        ),
        r" \1gb ",
    ),
    (re.compile(r"ti\s?super"), "ti super"),
    (re.compile(r"\bmac\s?book\s?(air|pro|neo)?\b|\bmac\s?(studio|mini|pro)\b|\bimac\b"), " "),
    (re.compile(r"ti\s?s\b"), "ti super"),  # 4070 TiS
    (re.compile(r"(?<!\d)(16[56]0|20[678]0|40[78]0)\s?s\b"), r"\1 super"),  # 4070S
    (re.compile(r"(\d{4})\s?m\b"), r"\1 laptop"),  # 4060M, RX 6600M
    (re.compile(r"max\s?-?\s?q( design)?"), "maxq"),
)
_MEMORY = re.compile(r"(\d{1,3})gb")
_DRIVERS_OWN = re.compile(r"\s*\((RADV|AMD open-source driver|NVK|ANV)[^()]*\)$", re.IGNORECASE)
_COUNT = re.compile(r"\d{1,2}\s?[x*]\s+\S|\b\d{1,2}[x*](?=[a-z]*\d{3})|\S\s*[x*]\s?\d{1,2}$")
_JOINED = re.compile(r"\d[^+,&;]*?(?:[+,&;]| and |和|与)[^+,&;]*?\d")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One row of the catalogue. MiB and GB/s as printed; `reported` is what drivers and engines
    said, by `os_backend`. For unified memory `memory_mib_nominal` is the machine's RAM."""

    name: str
    vendor: str
    family: str
    driver_name: str
    memory_mib_nominal: int
    backends: tuple[str, ...]
    source: str
    aliases: tuple[str, ...] = ()
    reported: dict[str, int] = field(default_factory=dict)
    bandwidth_gb_s: float | None = None
    compute_capability: str | None = None
    gfx: str | None = None
    xe: str | None = None
    arch: str = ""
    sm_count: int | None = None
    fp16_tflops_dense: float | None = None
    fp16_kind: str | None = None
    tensor_cores: bool = False
    unified: bool = False
    pcie: str | None = None
    note: str = ""


@cache
def gpus() -> tuple[Gpu, ...]:
    """The whole catalogue."""
    text = (Path(__file__).parent.parent / "data" / "gpus.json").read_text(encoding="utf-8")
    return tuple(_gpu(row) for row in json.loads(text))


def _gpu(row: dict[str, Any]) -> Gpu:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Gpu(**values)


@cache
def _words(text: str) -> tuple[str, ...]:
    text = unicodedata.normalize("NFKC", text[:200].translate(_MARKS)).lower()
    for pattern, instead in _SHORT:
        text = pattern.sub(instead, text)
    words = _WORD.findall(text)
    return tuple(_WAY.get(word, word) for word in words if word not in _NOISE)


@cache
def _by_words() -> dict[tuple[str, ...], list[Gpu]]:
    index: dict[tuple[str, ...], list[Gpu]] = {}
    for gpu in gpus():
        names = {gpu.name, *gpu.aliases}
        for words in {_words(name) for name in names}:
            index.setdefault(words, []).append(gpu)
    return index


def exactly(text: str) -> Gpu | None:
    """The GPU whose name or alias this is, spaces, case and vendor words aside."""
    plain = text.strip().lower()
    for gpu in gpus():
        if plain == gpu.name.lower() or plain in (alias.lower() for alias in gpu.aliases):
            return gpu
    found = _by_words().get(_words(text), []) if _words(text) else []
    return found[0] if len(found) == 1 else None


def of_driver(name: str, total_bytes: int) -> Gpu | None:
    """The GPU that a driver calls so; of namesakes with more and less memory the smallest that
    has the total."""
    plain = _DRIVERS_OWN.sub("", name).strip().lower()
    alike = [gpu for gpu in gpus() if plain in (gpu.driver_name.lower(), gpu.name.lower())]
    if len(alike) < 2:
        return alike[0] if alike else exactly(plain)
    alike.sort(key=lambda gpu: gpu.memory_mib_nominal)
    enough = (gpu for gpu in alike if gpu.memory_mib_nominal * 1.02 * MIB >= total_bytes)
    return next(enough, alike[-1])


def find(text: str) -> Gpu:
    """The one GPU that `text` can mean.

    Raises UsageError with the candidates when it can mean several, and with near names when it
    means none.
    """
    gpu = exactly(text)
    if gpu is not None:
        return gpu
    asked = set(_words(text))
    found = [gpu for gpu in gpus() if asked and _means(asked, gpu)]
    if not found:
        found = _of_that_size(asked)
    if len(found) == 1 and not _another(asked, found[0]) and not _JOINED.search(text):
        return found[0]
    if len(found) < 2 or _JOINED.search(text):
        raise _unknown(text)
    raise UsageError(
        "{text!r} can mean {count} GPUs",
        text=text[:80], count=len(found), names=_listed([gpu.name for gpu in found]),
        hint="one of {names}",
    )  # fmt: skip


def of_other_size(gpu: Gpu, asked: str) -> list[int]:
    """MiB of the cards and machines that bear the GPU's name with more or less memory, when what
    was asked for says no size; cards that were modified apart."""
    if any(_MEMORY.fullmatch(word) for word in _words(asked)):
        return []
    sizes = {
        other.memory_mib_nominal
        for other in gpus()
        if other.driver_name == gpu.driver_name and "(modified)" not in other.name
    }
    return sorted(sizes - {gpu.memory_mib_nominal})


def _another(asked: set[str], gpu: Gpu) -> bool:
    """Whether every name of the GPU has a word that was not asked for and makes it another card:
    a GTX TITAN is no GTX TITAN X."""
    names = [set(_words(name)) for name in (gpu.name, *gpu.aliases)]
    meant = [name for name in names if asked <= name]
    return bool(meant) and all((name - asked) & _MODELS for name in meant)


def _means(asked: set[str], gpu: Gpu) -> bool:
    return any(asked <= set(_words(name)) for name in (gpu.name, *gpu.aliases))


def _of_that_size(asked: set[str]) -> list[Gpu]:
    """GPUs named with a size that their name leaves out: `RX 480 8GB`."""
    sizes = {word for word in asked if _MEMORY.fullmatch(word)}
    rest = asked - sizes
    if len(sizes) != 1 or not rest:
        return []
    size = int(sizes.pop()[:-2]) * 1024
    fitting = [gpu for gpu in gpus() if gpu.memory_mib_nominal == size and _means(rest, gpu)]
    called = [gpu for gpu in fitting if not _another(rest, gpu)]
    return called if len(called) == 1 else fitting


def _unknown(text: str) -> UsageError:
    if _COUNT.search(text.lower().replace("×", "x")) or _JOINED.search(text):
        return UsageError(
            "{text!r} is no single GPU", text=text[:80], hint="give --gpu once for each card"
        )
    near = _near(text)
    if near:
        return UsageError(
            "no GPU called {text!r} in the catalogue", text=text[:80], names=_listed(near),
            hint="did you mean {names}?",
        )  # fmt: skip
    return UsageError(
        "no GPU called {text!r} in the catalogue", text=text[:80],
        hint="give its size instead, like 8GiB",
    )  # fmt: skip


def _near(text: str) -> list[str]:
    """Names that share the longest number with what was typed, else names spelt alike."""
    numbers = sorted((word for word in _words(text[:80]) if len(word) > 2 and word.isdigit()),
                     key=len, reverse=True)  # fmt: skip
    for number in numbers:
        found = [gpu.name for gpu in gpus() if number in _words(gpu.name)]
        if found and "maxq" in _words(text[:80]):  # newer ones are called Laptop GPU
            found.sort(key=lambda name: "Laptop" not in name)
        if found:
            return found
    import difflib  # noqa: PLC0415  (only a typing error pays for it)

    names = {alias.lower(): alias for gpu in gpus() for alias in gpu.aliases}
    near = difflib.get_close_matches(text.lower()[:80], names, n=3, cutoff=0.6)
    return [names[each] for each in near]


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} ..."
