"""Expert matrices on the host, chosen for the cards they leave: what fits beside them is full.

A level takes layers in turn; here single matrices are chosen, the ledger of each choice has the
last word.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvwise.launch import Launch
from kvwise.memory.backends import kind_of
from kvwise.options import change
from kvwise.plan.candidate import Candidate, lefts, missing
from kvwise.plan.experts import fields_of, on_host, packed
from kvwise.plan.search import Search
from kvwise.plan.split import one_moved
from kvwise.units import MIB

_COPIES = 1.5  # of the largest matrix on the host: more to compute in could be less
_LESS = 0.995
_ROOM = 256 * MIB
_TRIES = 3  # a compute buffer can grow when another matrix is on the host


def by_matrices(search: Search, launch: Launch) -> Candidate | None:
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


def refilled(search: Search, found: Candidate) -> Candidate:
    """The candidate with other expert matrices on the host, where that fills the GPUs better."""
    if {"n_cpu_moe", "override_tensor"} & set(search.fixed):
        return found
    better = _filled(search, found, lefts(found.ledger)) or found
    return with_last_layers(
        search, _shifted(search, better if better.host_read < found.host_read else found)
    )


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


def with_last_layers(search: Search, found: Candidate) -> Candidate:
    """The candidate with matrices of the last layers on the host, where that buys much.

    A GPU that takes over large batches computes in copies of what lies on the host; with the last
    layers there instead of the first they can take up far less.
    """
    left = lefts(found.ledger)
    pays = search.last_layers_pay and _copies_much(found)
    if not pays and not _has_unused_room(found, left):
        return found
    other = _filled(search, found, left, last=True)
    if other is not None and min(lefts(other.ledger)) > min(left):
        other = _filled(search, other, lefts(other.ledger), last=True) or other
    better = other is not None and _worthwhile(other, found)
    if pays:
        search.last_layers_pay = better
    return other if other is not None and better else found


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


def _has_unused_room(found: Candidate, left: Sequence[int]) -> bool:
    """Whether a GPU has room for one more of its matrices, which computing then took away."""
    away = on_host(found.ledger)
    return any(left[home] >= min(each.nbytes for each in rows) for home, rows in away.items())


def _copies_much(found: Candidate) -> bool:
    """Whether a GPU computes in more than about one copy of the largest matrix on the host."""
    away = on_host(found.ledger)
    return any(
        found.ledger.lines[home].compute_bytes > _COPIES * max(each.nbytes for each in rows)
        for home, rows in away.items()
        if kind_of(found.ledger.devices[home]).op_offload_batch
    )
