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
from kvwise.options.row import BENCH
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
    """Of several contexts (llama-bench makes one for each test) the one with the most cells, and of
    those the one with the largest batch: llama-bench asks for no more cells than a test needs."""
    mine = [context for context in loaded.contexts if not context.draft and context.used]
    return max(mine, key=_cells) if mine else loaded.main


def _cells(context: ContextLoad) -> tuple[int, int]:
    number = context.facts.get("n_ctx", "")
    compute = sum(each.bytes for each in context.compute.values())
    return int(number) if number.isdigit() else 0, compute


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
    """The log has the setting that came through, and for `auto` what became of it."""
    said = context.facts.get("flash_attn", "")
    on = context.flash_attn
    if on is None and said not in ("auto", "-1", ""):
        on = said in ("enabled", "1", "true", "on")
    if launch.flash_attn == "on" and on is False:
        return [Effect("flash_attn", phrase("flash attention was asked for and is off"))]
    if launch.flash_attn == "off" and on:
        return [Effect("flash_attn", phrase("flash attention was to be off and is on"))]
    if launch.flash_attn == "auto" and on is False:
        return [Effect("flash_attn_auto", phrase("flash attention became off here"), lost=False)]
    return []


def _sizes(launch: Launch, context: ContextLoad) -> list[Effect]:
    """No batch is larger than the context, and no test is: that is told and nothing is lost.
    llama-bench cuts its context to each test."""
    found: list[Effect] = []
    if launch.tool == BENCH:
        return found
    n_ctx = _fact(context, "n_ctx")
    if n_ctx and launch.n_ctx and n_ctx > launch.n_ctx:
        text = phrase("the context of {asked} became {used}", asked=launch.n_ctx, used=n_ctx)
        found.append(Effect("context_padded", text, lost=False))
    for name, flag in (("n_batch", "-b"), ("n_ubatch", "-ub")):
        used, asked = _fact(context, name), getattr(launch, name)
        if used is None or used == asked:
            continue
        known = used == min(asked, n_ctx or asked, launch.n_batch)
        if not known or name == "n_ubatch":
            text = phrase("{flag} {asked} became {used}", flag=flag, asked=asked, used=used)
            found.append(Effect("batch_cut", text, lost=not known))
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
        text = phrase("{layers} of {wanted} layers on a GPU", layers=layers, wanted=wanted)
        return [Effect("layers", text)]
    return []
