"""Kinds of option values: how the engine reads the text, and how the value is written back.

Each kind mirrors the handler in llama.cpp's common/arg.cpp or tools/llama-bench/llama-bench.cpp
(b10605), but is strict where std::stoi would stop at the first odd character.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvwise.errors import UsageError
from kvwise.gguf.types import CACHE_TYPES
from kvwise.units import parse_count

INT_MAX = 2**31 - 1
MAX_LAYERS = 512  # LLAMA_MAX_LAYERS, src/llama-hparams.h
ALL_LAYERS = 1_000_000  # -cmoe: above the layer count of any model
MAX_DEVICES = 16  # llama_max_devices, src/llama.cpp

BENCH_CACHE_TYPES = tuple(each for each in CACHE_TYPES if each != "f32")

SPEC_TYPES_LEGAL = (
    "none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark",
    "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
)  # fmt: skip

_TRUE = ("on", "enabled", "true", "1")
_FALSE = ("off", "disabled", "false", "0")
_AUTO = ("auto", "-1")
_FLOAT_MIN, _FLOAT_MAX = 1.2e-38, 3.4e38  # std::stof refuses what a float cannot hold
_INT = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kind:
    """`read` text -> value (raises UsageError), `write` value -> text, `takes` how many words."""

    name: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    takes: int = 1


def truth(text: str) -> bool:
    """`on enabled true 1` or `off disabled false 0`, as is_truthy and is_falsey."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise UsageError("{text!r} is neither on nor off", text=text)


def _int(text: str, low: int = -INT_MAX - 1, high: int = INT_MAX) -> int:
    if not _INT.fullmatch(text):
        raise UsageError("{text!r} is not a whole number", text=text)
    if len(text) > 12 or not low <= int(text) <= high:
        raise UsageError("{text} is outside {low} to {high}", text=text[:24], low=low, high=high)
    return int(text)


def _at_least(low: int) -> Callable[[str], int]:
    return lambda text: _int(text, low)


def _count(low: int) -> Callable[[str], int]:
    """Tokens: `8192`, `32k`, `1M`. The engine itself reads only plain digits."""

    def read(text: str) -> int:
        if _INT.fullmatch(text):
            return _int(text, low)
        return _int(str(parse_count(text)), low)

    return read


def _layers(text: str) -> int:
    if text in ("auto", "all"):
        return -1 if text == "auto" else -2
    try:
        return _int(text)
    except UsageError:
        raise UsageError("{text!r} is not a number of layers, auto or all", text=text) from None


def _write_layers(value: int) -> str:
    return {-1: "auto", -2: "all"}.get(value, str(value))


def _onoff(text: str) -> str:
    if text in _TRUE:
        return "on"
    if text in _FALSE:
        return "off"
    if text in _AUTO:
        return "auto"
    raise UsageError("{text!r} is not on, off or auto", text=text)


def _cache_type(legal: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text in legal:
            return text
        raise UsageError(
            "{text!r} is not a cache type of this tool; it has {legal}",
            text=text,
            legal=", ".join(legal),
        )

    return read


def one_of(*legal: str) -> Kind:
    """A word out of a short list."""

    def read(text: str) -> str:
        if text in legal:
            return text
        raise UsageError(
            "{text!r} is not one of {legal}", text=text, legal=", ".join(filter(None, legal))
        )

    return Kind("choice", read, str)


def _split(separators: str) -> Callable[[str], tuple[float, ...]]:
    pattern = re.compile(f"[{separators}]+")

    def read(text: str) -> tuple[float, ...]:
        words = pattern.split(text)
        try:
            parts = tuple(float(word) for word in words)
        except ValueError:
            raise UsageError("{text!r} is not a list of proportions", text=text) from None
        if len(parts) >= MAX_DEVICES:
            raise UsageError("{n} proportions, the engine has room for 15", n=len(parts))
        if not all(part == 0 or _FLOAT_MIN <= part <= _FLOAT_MAX for part in parts):
            raise UsageError("{text!r} has a proportion that is negative or no number", text=text)
        return parts if any(parts) else ()

    return read


def _write_float(value: float) -> str:
    return str(int(value)) if value == int(value) and value < 2**53 else repr(value)


def _names(separator: str) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        names = tuple(text.split(separator))
        if not all(names):
            raise UsageError("{text!r} names no device", text=text)
        return names

    return read


def _overrides(separator: str) -> Callable[[str], tuple[tuple[str, str], ...]]:
    def read(text: str) -> tuple[tuple[str, str], ...]:
        pairs = []
        for part in text.split(separator):
            pattern, equals, buffer = part.partition("=")
            if not (pattern and equals and buffer):
                raise UsageError("{part!r} is not PATTERN=BUFFER", part=part, hint="like exps=CPU")
            pairs.append((pattern, buffer))
        return tuple(pairs)

    return read


def _dense(text: str) -> tuple[tuple[str, str], ...]:
    """The patterns that the first N layers are kept on the CPU by (common.h, LLM_FFN_DENSE_REGEX).

    b11549.
    """
    count = min(_at_least(0)(text), MAX_LAYERS)
    return tuple((f"blk\\.{il}\\.ffn_(up|down|gate)\\.", "CPU") for il in range(count))


def _write_overrides(separator: str) -> Callable[[tuple[tuple[str, str], ...]], str]:
    return lambda pairs: separator.join(f"{pattern}={buffer}" for pattern, buffer in pairs)


def _spec_types(text: str) -> tuple[str, ...]:
    words = text.split(",")
    for word in words:
        if word not in SPEC_TYPES_LEGAL:
            raise UsageError(
                "{word!r} is not one of {legal}", word=word, legal=", ".join(SPEC_TYPES_LEGAL)
            )
    return () if "none" in words else tuple(dict.fromkeys(words))


_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?:([+*])(\d{1,10}))?)?", re.ASCII)


