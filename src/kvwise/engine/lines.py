"""One row per kind of log line: a word that must be in it, its pattern, what it means.

Patterns are searched anywhere in the line, so that time stamps, levels, container and wrapper
prefixes do not matter. Formats: llama.cpp from the end of 2024 (b4400) to b11549; the function
names in front changed often, the words after them seldom. Source of the current ones:
src/llama-{model,context,kv-cache*,memory-recurrent}.cpp, common/fit.cpp, tools/server, tools/mtmd.
"""

# ruff: noqa: ISC004 (two string pieces in one row are one pattern)

from __future__ import annotations

import re
from collections.abc import Callable
from re import Match
from typing import NamedTuple

from kvwise.engine import events as ev
from kvwise.engine.printed import Printed

_SIZE = r"(\d{1,15}(?:\.\d{1,9})?)"
_INT = r"(\d{1,15})"
_SIGNED = r"(-?\d{1,15})"
_NAME = r"([^|]{1,120}?)"

Make = Callable[[Match[str]], ev.Event | None]


class Row(NamedTuple):
    """`needle` is looked for first: a plain search, because most lines say nothing we want."""

    needle: str
    pattern: re.Pattern[str]
    make: Make


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _size(text: str | None) -> Printed | None:
    return None if text is None else Printed.parse(text)


def _whole(text: str) -> Printed:
    return Printed.parse(text, cut=True)


def _whole_or_none(text: str | None) -> Printed | None:
    return None if text is None else _whole(text)


_PARTS = {"model": "weights", "": "weights", "KV": "kv", "RS": "rs", "LoRA": "lora"}


def _buffer(m: Match[str]) -> ev.Event:
    function, name, part, state, size = m[1] or "", m[2], m[3], m[4], Printed.parse(m[5])
    if state:
        return ev.Buffer("state", name, size, state)
    if part == "compute" and function in _PROJECTOR_FUNCTIONS:
        return ev.Projector("compute", name, size)
    if part == "KV" and "recurrent" in function:  # llama_kv_cache_recurrent, until mid-2025
        return ev.Buffer("rs", name, size)
    return ev.Buffer(_PARTS.get(part or "", part or ""), name, size)


_PROJECTOR_FUNCTIONS = frozenset({"reserve_compute_meta", "alloc_compute_meta", "clip_init"})
"""tools/mtmd/clip.cpp: the vision encoder has compute buffers of its own."""


_KV_SIDES = re.compile(rf"K \((\w+)\):\s*{_SIZE}(?: MiB)?,\s*V \((\w+)\):\s*{_SIZE}")
_RS_SIDES = re.compile(
    rf"R \((\w+)\):\s*{_SIZE} MiB,\s*S \((\w+)\):\s*{_SIZE} MiB(?:,\s*P \(\w+\):\s*{_SIZE})?"
)


def _cache(m: Match[str]) -> ev.Event:
    """The total line of a cache; until mid-2025 it came from the context, without cells."""
    found = m.groupdict()
    size = Printed.parse(found["size"])
    cells, layers = _int(found.get("cells")), _int(found.get("layers"))
    seqs, second = _int(found.get("seqs")), _int(found.get("streams"))
    tail = found["tail"] or ""
    state = _RS_SIDES.search(tail)
    if state or "recurrent" in (found["function"] or ""):
        r, r_size, s, s_size, p = state.groups() if state else (None,) * 5
        rs_seq = _int(found.get("rs_seq"))
        return ev.RecurrentState(
            size, cells, layers, seqs, rs_seq, r, _size(r_size), s, _size(s_size), _size(p)
        )
    both = _KV_SIDES.search(tail)
    k, k_size, v, v_size = both.groups() if both else (None,) * 4
    return ev.KVCache(size, cells, layers, seqs, second, k, _size(k_size), v, _size(v_size))


_SHAPE_LAYERS = re.compile(r"n_layer = (\d{1,6})")


def _cache_shape(m: Match[str]) -> ev.Event:
    layers = _SHAPE_LAYERS.search(m.string, m.end())
    recurrent = "recurrent" in m.string[: m.start()] or "type_r" in m.string
    return ev.CacheShape(int(m[1]), int(layers[1]) if layers else None, recurrent)


