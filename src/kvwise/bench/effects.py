"""Settings that the engine took without a word and did not use, as its log tells.

Two runs of different cache types with the same figures to six digits were one setting measured
twice; a dead RPC server leaves the CPU alone while the log still says that all layers are on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvwise.engine import events as ev
from kvwise.engine.loaded import ContextLoad, Loaded
from kvwise.launch import Launch
from kvwise.text import Phrase, phrase


@dataclass(frozen=True, slots=True)
class Effect:
    """Something asked for that did not happen (`lost`), or that happened otherwise."""

    code: str
    message: Phrase
    lost: bool = True


def effects(launch: Launch, loaded: Loaded, missing: Sequence[str] = ()) -> tuple[Effect, ...]:
    """All of them, what was lost first."""
    context = widest(loaded)
    found = [
        Effect("device_missing", phrase("the engine does not use {device}", device=name))
        for name in missing
    ]
    if context is not None:
        found += _cache(launch, context)
        found += _flash(launch, context)
        found += _sizes(launch, context)
    found += _layers(launch, loaded)
    return tuple(sorted(found, key=lambda each: not each.lost))


def widest(loaded: Loaded) -> ContextLoad | None:
    """Of several contexts (llama-bench makes one for each test) the one with the most cells."""
    mine = [context for context in loaded.contexts if not context.draft and context.used]
    return max(mine, key=_cells) if mine else loaded.main


def _cells(context: ContextLoad) -> tuple[int, int]:
    number = context.facts.get("n_ctx", "")
    return int(number) if number.isdigit() else 0, len(context.compute)


def seen(loaded: Loaded) -> dict[str, Any]:
    """What the log says was really used: plain values."""
    context = widest(loaded) or ContextLoad()
    caches = [c.total for c in context.caches if isinstance(c.total, ev.KVCache)]
    splits = context.splits
    return {
        "type_k": next((each.type_k for each in caches if each.type_k), None),
        "type_v": next((each.type_v for each in caches if each.type_v), None),
        "flash_attn": context.flash_attn,
        "n_ctx": _fact(context, "n_ctx"),
        "devices": [device.name for device in loaded.devices],
        "splits_prompt": splits.prompt if splits else None,
        "splits_token": splits.token if splits else None,
    }


def _fact(context: ContextLoad, name: str) -> int | None:
    value = context.facts.get(name, "")
    return int(value) if value.isdigit() else None


def _cache(launch: Launch, context: ContextLoad) -> list[Effect]:
    found = []
    for cache in context.caches:
        total = cache.total
        if not isinstance(total, ev.KVCache) or total.layers == 0:
            continue
        for side, asked, used in (
            ("K", launch.type_k, total.type_k), ("V", launch.type_v, total.type_v),
        ):  # fmt: skip
            if used and used.lower() != asked.lower():
                text = phrase(
                    "{side} was asked for as {asked} and is {used}", side=side, asked=asked,
                    used=used,
                )  # fmt: skip
                found.append(Effect("cache_type", text))
    return found


def _flash(launch: Launch, context: ContextLoad) -> list[Effect]:
    used = context.flash_attn
    if used is None:
        return []
    if launch.flash_attn == "on" and not used:
        return [Effect("flash_attn", phrase("flash attention was asked for and is off"))]
    if launch.flash_attn == "off" and used:
        return [Effect("flash_attn", phrase("flash attention was to be off and is on"))]
    if launch.flash_attn == "auto" and not used:
        return [Effect("flash_attn_auto", phrase("flash attention became off here"), lost=False)]
    return []


def _sizes(launch: Launch, context: ContextLoad) -> list[Effect]:
    found = []
    for name, flag in (("n_ctx", "-c"), ("n_batch", "-b"), ("n_ubatch", "-ub")):
        used, asked = _fact(context, name), getattr(launch, name)
        if used is None or not asked or used == asked:
            continue
        if name == "n_ctx":
            if launch.tool == "llama-bench" or used - asked < 0:
                continue
            text = phrase("the context of {asked} became {used}", asked=asked, used=used)
            found.append(Effect("context_padded", text, lost=False))
        elif launch.tool == "llama-server":
            text = phrase("{flag} {asked} became {used}", flag=flag, asked=asked, used=used)
            found.append(Effect("batch_cut", text))
    return found


def _layers(launch: Launch, loaded: Loaded) -> list[Effect]:
    asked = launch.n_gpu_layers
    model = loaded.model
    if asked > 0 and not loaded.devices:
        return [Effect("no_gpu", phrase("-ngl {asked}: there is no GPU", asked=asked))]
    if model is None or model.offloaded is None or not loaded.devices or asked == 0:
        return []
    layers, of = model.offloaded
    wanted = of if asked < 0 else min(asked, of)
    if layers < wanted:
        text = phrase("{layers} of {wanted} layers are on a GPU", layers=layers, wanted=wanted)
        return [Effect("layers", text)]
    return []
