"""The walk through what a search allows: for each kind of launch, how far it can go.

Memory grows with the context almost linearly, but the compute buffer is not monotonic: the walk
closes in on the edge, then steps over it to see whether a longer context fits after all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from kvwise.launch import Launch
from kvwise.options import change
from kvwise.plan.candidate import CELLS, Candidate, slack_of
from kvwise.plan.edge import edge
from kvwise.plan.experts import fields_of, without_one
from kvwise.plan.lend import lends
from kvwise.plan.offload import Level
from kvwise.plan.order import ABOUT
from kvwise.plan.packing import by_matrices, refilled, with_last_layers
from kvwise.plan.search import Search

_LONGER = 1.02  # a hair more context is no reason for a command line that is less plain
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
    enough = _on_fewest(search, change(launch, **level), most)
    if enough:
        yield enough
        return
    for number, seat in enumerate(search.seats):
        placed = change(launch, **level, **seat)
        found = longest(search, placed, level, least, most)
        if number == 0 and search.lender and _may_pay(search, found):
            held = _worth_lending(search, found.slot_tokens) if found else least
            lent = longest(search.lender, placed, level, min(held, most), most)
            if lent and lends(lent.launch):
                search.remember(lent)
                yield lent
        if found:
            yield found
            if _longer_is_better(search):
                least = max(least, min(found.slot_tokens, most))  # fewer GPUs must hold as much


def _on_fewest(search: Search, launch: Launch, most: int) -> Candidate | None:
    """All that is wanted on the fewest GPUs, where no other choice of GPUs could be faster."""
    alike = len({gpu.bandwidth_bytes_per_s for gpu in search.devices}) == 1
    if not alike or len(search.seats) < 2:
        return None
    for seat in reversed(search.seats[1:]):
        placed = search.sized(change(launch, **seat), most)
        found = search.fitting(placed, search.levels[0])
        if found and found.slot_tokens >= most:
            return found
    return None


def _may_pay(search: Search, found: Candidate | None) -> bool:
    """Whether a layer that two GPUs share can buy what is missing: context, or that it fits."""
    if found is None:
        return True
    order = search.goal.terms.order
    longer = "context" in order and order[:2] != ("resident", "fast")
    return longer and found.slot_tokens < search.most


def _worth_lending(search: Search, held: int) -> int:
    """Tokens that make a command line with `-ot` worth it, where a plain one holds so many."""
    if search.goal.terms.order[0] == "context":
        return held + CELLS
    return math.ceil(held * _LONGER)


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
        found = by_matrices(search, at(0))
        if found is not None:
            return with_last_layers(search, found)
        first = edge(left, last, 0, rough)
    found = search.fitting(at(first), steps[first])
    return refilled(search, found) if found and first else found


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
    search = search.of(found.launch)
    better: Candidate | None = found
    while better is not None:
        found = better
        better = None
        above = one_step_less_offloaded(search, found)
        if above is not None:
            better = search.fitting(*above)
        if better is None and above is not None:
            filled = refilled(search, found)
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
