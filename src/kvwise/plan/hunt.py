"""The walk through what a search allows: for each kind of launch, how far it can go.

Memory grows with the context almost linearly, but the compute buffer is not monotonic: the walk
closes in on the edge, then steps over it to see whether a longer context fits after all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kvwise.launch import Launch
from kvwise.memory.backends import kind_of
from kvwise.options import change
from kvwise.plan.candidate import CELLS, Candidate, lefts, missing, slack_of
from kvwise.plan.edge import edge
from kvwise.plan.experts import fields_of, on_host, packed, without_one
from kvwise.plan.offload import Level
from kvwise.plan.order import ABOUT
from kvwise.plan.search import Search
from kvwise.plan.split import one_moved
from kvwise.units import MIB

_COPIES = 1.5  # of the largest matrix on the host: more to compute in could be less
_LESS = 0.995
_ROOM = 256 * MIB
_TRIES = 3  # a compute buffer can grow when another matrix is on the host
_STEPS_BEYOND = 2  # how far to look past the edge for a context that fits after all


def hunt(search: Search) -> Iterator[Candidate]:
    """Fitting launches, the best cache types first."""
    plain: dict[int, Candidate] = {}
    found_any = False
    for pair in search.pairs():
        saturated = False
        for number, aside in enumerate(search.asides):
            for found in _with_types(search, pair, aside, plain.get(number), tried=found_any):
                found_any = True
                if not found.full and found.launch.offload_kqv and number not in plain:
                    plain[number] = found
                saturated = saturated or (found.full and found.slot_tokens >= search.most)
                yield found
            if saturated:
                break
        if saturated and search.goal.purpose != "min-memory":
            return  # a smaller cache type could not give more context
        if not found_any and not _weakest_fits(search, min(search.least, search.trained)):
            return


def _with_types(
    search: Search, pair: tuple[str, str], aside: Level, plain: Candidate | None, *, tried: bool
) -> Iterator[Candidate]:
    """Candidates with these cache types, the best micro-batch first.

    `tried`: others fit already, so that a smaller micro-batch is no reason to offload. `plain`: how
    the best cache types fit.
    """
    least, most = min(search.least, search.trained), search.most
    sizes = search.ubatches()
    for ubatch in sizes:
        launch = change(search.launch_of(pair, ubatch), **aside)
        whole = list(_whole(search, launch, least, most))
        yield from whole
        tried = tried or bool(whole)
        if any(_satisfies(search, each) for each in whole):
            if len(search.pairs()) == 1:
                yield from _a_step_longer(search, launch, whole)
            return  # a smaller micro-batch or more on the host could only be worse
        saturated = any(each.slot_tokens >= most for each in whole)
        if not saturated and (ubatch == sizes[0] or not tried):
            for each in _offloaded(search, launch, plain):
                tried = True
                yield each


def _a_step_longer(
    search: Search, launch: Launch, whole: Sequence[Candidate]
) -> Iterator[Candidate]:
    """What the least on the host buys in context, where no smaller cache type can buy it."""
    held = max(each.slot_tokens for each in whole)
    if held < search.most and len(search.levels) > 1 and search.goal.terms.grow:
        level = search.levels[1]
        found = longest(search, change(launch, **level), level, held + CELLS, search.most)
        if found:
            yield found


def _satisfies(search: Search, found: Candidate) -> bool:
    """Whether nothing else with the same cache types can be better for the goal."""
    order = search.goal.terms.order
    if not found.full or order[0] != "resident":
        return False
    if "enough" in order:
        return found.slot_tokens >= min(search.goal.nearly, search.most)
    return order[1] == "fast"


def _weakest_fits(search: Search, least: int) -> bool:
    """Whether the least fits anywhere with the smallest cache and micro-batch there is."""
    weakest = search.launch_of(search.pairs()[-1], min(search.ubatches()))
    return first_level(search, weakest, least) is not None


def _whole(search: Search, launch: Launch, least: int, most: int) -> Iterator[Candidate]:
    """Everything on the GPUs: on all of them, or on fewer that are enough."""
    level = search.levels[0]
    for seat in search.seats:
        found = longest(search, change(launch, **level, **seat), level, least, most)
        if found:
            yield found
            if _longer_is_better(search):
                least = max(least, min(found.slot_tokens, most))  # fewer GPUs must hold as much


def _longer_is_better(search: Search) -> bool:
    """Whether of two launches on the GPUs alone the longer one is better, whatever it takes."""
    order = search.goal.terms.order
    others = [order.index(name) for name in ("swift", "frugal") if name in order]
    return "context" in order and order.index("context") < min(others)


def _offloaded(search: Search, launch: Launch, plain: Candidate | None) -> Iterator[Candidate]:
    """The fastest levels at which the least and enough fit, the level of the plain cache types
    with all the context that fits there, and the cache alone in the host's memory.

    What reads so much more from the host than the plain way that it can only be an alternative
    gets the context that was asked for and no more.
    """
    if len(search.levels) < 2:
        return
    least, most = min(search.least, search.trained), search.most
    seen = []
    for found in _for_targets(search, launch, plain):
        seen.append(found.level)
        yield found
    if plain is not None and seen and plain.level not in seen:
        found_there = longest(search, change(launch, **plain.level), plain.level, least, most)
        if found_there:
            yield found_there
    if "offload_kqv" not in search.fixed:
        level = dict(search.levels[0]) | {"offload_kqv": False}
        on_host = longest(search, change(launch, **level), level, least, most)
        if on_host:
            yield on_host


def _for_targets(search: Search, launch: Launch, plain: Candidate | None) -> Iterator[Candidate]:
    """The fastest level for the least context, for enough, and for all where that comes first."""
    least, most = min(search.least, search.trained), search.most
    spends = search.goal.terms.order[0] == "context"
    targets = {least, min(search.goal.enough, most), *([most] if spends else [])}
    reached, allowed = 0, plain.host_read if plain else None
    for tokens in sorted(targets):
        if reached >= tokens:
            continue
        found = first_level(search, launch, tokens)
        if found is None:
            break
        allowed = allowed or found.host_read
        best = found
        if spends or found.host_read <= allowed * ABOUT:
            grown = change(launch, **found.level)
            best = longest(search, grown, found.level, tokens, most) or found
        reached = best.slot_tokens
        yield best


def longest(
    search: Search, launch: Launch, level: Level, least: int, most: int
) -> Candidate | None:
    """The candidate with the longest context of `least` to `most` tokens per slot."""
    if "n_ctx" in search.fixed:
        return search.fitting(launch, level)
    low, high = _blocks(least), max(_blocks(least), _blocks(most))

    def at(blocks: int) -> Launch:
        return search.sized(launch, blocks * CELLS)

    top = search.fitting(at(high), level)
    best = search.fitting(at(low), level) if top is None and low < high else None
    if best is None:
        return top
    last = edge(
        lambda blocks: search.slack(at(blocks)),
        low,
        high,
        lambda blocks: search.rough_slack(at(blocks)),
    )
    further = [blocks for blocks in range(last + 2, last + 2 + _STEPS_BEYOND) if blocks < high]
    found = [search.fitting(at(blocks), level) for blocks in (last, *further)]
    return next((each for each in reversed(found) if each), best)


def first_level(search: Search, launch: Launch, tokens: int) -> Candidate | None:
    """The candidate at the fastest level at which a slot of `tokens` tokens fits."""
    steps = search.levels

    def at(number: int) -> Launch:
        return search.sized(change(launch, **steps[number]), tokens)

    def left(number: int) -> int | None:
        return search.slack(at(number), gpus=True)

    def rough(number: int) -> int | None:
        return search.rough_slack(at(number), gpus=True)

    first, last = 0, len(steps) - 1
    most = left(0)
    if most is None or most < 0:
        if _host_is_too_small(search, at, last):
            return None
        found = _by_matrices(search, at(0))
        if found is not None:
            return _away(search, found)
        first = edge(left, last, 0, rough)
    found = search.fitting(at(first), steps[first])
    return _packed(search, found) if found and first else found


def _by_matrices(search: Search, launch: Launch) -> Candidate | None:
    """The launch with so many expert matrices on the host that the one GPU is full; None where
    there are several, or experts alone do not make enough room.

    What is left with a guess of the compute buffers says which; its ledger corrects the guess.
    """
    if len(search.devices) != 1 or {"n_cpu_moe", "override_tensor"} & set(search.fixed):
        return None
    bare = search.ledgers.bare(launch)
    if bare is None or not search.model.n_expert:
        return None
    away = change(launch, n_cpu_moe=1)  # computes about as much as what is sought
    host = packed(bare, lefts(bare, search.ledgers.guess(away, bare.context.n_ctx)))
    best: Candidate | None = None
    for _ in range(_TRIES + 1):
        if host is None:
            break
        level = {**search.levels[0], **fields_of(search.model, host)}
        found = search.fitting(change(launch, **level), level)
        ledger = search.ledger(change(launch, **level))
        if ledger is None or (best and found and found.host_read >= best.host_read):
            break
        best = found or best
        if best and not found:
            break
        host = packed(ledger, lefts(ledger))
    return best


def _packed(search: Search, found: Candidate) -> Candidate:
    """The candidate with other expert matrices on the host, where that fills the GPUs better."""
    if {"n_cpu_moe", "override_tensor"} & set(search.fixed):
        return found
    better = _filled(search, found, lefts(found.ledger)) or found
    return _away(search, _shifted(search, better if better.host_read < found.host_read else found))


def _shifted(search: Search, found: Candidate) -> Candidate:
    """The candidate with a layer more on a GPU that has all of its experts and room to spare: not
    the whole layer fits there, but some of its matrices do."""
    if not search.splits_freely or not found.launch.tensor_split:
        return found
    away, left = on_host(found.ledger), lefts(found.ledger)
    least = min((each.nbytes for rows in away.values() for each in rows), default=0)
    for moved, taker in one_moved(found.launch):
        if taker in away or not least or left[taker] < least:
            continue
        bare = search.ledgers.bare(moved)
        work = [line.compute_bytes for line in found.ledger.lines]
        host = packed(bare, lefts(bare, work)) if bare else None
        if host is None:
            continue
        level = {**found.level, **fields_of(search.model, host)}
        launch = change(found.launch, **level, tensor_split=())
        better = search.fitting(launch, level)
        if better is not None and better.host_read < found.host_read:
            return _filled(search, better, lefts(better.ledger)) or better
    return found


def _away(search: Search, found: Candidate) -> Candidate:
    """The candidate with matrices of the last layers on the host, where that buys much.

    A GPU that takes over large batches computes in copies of what lies on the host; with the last
    layers there instead of the first they can take up far less.
    """
    if not search.last_layers_pay or not _copies_much(found):
        return found
    left = lefts(found.ledger)
    other = _filled(search, found, left, last=True)
    if other is not None and min(lefts(other.ledger)) > min(left):
        other = _filled(search, other, lefts(other.ledger), last=True) or other
    search.last_layers_pay = other is not None and _worthwhile(other, found)
    return other if other is not None and search.last_layers_pay else found


def _filled(
    search: Search, found: Candidate, left: Sequence[int], *, last: bool = False
) -> Candidate | None:
    """The candidate with the matrices on the host that fill what is `left`, if that fits."""
    for _ in range(_TRIES):
        host = packed(found.ledger, left, last=last)
        if host is None:
            return None
        level = {**found.level, **fields_of(search.model, host)}
        launch = change(found.launch, **level)
        better = search.fitting(launch, level)
        if better is not None:
            return better
        ledger = search.ledger(search.settled(launch))
        short = missing(ledger) if ledger else 0
        left = [each - short - 1 for each in left]
    return None


def _worthwhile(other: Candidate, plain: Candidate) -> bool:
    """Whether the last layers on the host buy enough for a command line that is less plain."""
    if other.host_read > plain.host_read:
        return False
    room = min(lefts(other.ledger)) - min(lefts(plain.ledger))
    return other.host_read < plain.host_read * _LESS or room > _ROOM


def _copies_much(found: Candidate) -> bool:
    """Whether a GPU computes in more than about one copy of the largest matrix on the host."""
    away = on_host(found.ledger)
    return any(
        found.ledger.lines[home].compute_bytes > _COPIES * max(each.nbytes for each in rows)
        for home, rows in away.items()
        if kind_of(found.ledger.devices[home]).op_offload_batch
    )


def _host_is_too_small(search: Search, at: Callable[[int], Launch], last: int) -> bool:
    """Whether what the GPUs cannot hold even without computing is too much for the host."""

    def barely(number: int) -> int | None:
        bare = search.barest(at(number))
        return None if bare is None else slack_of(bare, gpus=True)

    least = barely(last)
    first = last if least is None or least < 0 else edge(barely, last, 0)
    bare = search.barest(at(first))
    if bare is None or slack_of(bare) >= 0:
        return False
    search.missed(-slack_of(bare))
    return True


def polished(search: Search, found: Candidate) -> Candidate:
    """The candidate, or what is better in nothing but one more step that fits after all.

    Edges were sought one at a time; a step of layers can fit where the context ended, and the
    other way round.
    """
    better: Candidate | None = found
    while better is not None:
        found = better
        better = None
        above = one_step_less_offloaded(search, found)
        if above is not None:
            better = search.fitting(*above)
        if better is None and above is not None:
            filled = _packed(search, found)
            better = filled if filled is not found else None
        grows = search.goal.terms.grow and found.slot_tokens < search.most
        if better is None and "n_ctx" not in search.fixed and grows:
            better = search.fitting(one_step_more(search, found), found.level)
    return found


def one_step_more(search: Search, found: Candidate) -> Launch:
    """The launch with one block of cells more for every slot, and its split to be found anew."""
    launch = change(found.launch, n_ctx=found.ledger.context.n_ctx + search.unit)
    return change(launch, tensor_split=()) if search.splits_freely else launch


def one_step_less_offloaded(search: Search, found: Candidate) -> tuple[Launch, Level] | None:
    """The launch with one expert matrix or layer more on the GPUs; None where no level says how."""
    steps, level = list(search.levels), dict(found.level)
    nothing = {"n_cpu_moe": 0, "override_tensor": ()}
    kept = {name: value for name, value in nothing.items() if name not in search.fixed}
    host = without_one(found.ledger) if len(kept) == len(nothing) else None
    if host is not None and found.launch.n_gpu_layers > search.model.n_layer_all:
        above: Level = {**level, **fields_of(search.model, host)}
    elif level in steps[1:]:
        above = steps[steps.index(level) - 1]
    else:
        return None
    launch = change(found.launch, **{**kept, **above})
    return (change(launch, tensor_split=()) if search.splits_freely else launch), above


def _blocks(tokens: int) -> int:
    return -(-tokens // CELLS)
