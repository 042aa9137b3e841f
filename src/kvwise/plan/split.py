"""How several unequal GPUs share the layers: the split that leaves the fullest of them most.

llama.cpp gives each device in turn a run of layers, the output last (`-sm layer`), by the
proportions of `-ts`; proportions that are numbers of layers give exactly these runs
(src/llama-model.cpp load_tensors, get_layer_buft_list, b10605). Left alone it shares by free
memory, whatever the layers weigh and whatever a device holds besides. Which run fits where is
arithmetic on what every layer weighs and keeps; compute buffers are guessed from those seen, and
the ledger of the split has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kvwise.launch import Launch
from kvwise.memory.ledger import Cache, Ledger
from kvwise.memory.placement import HOST
from kvwise.memory.roles import role_of
from kvwise.memory.weights import Weights, weigh
from kvwise.options import change
from kvwise.plan.asking import Ledgers
from kvwise.plan.candidate import lefts, slack_of
from kvwise.plan.lend import balanced, lending, may_lend, without_loans
from kvwise.units import MIB

_ROUNDS = 3  # ledgers asked for one split: a compute buffer moves hardly any layer
_NEARLY = 16 * MIB  # by so much a compute buffer may shrink when a layer moves
_CLOSE = 256 * MIB  # a split that misses by more is not saved by one layer
_HALVINGS = 48  # of the slack, down to single bytes

Weighed = dict[int, tuple[Weights, list[int]]]
"""By the weights' identity: the weights themselves (kept, so that it stays theirs), and bytes."""


@dataclass
class Splits:
    """The best split of each launch, found once."""

    ledgers: Ledgers
    lends: bool = False  # may matrices of one layer lie on another GPU than the layer
    _exact: dict[Launch, Launch] = field(default_factory=dict)
    _fitted: dict[Launch, Launch] = field(default_factory=dict)
    _weighed: Weighed = field(default_factory=dict)

    def rough(self, launch: Launch, *, computing: bool = True) -> Launch:
        """The launch with the split that looks best now, with or without compute buffers."""
        bare = self.ledgers.bare(launch)
        if bare is None or bare.placement.n_gpu < 2:
            return launch
        work = self.ledgers.guess(launch, bare.context.n_ctx) if computing else ()
        return _shared(launch, bare, work, self._weighed)

    def exact(self, launch: Launch) -> Launch:
        """The launch with a split that fits by its ledger, or the best that was looked at."""
        if launch not in self._exact:
            self._exact[launch] = self._settled(launch)
        found, known = self._exact[launch], self.known(launch)
        if known is not None and known != found and self._misses_by_more(found, known):
            self._exact[launch] = known
        return self._exact[launch]

    def known(self, launch: Launch) -> Launch | None:
        """The launch with the split that fitted last at another context, if that may fit here."""
        fitted = self._fitted.get(_of_any_length(launch))
        split = change(fitted, n_ctx=launch.n_ctx) if fitted else None
        bare = self.ledgers.bare(split) if split else None
        if split is None or bare is None:
            return None
        work = self.ledgers.guess_of_split(split, bare.context.n_ctx)
        return split if slack_of(bare, work) >= -_NEARLY else None

    def _misses_by_more(self, split: Launch, other: Launch) -> bool:
        left = self._left(split)
        if left is None or left >= 0:
            return False
        beside = self._left(other)
        return beside is not None and beside > left

    def _left(self, split: Launch) -> int | None:
        """What its ledger leaves; a split that fits is remembered for other contexts."""
        ledger = self.ledgers.whole(split)
        if ledger is None:
            return None
        left = slack_of(ledger)
        if left >= 0 and ledger.placement.n_gpu > 1:
            self._fitted[_of_any_length(split)] = split
        return left

    def slack(self, ledger: Ledger, work: Sequence[int] = (), *, gpus: bool = False) -> int:
        """Bytes left on the tightest line, with what one layer may lend where that is allowed."""
        left = slack_of(ledger, work, gpus=gpus)
        if left >= 0 or not self.lends or not may_lend(ledger):
            return left
        _, rooms = balanced(ledger, lefts(ledger, work))
        return min(rooms[:-1] if gpus else rooms)

    def _settled(self, launch: Launch) -> Launch:
        tried: dict[Launch, int] = {}
        split = self.rough(launch)
        while split not in tried and len(tried) < _ROUNDS:
            left = self._left(split)
            ledger, bare = self.ledgers.whole(split), self.ledgers.bare(split)
            if left is None or ledger is None or bare is None:
                break
            tried[split] = left
            if left >= 0 or ledger.placement.n_gpu < 2:
                return split
            work = _work(ledger, bare)
            split = _shared(launch, bare, work, self._weighed)
            after = self.ledgers.bare(split)
            if after is None or slack_of(after, work) < -_NEARLY:
                break
        if not tried:
            return split
        known = self.known(launch)
        if known is not None and known not in tried:
            left = self._left(known)
            if left is not None:
                tried[known] = left
        best = max(tried, key=lambda each: tried[each])
        if self.lends:
            return self._lending(best)
        return self._beside(best, tried[best]) if -_CLOSE < tried[best] < 0 else best

    def _lending(self, split: Launch) -> Launch:
        """The split with matrices lent to a GPU with room, if that fits or misses by less."""
        best, most = split, self._left(split)
        bare = self.ledgers.bare(split)
        while most is not None and most < 0 and bare is not None and may_lend(bare):
            whole, beside = self.ledgers.whole(best), self.ledgers.bare(best)
            if whole is None or beside is None:
                break
            loans, rooms = balanced(bare, lefts(bare, _work(whole, beside)))
            lent = lending(split, bare, loans)
            if lent == best or min(rooms) < -_NEARLY:
                break
            left = self._left(lent)
            if left is None or left <= most:
                break
            best, most = lent, left
        return best

    def _beside(self, split: Launch, left: int) -> Launch:
        """A split with single layers moved to a neighbour, if that fits or misses by less."""
        while left < 0:
            found, most = split, left
            for other, _ in one_moved(split):
                bare = self.ledgers.bare(other)
                if bare is None or slack_of(bare) < 0:
                    continue
                work = self.ledgers.guess_of_split(other, bare.context.n_ctx)
                if work and slack_of(bare, work) < most - _NEARLY:
                    continue
                slack = self._left(other)
                if slack is not None and slack > most:
                    found, most = other, slack
            if found is split:
                break
            split, left = found, most
        return split


