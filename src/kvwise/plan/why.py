"""Why a launch was chosen, in sentences with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from kvwise.memory.reasons import beyond_training
from kvwise.options.kinds import OVERRIDES
from kvwise.plan.binds import Binds
from kvwise.plan.candidate import CELLS, Candidate, lefts
from kvwise.plan.costs import Cost
from kvwise.plan.experts import matrices, on_host
from kvwise.plan.lend import lends
from kvwise.plan.reuse import reuse
from kvwise.plan.search import Search
from kvwise.plan.speed import Speed
from kvwise.plan.speed.words import sentence
from kvwise.text import Phrase, phrase
from kvwise.units import show


class Explained(Protocol):
    """What `details` looks at: a choice of a plan."""

    @property
    def speed(self) -> Speed: ...
    @property
    def binds(self) -> Binds | None: ...


def reasons(
    search: Search, chosen: Candidate, speed: Speed, found: Sequence[Cost] = ()
) -> tuple[Phrase, ...]:
    """Where the layers are, what each decision cost or freed, what ends the context, how much of
    it one slot has, how fast it is, what a server can reuse, what is left.

    `found` are the costs of the candidate's decisions.
    """
    return (
        *_placement(search, chosen),
        *_shared(search, chosen),
        *_whole(search, chosen),
        *_types(chosen),
        *(cost.sentence for cost in found),
        *_context(search, chosen),
        *_slots(chosen),
        *_answer(search, chosen),
        *_speed(speed),
        *reuse(search, chosen),
        *_headroom(chosen),
    )


def _placement(search: Search, chosen: Candidate) -> Iterator[Phrase]:
    names = ", ".join(device.name for device in search.devices)
    launch, everything = chosen.launch, search.model.n_layer_all + 1
    away = sum(len(rows) for rows in on_host(chosen.ledger).values())
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
    elif away and launch.n_gpu_layers in (-1, everything):
        yield phrase(
            "{count} of {all} matrices of experts in the host's memory, everything else on "
            "{names}: each token reads {size} from the host",
            count=away,
            all=len(matrices(search.model)),
            names=names,
            size=show(chosen.host_read),
        )
    else:
        yield phrase(
            "{count} of {all} layers on {names}: each token reads {size} from the host"
            if search.whole or "n_gpu_layers" in search.fixed
            else "{count} of {all} layers on {names}, more do not fit: each token reads {size} "
            "from the host",
            count=launch.n_gpu_layers,
            all=everything,
            names=names,
            size=show(chosen.host_read),
        )


def _shared(search: Search, chosen: Candidate) -> Iterator[Phrase]:
    """That a layer is shared by two GPUs, and what that costs."""
    if lends(chosen.launch) and "override_tensor" not in search.fixed:
        yield phrase(
            "one layer is shared by two GPUs (-ot {pairs}): neither has room for all of it",
            pairs=OVERRIDES.write(chosen.launch.override_tensor),
        )
    if chosen.forgoes_pipeline:
        yield phrase("the GPUs do not read a prompt in a pipeline: long prompts take longer")


def _whole(search: Search, chosen: Candidate) -> Iterator[Phrase]:
    """What was given up: everything on the GPUs, with a context that the goal finds too short."""
    whole = search.whole
    if chosen.full or whole is None or whole.slot_tokens >= chosen.slot_tokens:
        return
    yield phrase(
        "everything fits on the GPUs with {tokens:,} tokens ({types}): the goal puts a longer "
        "context first",
        tokens=whole.slot_tokens, types=_both(*whole.pair),
    )  # fmt: skip


def _types(chosen: Candidate) -> Iterator[Phrase]:
    size = sum(line.context_bytes for line in chosen.ledger.lines)
    if not size:
        yield phrase("the model keeps no cache")
    elif all(cache.kind == "recurrent" for cache in chosen.ledger.caches):
        yield phrase(
            "the model keeps a state of {size} instead of a cache, however long the context",
            size=show(size),
        )
    elif chosen.quality == "lossless":
        yield phrase("K and V stay in {types}: nothing is lost", types=_both(*chosen.pair))
    else:
        yield phrase(
            "the cache in {types} takes {size} (quality: {class_})",
            types=_both(*chosen.pair),
            size=show(size),
            class_=phrase(chosen.quality),
        )


def _both(k: str, v: str) -> str | Phrase:
    return k if k == v else phrase("{k} and {v}", k=k, v=v)


def _context(search: Search, chosen: Candidate) -> Iterator[Phrase]:
    n_ctx = chosen.ledger.context.n_ctx
    if "n_ctx" in search.fixed:
        too_long = beyond_training(chosen.ledger)
        if too_long is not None:
            yield too_long
        return
    if chosen.slot_tokens >= search.trained:
        yield phrase(
            "{tokens:,} tokens are all that the model was trained for", tokens=search.trained
        )
        return
    longer = search.with_context(chosen.launch, n_ctx + CELLS * search.slots)
    more = search.ledger(search.settled(longer))
    if more is None:
        return
    left = lefts(more)
    tightest = min(range(len(left)), key=left.__getitem__)
    fields = {"tokens": n_ctx, "step": CELLS * search.slots, "size": show(-left[tightest])}
    if left[tightest] >= 0:
        yield phrase(
            "a context of {tokens:,} tokens is what the goal asks for, more would fit",
            tokens=n_ctx,
        )
    elif len(search.devices) == 1 and tightest == 0:
        yield phrase(
            "a context of {tokens:,} tokens is the longest that fits: {step:,} more miss by {size}",
            **fields,
        )
    else:
        yield phrase(
            "a context of {tokens:,} tokens is the longest that fits: {step:,} more miss by "
            "{size} on {device}",
            device=more.lines[tightest].buffer,
            **fields,
        )


def _slots(chosen: Candidate) -> Iterator[Phrase]:
    """What one slot has, wherever there are several."""
    context = chosen.ledger.context
    if context.n_seq_max < 2:
        return
    if context.kv_unified:
        yield phrase(
            "{count} slots share {all:,} tokens: {each:,} per slot when all are in use",
            count=context.n_seq_max, all=context.n_ctx,
            each=min(context.n_ctx // context.n_seq_max, chosen.limit),
        )  # fmt: skip
    else:
        yield phrase(
            "{count} slots of {each:,} tokens each, prompt and answer together",
            count=context.n_seq_max, each=chosen.slot_tokens,
        )  # fmt: skip


def _answer(search: Search, chosen: Candidate) -> Iterator[Phrase]:
    prompt = search.goal.prompt_tokens
    if prompt is not None:
        yield phrase(
            "a prompt of {prompt:,} tokens leaves {left:,} for the answer",
            prompt=prompt,
            left=chosen.slot_tokens - prompt,
        )


def _speed(speed: Speed) -> Iterator[Phrase]:
    said = sentence(speed)
    if said is not None:
        yield said
    yield from (each.why for each in speed.penalties if each.notable)


def details(choice: Explained) -> Iterator[Phrase]:
    """The long version: what keeps layers off the GPUs, what bounds the speed, and what its
    figures stand on."""
    speed, limit = choice.speed, choice.binds
    if limit is not None and limit.layers == "memory":
        yield phrase(
            "one step more on the GPUs misses by {size} on {device}",
            size=show(limit.layers_miss_bytes),
            device=limit.layers_device or "",
        )
    if speed.bound_by is not None:
        yield speed.bound_by
    if speed.read_bytes_host and speed.read_bytes_gpu:
        yield phrase(
            "each token reads {gpu} from GPUs and {host} from the host",
            gpu=show(speed.read_bytes_gpu), host=show(speed.read_bytes_host),
        )  # fmt: skip
    elif speed.read_bytes_gpu or speed.read_bytes_host:
        size = show(speed.read_bytes_gpu or speed.read_bytes_host)
        yield phrase("each token reads {size}", size=size)
    yield from speed.stands_on
    for penalty in speed.penalties:
        yield phrase("{why} ({source})", why=penalty.why, source=penalty.source)


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
        elif device.reserve_reason is not None:
            yield phrase(
                "{size} stay free on {name} ({why})",
                size=show(line.headroom_bytes),
                name=device.name,
                why=device.reserve_reason,
            )
        else:
            yield phrase(
                "{size} stay free on {name}, {reserve} of them as reserve",
                size=show(line.headroom_bytes),
                name=device.name,
                reserve=show(device.reserve_bytes),
            )