_RENAMED = {"n_ctx_per_seq": "n_ctx_seq"}
_CONTEXT_FACTS = (
    "n_seq_max|n_ctx_per_seq|n_ctx_seq|n_ctx|n_batch|n_ubatch|causal_attn|flash_attn|kv_unified|"
    "n_rs_seq|n_outputs_max_per_seq|n_outputs_max|freq_base|freq_scale"
)


def _context_fact(m: Match[str]) -> ev.Event:
    return ev.ContextFact(_RENAMED.get(m[1], m[1]), m[2])


def _breakdown(m: Match[str]) -> ev.Event:
    return ev.Breakdown(
        name=m[1],
        own=_whole(m[4]), model=_whole(m[5]), context=_whole(m[6]), compute=_whole(m[7]),
        total=_whole_or_none(m[2]), free=_whole_or_none(m[3]), unaccounted=_whole_or_none(m[8]),
    )  # fmt: skip


def _fit_device(m: Match[str]) -> ev.Event:
    return ev.FitDevice(
        m[1], used=_whole(m[3]), free=_whole(m[4]), total=_whole(m[2]), target=_whole_or_none(m[5])
    )


def _fit_layers(m: Match[str]) -> ev.Event:
    return ev.FitDevice(m[1], used=_whole(m[3]), free=_whole(m[4]), layers=int(m[2]))


def _state(m: Match[str]) -> ev.Event:
    return ev.CompressorState(
        m[1], int(m[2]), int(m[3]), int(m[4]), int(m[5]), int(m[6]), int(m[7]), Printed.parse(m[8])
    )


def _statistics(m: Match[str]) -> ev.Event:
    rates = tuple(float(each) for each in m[5].split(",")) if m[5].strip() else ()
    return ev.DraftStatistics(m[1], int(m[2]), int(m[3]), int(m[4]), rates, float(m[6]))


_FEATURE = re.compile(r"([A-Z][A-Z0-9_]*) = [1-9]")


def _splits(m: Match[str]) -> ev.Event:
    return ev.Splits(int(m[2]), _int(m[4]), _int(m[3]), _int(m[1]))


def _timing(m: Match[str]) -> ev.Event:
    return ev.Timing(m[1], float(m[2]), _int(m[3]))