def _work(whole: Ledger, bare: Ledger) -> list[int]:
    """Compute bytes of each line."""
    pairs = zip(whole.lines, bare.lines, strict=True)
    return [line.total_bytes - without.total_bytes for line, without in pairs]


def _of_any_length(split: Launch) -> Launch:
    return change(without_loans(split), n_ctx=0, tensor_split=())


def one_moved(split: Launch) -> Iterator[tuple[Launch, int]]:
    """The same with one layer given to a neighbour, and which GPU takes it."""
    counts = split.tensor_split
    for a in range(len(counts) - 1):
        for giver, taker in ((a, a + 1), (a + 1, a)):
            moved = list(counts)
            moved[giver] -= 1
            moved[taker] += 1
            if moved[giver] >= 0:
                yield change(split, tensor_split=tuple(moved)), taker


def _shared(
    launch: Launch, bare: Ledger, work: Sequence[int], known: Weighed | None = None
) -> Launch:
    counts = share(units(bare, known), rooms(bare, work))
    return change(launch, tensor_split=tuple(float(count) for count in counts))


def units(ledger: Ledger, known: Weighed | None = None) -> list[int]:
    """Bytes that each layer on the GPUs takes there, weights and caches; the output last.

    `known` keeps what the weights of a placement take between questions.
    """
    model, placement = ledger.model, ledger.placement
    gpus = ledger.devices[: placement.n_gpu]
    weights = weigh(model, ledger.launch, placement, gpus)
    kept = (known or {}).get(id(weights))
    weighed = kept[1] if kept else _weighed(ledger, weights)
    if known is not None and kept is None:
        known[id(weights)] = weights, weighed
    n_all, sizes = model.n_layer_all, list(weighed)
    if ledger.context.offload_kqv:
        for cache in ledger.caches:
            for layer, size in _kept(cache):
                if layer < n_all:
                    sizes[layer] += size
    return sizes[n_all + 1 - placement.gpu_layers :]


def _weighed(ledger: Ledger, weights: Weights) -> list[int]:
    """Bytes of weights that each layer has on a GPU, the output last."""
    model, table = ledger.model, ledger.model.header.by_name
    n_all = model.n_layer_all
    sizes = [0] * (n_all + 1)
    for slot, device in weights.where.items():
        if device == HOST:
            continue
        role = role_of(slot, model.architecture)
        tensor = table.get(slot) or table.get("token_embd.weight")
        layer = n_all if role.part == "output" else role.layer
        if tensor is not None and 0 <= layer <= n_all:
            sizes[layer] += tensor.nbytes
    return sizes


def _kept(cache: Cache) -> list[tuple[int, int]]:
    """(layer, bytes) of one cache."""
    rows = [
        (cache.k_row[at] if at < len(cache.k_row) else 0)
        + (cache.v_row[at] if at < len(cache.v_row) else 0)
        for at in range(len(cache.layers))
    ]
    total = sum(rows)
    if not total:
        return [(layer, cache.nbytes // len(cache.layers)) for layer in cache.layers]
    return [
        (layer, cache.nbytes * row // total) for layer, row in zip(cache.layers, rows, strict=True)
    ]


def rooms(ledger: Ledger, work: Sequence[int]) -> list[int]:
    """Bytes that each GPU has for layers: free, without reserve, driver, drafts, compute."""
    found = []
    for number in range(ledger.placement.n_gpu):
        line, device = ledger.lines[number], ledger.devices[number]
        taken = line.overhead_bytes + line.extra_bytes + (device.reserve_bytes or 0)
        compute = work[number] if number < len(work) else 0
        found.append((line.free_bytes or 0) - taken - compute)
    return found


def share(sizes: Sequence[int], room: Sequence[int]) -> list[int]:
    """How many units each GPU gets, in order, so that the one with least left has most left."""
    most = max(room)
    least = min(room) - sum(sizes)
    counts = _filled(sizes, room, least) or [len(sizes)] + [0] * (len(room) - 1)
    low, high = least, most
    for _ in range(_HALVINGS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        found = _filled(sizes, room, middle)
        if found is None:
            high = middle
        else:
            low, counts = middle, found
    return counts


def _filled(sizes: Sequence[int], room: Sequence[int], spare: int) -> list[int] | None:
    """Units per GPU when each is filled in turn until only `spare` is left; None = too many."""
    counts, at = [], 0
    for space in room:
        left, first = space - spare, at
        while at < len(sizes) and sizes[at] <= left:
            left -= sizes[at]
            at += 1
        counts.append(at - first)
    return counts if at == len(sizes) else None
