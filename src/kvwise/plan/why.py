"""Why a launch was chosen, in sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterator

from kvwise.plan.candidate import CELLS, Candidate, missing
from kvwise.plan.search import Search
from kvwise.plan.speed import Speed
from kvwise.text import Phrase, phrase
from kvwise.units import show


def reasons(search: Search, chosen: Candidate, speed: Speed) -> tuple[Phrase, ...]:
    """Where the layers are, what the cache types cost, why no longer context, what is left."""
    return (
        *_placement(search, chosen),
        *_types(search, chosen),
        *_context(search, chosen),
        *_answer(search, chosen),
        *_speed(speed),
        *_headroom(chosen),
    )


def _placement(search: Search, chosen: Candidate) -> Iterator[Phrase]:
    names = ", ".join(device.name for device in search.devices)
    launch, everything = chosen.launch, search.model.n_layer_all + 1
    if not search.devices:
        yield phrase("no GPU: everything is in the host's memory")
    elif chosen.full:
        yield phrase("all {count} layers are on {names}", count=everything, names=names)
    elif not launch.offload_kqv and "offload_kqv" not in search.fixed:
        yield phrase(
            "all {count} layers are on {names}, the cache stays in the host's memory (-nkvo): each "
            "token reads {size} from the host",
            count=everything,
            names=names,
            size=show(chosen.host_read),
        )
    elif launch.n_cpu_moe and launch.n_gpu_layers in (-1, everything):
        yield phrase(
            "the experts of {count} layers stay in the host's memory, everything else is on "
            "{names}: each token reads {size} from the host",
            count=launch.n_cpu_moe,
            names=names,
            size=show(chosen.host_read),
        )
    else:
        yield phrase(
            "{count} of {all} layers are on {names}, more do not fit: each token reads {size} from "
            "the host",
            count=launch.n_gpu_layers,
            all=everything,
            names=names,
            size=show(chosen.host_read),
        )


def _types(search: Search, chosen: Candidate) -> Iterator[Phrase]:
    size = sum(line.context_bytes for line in chosen.ledger.lines)
    if not size:
        yield phrase("the model keeps no cache")
        return
    if all(cache.kind == "recurrent" for cache in chosen.ledger.caches):
        yield phrase(
            "the model keeps a state of {size} instead of a cache, however long the context",
            size=show(size),
        )
        return
    k, v = chosen.pair
    if chosen.quality == "lossless":
        yield phrase("K and V stay in {types}: nothing is lost", types=_both(k, v))
        return
    plain = search.ledger(search.with_types(chosen.launch, "f16", "f16"))
    saved = sum(line.context_bytes for line in plain.lines) - size if plain else 0
    yield phrase(
        "the cache in {types} takes {size}, {more} less than in f16 (quality: {class_})",
        types=_both(k, v),
        size=show(size),
        more=show(saved),
        class_=phrase(chosen.quality),
    )


def _both(k: str, v: str) -> str | Phrase:
    return k if k == v else phrase("{k} and {v}", k=k, v=v)


def _context(search: Search, chosen: Candidate) -> Iterator[Phrase]:
    n_ctx = chosen.ledger.context.n_ctx
    if "n_ctx" in search.fixed:
        return
    if chosen.slot_tokens >= search.trained:
        yield phrase(
            "{tokens:,} tokens are all that the model was trained for", tokens=search.trained
        )
        return
    more = search.ledger(search.with_context(chosen.launch, n_ctx + CELLS * search.slots))
    short = missing(more) if more else 0
    if short:
        yield phrase(
            "a context of {tokens:,} tokens is the longest that fits: {step} more miss by {size}",
            tokens=n_ctx,
            step=CELLS * search.slots,
            size=show(short),
        )


def _answer(search: Search, chosen: Candidate) -> Iterator[Phrase]:
    prompt = search.goal.prompt_tokens
    if prompt is not None:
        yield phrase(
            "a prompt of {prompt:,} tokens leaves {left:,} for the answer",
            prompt=prompt,
            left=chosen.slot_tokens - prompt,
        )


def _speed(speed: Speed) -> Iterator[Phrase]:
    if speed.decode_tokens_per_s is not None:
        yield phrase(
            "at most {speed} tokens per second with {depth:,} in the context: each reads {size}",
            depth=speed.depth,
            speed=speed.decode_tokens_per_s,
            size=show(speed.read_bytes_gpu),
        )


def _headroom(chosen: Candidate) -> Iterator[Phrase]:
    lines = [line for line in chosen.ledger.lines if not line.host]
    for line, device in zip(lines, chosen.ledger.devices, strict=True):
        if line.headroom_bytes is None:
            continue
        if not device.reserve_bytes:
            yield phrase(
                "{size} stay free on {name}; nothing is kept in reserve",
                size=show(line.headroom_bytes),
                name=device.name,
            )
        else:
            yield phrase(
                "{size} stay free on {name}, {reserve} of them as reserve",
                size=show(line.headroom_bytes),
                name=device.name,
                reserve=show(device.reserve_bytes),
            )