def _largest(text: str) -> int:
    """The largest of llama-bench's values: `512`, `512,1024`, `128-512+128`, `1-4096*2`."""
    largest = 0
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise UsageError("{text!r} is not a number or a range", text=text)
        first, last = int(match[1]), int(match[2] or match[1])
        step, times = int(match[4] or 1), match[3] == "*"
        if last > first and (step < 1 or (times and (step < 2 or first < 1))):
            raise UsageError("{text!r} never ends", text=text)
        while times and first * step <= last:
            first *= step
        largest = max(largest, first + (0 if times else max(0, last - first) // step * step))
    return _int(str(largest), 0)


def _pair_sum(text: str) -> int:
    words = text.split(",")
    if len(words) != 2:
        raise UsageError("{text!r} is not PROMPT,GENERATE", text=text)
    return _int(str(sum(_int(word, 0) for word in words)), 0)


def _build(text: str) -> str:
    match = re.fullmatch(r"b?(\d{1,7})", text, re.ASCII)
    if not match or not int(match[1]):
        raise UsageError("{text!r} is not a llama.cpp build", text=text, hint="like b10605")
    return f"b{int(match[1])}"


def _zero_one(text: str) -> bool:
    if text not in ("0", "1"):
        raise UsageError("{text!r} is neither 0 nor 1", text=text)
    return text == "1"


def _same(text: str) -> str:
    return text


FLAG = Kind("flag", truth, lambda _: "", takes=0)
SWITCH = Kind("switch", truth, lambda on: "1" if on else "0", takes=0)
INT = Kind("int", _int, str)
NATURAL = Kind("int", _at_least(0), str)
POSITIVE = Kind("int", _at_least(1), str)
CONTEXT = Kind("count", _count(0), str)
BATCH = Kind("count", _count(1), str)
COUNT = Kind("count", _count(-INT_MAX - 1), str)
TEXT = Kind("text", _same, _same)
PAIR = Kind("pair", _same, _same, takes=2)
LAYERS = Kind("layers", _layers, _write_layers)
FLASH = Kind("on/off/auto", _onoff, _same)
ON_OFF = Kind("on/off", truth, lambda on: "on" if on else "off")
CACHE = Kind("cache type", _cache_type(CACHE_TYPES), _same)
SPLIT = Kind("proportions", _split(",/"), lambda v: ",".join(map(_write_float, v)))
DEVICES = Kind("devices", _names(","), ",".join)
OVERRIDES = Kind("overrides", _overrides(","), _write_overrides(","))
DENSE = Kind("int", _dense, _write_overrides(","))
SPEC_TYPES = Kind("spec types", _spec_types, ",".join)
BUILD = Kind("build", _build, _same)

BENCH_TOKENS = Kind("int", _largest, str)
BENCH_PAIR = Kind("int,int", _pair_sum, str)
BENCH_CACHE = Kind("cache type", _cache_type(BENCH_CACHE_TYPES), _same)
BENCH_SPLIT = Kind("proportions", _split(";/"), lambda v: "/".join(map(_write_float, v)))
BENCH_DEVICES = Kind("devices", _names("/"), "/".join)
BENCH_OVERRIDES = Kind("overrides", _overrides(";"), _write_overrides(";"))
BENCH_ON = Kind("0/1", _zero_one, lambda on: "1" if on else "0")
BENCH_NOT = Kind("0/1", lambda text: not _zero_one(text), lambda on: "0" if on else "1")
BENCH_LAYERS = Kind("int", _int, str)
