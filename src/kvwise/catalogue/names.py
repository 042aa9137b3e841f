"""Which GPU a name means: one, several to choose from, or none.

A product that its maker sells with different memory under one name (RTX 5060 Ti, A100, Apple M4)
is never decided here: the name is asked back, unless a size is given or the rows are the same to
a planner.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

from kvwise.catalogue.gpus import Gpu, gpus
from kvwise.errors import Ambiguous, UsageError
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
_SERIES = {"rtx", "gtx", "gt", "series", "serie"}  # of a series' name these say nothing
_MAKERS = {"rx": "AMD", "radeon": "AMD", "amd": "AMD", "nvidia": "NVIDIA", "geforce": "NVIDIA",
           "rtx": "NVIDIA", "gtx": "NVIDIA", "intel": "Intel", "apple": "Apple"}  # fmt: skip


@cache
def _words(text: str) -> tuple[str, ...]:
    text = unicodedata.normalize("NFKC", text[:200].translate(_MARKS)).lower()
    for pattern, instead in _SHORT:
        text = pattern.sub(instead, text)
    words = _WORD.findall(text)
    return tuple(_WAY.get(word, word) for word in words if word not in _NOISE)


@cache
def _by_words() -> dict[tuple[str, ...], tuple[Gpu, ...]]:
    index: dict[tuple[str, ...], tuple[Gpu, ...]] = {}
    for gpu in gpus():
        for words in {_words(name) for name in _names(gpu)}:
            index[words] = (*index.get(words, ()), gpu)
    return index


def _names(gpu: Gpu) -> tuple[str, ...]:
    """All names of a GPU; the maker's of a modified card means the card as it was made, and a
    driver's of one word (Intel's Arc) a whole family."""
    own = (gpu.name, *gpu.aliases)
    return own if gpu.modified or len(_words(gpu.driver_name)) < 2 else (*own, gpu.driver_name)


def named(text: str) -> tuple[Gpu, ...]:
    """The rows that bear this name, spaces, case and vendor words aside, the smallest first."""
    plain = text.strip().lower()
    for gpu in gpus():
        if plain == gpu.name.lower():
            return (gpu,)
    found = _by_words().get(_words(text), ()) if _words(text) else ()
    return tuple(sorted(found, key=lambda gpu: gpu.memory_mib_nominal))


def exactly(text: str) -> Gpu | None:
    """The one GPU whose name this is; None if it is nobody's or that of several."""
    return _one(named(text))


def of_size(text: str, total_bytes: int) -> Gpu | None:
    """The GPU that bears this name and has this memory, as sold or as a driver counts it."""
    return _one([gpu for gpu in named(text) if _about(gpu, total_bytes)])


def of_driver(name: str, total_bytes: int) -> Gpu | None:
    """The GPU that a driver calls so; of namesakes with more and less memory the smallest that
    has the total."""
    plain = _DRIVERS_OWN.sub("", name).strip().lower()
    alike = [gpu for gpu in gpus() if plain in (gpu.driver_name.lower(), gpu.name.lower())]
    alike = alike or list(named(plain))
    alike.sort(key=lambda gpu: gpu.memory_mib_nominal)
    enough = (gpu for gpu in alike if gpu.memory_mib_nominal * 1.02 * MIB >= total_bytes)
    return next(enough, alike[-1]) if alike else None


def find(text: str) -> Gpu:
    """The one GPU that `text` can mean.

    Raises Ambiguous with the candidates when it can mean several, and UsageError with near names
    when it means none.
    """
    found = named(text)
    if not found and not _JOINED.search(text):
        found = tuple(_found(text))
    one = _one(found)
    if one is not None:
        return one
    if not found:
        raise _unknown(text)
    raise Ambiguous(
        "{asked!r} can mean {count} GPUs", asked=text[:80],
        candidates=tuple(gpu.called for gpu in found),
    )  # fmt: skip


def _found(text: str) -> list[Gpu]:
    """Rows that have all words that were asked for, else those of the series that was."""
    asked = set(_words(text))
    makers = {_MAKERS[word] for word in _WORD.findall(text.lower()) if word in _MAKERS}
    known = [gpu for gpu in gpus() if not makers or gpu.vendor in makers]
    found = [gpu for gpu in known if asked and _means(asked, gpu)]
    if len(found) == 1 and _another(asked, found[0]):
        return []
    series = _of_series(asked, known)
    if series and all(word.isdigit() and len(word) < 3 for word in asked - _SERIES):
        return series  # a bare 30 is in names of other cards too
    return found or _of_that_size(asked, known) or series


def _of_series(asked: set[str], known: Iterable[Gpu]) -> list[Gpu]:
    """The family that is meant by `RTX 30`, `RX 6000 series`, `GeForce 40`."""
    asked = asked - _SERIES
    return [
        gpu
        for gpu in known
        if asked and asked == set(_words(gpu.family)) - _SERIES and not gpu.modified
    ]


def _one(found: Sequence[Gpu]) -> Gpu | None:
    """The only one, or the first of rows of one product that no plan can tell apart."""
    if len(found) > 1:
        shared = set.intersection(*({_words(name) for name in _names(gpu)} for gpu in found))
        if not shared or len({_figures(gpu) for gpu in found}) > 1:
            return None
    return found[0] if found else None


def _figures(gpu: Gpu) -> tuple[object, ...]:
    """What a plan can tell apart: the maker's memory and speed."""
    return gpu.vendor, gpu.memory_mib_nominal, gpu.bandwidth_gb_s, gpu.sm_count, gpu.unified


def _about(gpu: Gpu, total_bytes: int) -> bool:
    """Drivers show up to 6 % less than what is on the box."""
    sold = gpu.memory_mib_nominal * MIB
    return sold * 0.94 <= total_bytes <= sold * 1.005


def _another(asked: set[str], gpu: Gpu) -> bool:
    """Whether every name of the GPU has a word that was not asked for and makes it another card:
    a GTX TITAN is no GTX TITAN X."""
    names = [set(_words(name)) for name in _names(gpu)]
    meant = [name for name in names if asked <= name]
    return bool(meant) and all((name - asked) & _MODELS for name in meant)


def _means(asked: set[str], gpu: Gpu) -> bool:
    return any(asked <= set(_words(name)) for name in _names(gpu))


def _of_that_size(asked: set[str], known: Iterable[Gpu]) -> list[Gpu]:
    """GPUs named with a size that their name leaves out: `RX 480 8GB`."""
    sizes = {word for word in asked if _MEMORY.fullmatch(word)}
    rest = asked - sizes
    if len(sizes) != 1 or not rest:
        return []
    size = int(sizes.pop()[:-2]) * 1024
    fitting = [gpu for gpu in known if gpu.memory_mib_nominal == size and _means(rest, gpu)]
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