_TABLE: tuple[tuple[str, str, Make], ...] = (
    # -- sizes ---------------------------------------------------------------------------------
    ("buffer size =",
     rf"(?:([\w~]+):\s+)?(\S+)\s+(?:(model|KV|RS|LoRA|output|compute) |DSV4 (\S+) state )?"
     rf"buffer size =\s*{_SIZE} MiB", _buffer),
    ("compute buffer size ",
     rf"(\S+) compute buffer size (?:is|of)\s+{_SIZE} MiB, (?:matches|does not match) expectation "
     rf"of\s+{_SIZE} MiB",
     lambda m: ev.BufferAtExit(m[1], Printed.parse(m[2]), Printed.parse(m[3]))),
    ("MoE cache size =", rf"(\S+) MoE cache size =\s*{_SIZE} MiB",
     lambda m: ev.Buffer("moe_cache", m[1], Printed.parse(m[2]))),
    (" cells,",
     rf"(?:(?P<function>[\w~]+):\s+)?size =\s*(?P<size>{_SIZE}) MiB \(\s*(?P<cells>{_INT}) cells?,"
     rf"\s*(?P<layers>{_INT}) layers(?:,\s*(?P<seqs>{_INT})(?:/\s*(?P<streams>{_INT}))?\s+seqs?"
     rf"(?:,?\s+(?P<rs_seq>{_INT}) rs_seq)?)?\)(?P<tail>.*)", _cache),
    ("KV self size",
     rf"(?:(?P<function>[\w~]+):\s+)?KV self size\s+=\s*(?P<size>{_SIZE}) MiB(?P<tail>.*)", _cache),
    (" rs_seq = ",
     rf"(\S+) ratio = {_INT}, state = {_INT} x {_INT}, streams = {_INT}, rs_seq = {_INT}, "
     rf"layers = {_INT}, size =\s*{_SIZE} MiB", _state),
    ("kv_size = ", rf"\bkv_size = {_INT}", _cache_shape),
    ("creating ",
     rf"creating\s+(\S.*?) (?:KV cache|compressor state)(?:, size = {_INT} cells)?",
     lambda m: ev.CacheStarts(m[1], _int(m[2]))),
    # -- model and devices ---------------------------------------------------------------------
    ("loaded meta data with", rf"loaded meta data with \d+ key-value pairs and {_INT} tensors from "
     r"(.+?)(?: \(version .*)?$", lambda m: ev.ModelOpened(m[2], int(m[1]))),
    ("- kv ", r"- kv +\d{1,5}: +([\w.-]{1,120}) +"
     r"(?:[ui](?:8|16|32|64)|f32|f64|bool|str|arr\[[^]]{1,20}\]) += (.{1,400})$",
     lambda m: ev.ModelKey(m[1], m[2].strip())),
    *(
        (name, rf"\b{name}: ([\w. ]{{1,40}}?)\s*= (.{{1,4000}})$",
         lambda m: ev.ModelFact(m[1], m[2].strip()))
        for name in ("print_info", "llm_load_print_meta")
    ),
    ("using device ", rf"using device (\S+) \((.*)\) - {_INT} MiB free",
     lambda m: ev.DeviceUsed(m[1], m[2], _whole(m[3]))),
    (" MiB free)", rf"(?:- |^\s+)(\S+)\s*: (.*) \({_INT} MiB, {_INT} MiB free\)",
     lambda m: ev.DeviceListed(m[1], m[2], _whole(m[3]), _whole(m[4]))),
    ("system_info:", r"system_info: .*? \| (.*)$",
     lambda m: ev.SystemInfo(frozenset(_FEATURE.findall(m[1])))),
    ("layers to GPU", rf"offloaded {_INT}/{_INT} layers to GPU",
     lambda m: ev.Offloaded(int(m[1]), int(m[2]))),
    ("build", r"build(?:_info)?: (?:b|build )?(-?\d{1,9})(?:-| \()([0-9a-z]+)\)?",
     lambda m: ev.Build(int(m[1]), m[2])),
    # -- context -------------------------------------------------------------------------------
    ("constructing llama_context", r"constructing llama_context(?:,|$|\s*$)",
     lambda _: ev.ContextStarts()),
    *(
        (f"{function}: ", rf"{function}: ({_CONTEXT_FACTS})\s*= (\S+)", _context_fact)
        for function in ("llama_context", "llama_context_base", "llama_new_context_with_model")
    ),
    ("reserving ...", r"sched_reserve: reserving \.\.\.", lambda _: ev.ReserveStarts()),
    ("n_rot_", r"n_rot_([kv]) = (\d+)", lambda m: ev.Rotation(m[1], m[2] != "0")),
    ("attn_rot_", r"attn_rot_([kv]) = (\d+)", lambda m: ev.Rotation(m[1], m[2] != "0")),
    ("Flash Attention ", r"Flash Attention (?:was auto, set to )?(enabled|disabled|not supported)",
     lambda m: ev.FlashAttention(m[1] == "enabled")),
    ("graph nodes ", rf"graph nodes\s+= {_INT}", lambda m: ev.Nodes(int(m[1]))),
    ("splits = ", rf"(?:nodes = {_INT}(?: / \d+)?, )?splits = {_INT}"
     rf"(?: \(with bs={_INT}\), {_INT} \(with bs=1\))?", _splits),
    # -- server --------------------------------------------------------------------------------
    ("n_slots = ",
     rf"n_slots = {_INT}(?:, n_ctx_slot = {_INT})?(?:, kv_unified = '(true|false)')?",
     lambda m: ev.Slots(int(m[1]), _int(m[2]), None if m[3] is None else m[3] == "true")),
    ("- capping", rf"the slot context \({_INT}\) exceeds the training context of the model "
     rf"\({_INT}\)", lambda m: ev.SlotCapped(int(m[1]), int(m[2]))),
    ("istening", r"listening on (https?://[^\s,]+)", lambda m: ev.Listening(m[1])),
    ("server is listening", rf"server is listening, hostname: (\S+), port: {_INT}",
     lambda m: ev.Listening(f"http://{m[1]}:{m[2]}")),
    ("model loaded", r"(?:init|llama_server|main|load_model): model loaded",
     lambda _: ev.ModelReady()),
    ("loading draft model", r"loading draft model '(.*)'", lambda m: ev.DraftStarts(m[1], False)),
    ("MTP draft context", r"creating MTP draft context against the target model(?: '(.*)')?",
     lambda m: ev.DraftStarts(m[1] or "", True)),
    ("for the extra model", r"getting device memory data for the extra model",
     lambda _: ev.DraftStarts("", False, measured=True)),
    ("speculative implementation '", r"adding speculative implementation '([\w-]+)'",
     lambda m: ev.Speculation(m[1])),
    ("#gen drafts =",
     rf"statistics\s+([\w-]+): .*#gen drafts =\s*{_INT}, .*#gen tokens =\s*{_INT}, #acc tokens ="
     rf"\s*{_INT}, .*#acc rate/pos = \(([\d., ]{{0,2000}})\), dur\(b,g,a\) = [\d.]+, "
     r"([\d.]{1,15}),",
     _statistics),
    ("no implementations specified", r"no implementations specified for speculative decoding",
     lambda _: ev.Speculation("")),
    ("estimated memory usage", rf"estimated memory usage of (.+?) is {_SIZE} MiB",
     lambda m: ev.ExtraContext(m[1], Printed.parse(m[2]))),
    ("usage of mmproj", rf"memory usage of mmproj is {_SIZE} MiB",
     lambda m: ev.Projector("estimate", "", Printed.parse(m[1]))),
    ("to fit_params_target", rf"adding {_SIZE} MiB to fit_params_target for device (\S+)",
     lambda m: ev.Projector("counted", m[2], Printed.parse(m[1]))),
    ("model size:", rf"model size:\s+{_SIZE} MiB",
     lambda m: ev.Projector("weights", "", Printed.parse(m[1]))),
    ("prompt cache is enabled", rf"prompt cache is enabled, size limit: {_INT} MiB",
     lambda m: ev.PromptCache("limit", _whole(m[1]))),
    ("saving prompt with length", rf"saving prompt with length \d+, total state size = {_SIZE} MiB",
     lambda m: ev.PromptCache("saved", Printed.parse(m[1]))),
    ("cache state:", rf"cache state: \d+ prompts, {_SIZE} MiB \(limits: {_SIZE} MiB",
     lambda m: ev.PromptCache("state", Printed.parse(m[1]), Printed.parse(m[2]))),
    ("created context checkpoint", rf"created context checkpoint \d+ of \d+ \(.*size = {_SIZE} MiB",
     lambda m: ev.PromptCache("checkpoint", Printed.parse(m[1]))),
    (" time =", rf"((?:prompt )?eval|load|total|sampling) time =\s*(\d{{1,12}}\.\d{{1,3}}) ms"
     rf"(?: /\s*{_INT} (?:tokens|runs))?", _timing),
    # -- fit and breakdown ---------------------------------------------------------------------
    ("breakdown_print: |",
     rf"\|\s+- ([^|]{{1,120}}?)\s*\|\s*(?:{_INT} =\s*{_INT} \+ )?\(?\s*{_INT} =\s*{_INT} \+"
     rf"\s*{_INT} \+\s*{_INT}\)?\s*(?:\+\s*{_SIGNED})?\s*\|", _breakdown),
    ("projected to use", rf"projected to use {_INT} MiB of (device|host) memory vs\. {_INT} MiB",
     lambda m: ev.FitProjection(_whole(m[1]), _whole(m[3]), m[2] == "host")),
    (" total, ",
     rf"- {_NAME}\s*:\s*{_INT} total,\s*{_INT} used,\s*{_SIGNED} (?:free|surplus|deficit)"
     rf"(?: vs\. target of\s*{_INT})?", _fit_device),
    (" MiB used, ",
     rf"- {_NAME}\s*:\s*{_INT} layers[^,]{{0,40}},\s*{_INT} MiB used,\s*{_SIGNED} MiB free",
     _fit_layers),
    ("will leave", rf"will leave {_SIGNED} >= {_INT} MiB",
     lambda m: ev.FitTarget(_whole(m[2]), _whole(m[1]))),
    ("cannot meet free memory target", rf"cannot meet free memory target of {_INT} MiB",
     lambda m: ev.FitTarget(_whole(m[1]), None)),
)  # fmt: skip

ROWS = tuple(Row(needle, re.compile(pattern, re.ASCII), make) for needle, pattern, make in _TABLE)
