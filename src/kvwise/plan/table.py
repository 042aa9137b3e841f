"""Tables: what any models need on any GPUs, by context and by cache types.

One curve serves all cards of a kind (`taken`), so a further GPU costs only the way to its edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from kvwise.errors import Refused, UsageError
from kvwise.gguf.model import Model
from kvwise.gguf.types import CACHE_TYPES
from kvwise.launch import Launch
from kvwise.memory.parts.companions import NONE, Companions
from kvwise.options import change
from kvwise.plan.candidate import CELLS
from kvwise.plan.table_layers import most_layers
from kvwise.plan.taken import Curve, Machine, Taken, alike, fits, longest, slack

Pair = tuple[str, str]
"""Types of K and V."""

LONGEST = 1 << 27
"""Tokens beyond which no engine is asked (search.py)."""

NO_KERNEL = "no_gpu_attention"
"""Code of our own for types that llama.cpp takes and a usual GPU build has no attention for."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of the table with the launch whose cache types and context vary."""

    model: Model
    launch: Launch
    companions: Companions = NONE
    called: str = ""  # for people; else what the file says

    @property
    def everything(self) -> int:
        """All layers as -ngl counts them: the output is one."""
        return self.model.n_layer_all + 1

    @property
    def name(self) -> str:
        return self.called or self.model.name or self.model.architecture


@dataclass(frozen=True, slots=True)
class At:
    """One context of a cell.

    `cache_bytes` is all of the cache, `share` the part of the machine's memory that it takes
    there. `beside_bytes` is what a draft, projector or adapter takes there. `gpu_bytes` and
    `left_bytes` (with the reserve kept) are None in a cell that no context fits, because a graph
    for it would tell nobody anything. `n_predict` is what a prompt leaves in a slot; None without a
    prompt. `n_gpu_layers` is the most layers on the GPUs beside the context (as -ngl counts them);
    None if nobody asked, if none fit, or if the launch fixes them.
    """

    n_ctx: int
    cache_bytes: int = 0
    share: float | None = None
    beside_bytes: int = 0
    gpu_bytes: int | None = None
    left_bytes: int | None = None
    fits: bool = False
    n_predict: int | None = None
    n_gpu_layers: int | None = None
    beyond_training: bool = False
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """A model on a machine with one pair of cache types.

    `n_ctx_max` is the longest `-c` that fits the launch as it is, `n_ctx_max_all_layers` the
    longest with every layer, expert and cache on the GPUs (None: none fits); `limit` says what
    ends it: `memory`, `training`, or `nothing` (the largest context anyone asks for). `refused`:
    the engine or its GPU build does not take these types. `misses_bytes`: what is missing at the
    least context, at least.
    """

    model: int
    machine: int
    pair: Pair
    at: tuple[At, ...]
    n_ctx_max: int | None = None
    n_ctx_seq_max: int | None = None
    n_ctx_max_all_layers: int | None = None
    n_predict_max: int | None = None
    limit: str | None = None
    misses_bytes: int | None = None
    verified: bool = True
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """All cells, model by model, machine by machine, pair by pair."""

    entries: tuple[Entry, ...]
    machines: tuple[Machine, ...]
    pairs: tuple[Pair, ...]
    contexts: tuple[int, ...]
    prompt_tokens: int | None
    cells: tuple[Cell, ...]
    ledgers: int  # made for it
    layers: bool = False  # each context says how many layers fit beside it

    def cell(self, model: int, machine: int, pair: int) -> Cell:
        """The cell of these numbers."""
        return self.cells[(model * len(self.machines) + machine) * len(self.pairs) + pair]


def pairs_of(texts: Sequence[str]) -> tuple[Pair, ...]:
    """Cache types as people write them: `q8_0` for both, `q8_0/q4_0` for K and V, `all`.

    Each once, in order. Raises UsageError.
    """
    found: dict[Pair, None] = {}
    for text in texts:
        for word in text.replace(" ", "").split(","):
            if word == "all":
                found |= dict.fromkeys((each, each) for each in CACHE_TYPES)
                continue
            k, _, v = word.partition("/")
            found[_known(k), _known(v or k)] = None
    return tuple(found)


def _known(name: str) -> str:
    lowered = name.lower()
    if lowered not in CACHE_TYPES:
        raise UsageError(
            "{name!r} is not a cache type", name=name[:40], known=", ".join(CACHE_TYPES),
            hint="one of {known}, or two of them as K/V",
        )  # fmt: skip
    return lowered


def usual_contexts(models: Sequence[Model]) -> tuple[int, ...]:
    """4,096 and its doubles up to what the models were trained for, at most 131,072."""
    trained = max((model.n_ctx_train for model in models), default=0) or 32768
    return tuple(1 << bit for bit in range(12, 18) if bit == 12 or 1 << bit <= trained)


@dataclass
class _Maker:
    """Makes the cells of one model."""

    number: int
    entry: Entry
    machines: Sequence[Machine]
    contexts: Sequence[int]
    prompt_tokens: int | None
    past_training: bool
    layers: bool = False
    curves: dict[tuple[object, ...], Curve] = field(default_factory=dict)

    @cached_property
    def trained(self) -> int:
        return self.entry.model.n_ctx_train

    @property
    def asked(self) -> int:
        return sum(curve.asked for curve in self.curves.values())

    def cells(self, pairs: Sequence[Pair]) -> Iterator[Cell]:
        """By machine, then by pair; worked out pair by pair so that curves stay few."""
        made = {
            (place, pair): self._cell(place, machine, pair)
            for pair in pairs
            for place, machine in enumerate(self.machines)
        }
        for place in range(len(self.machines)):
            yield from (made[place, pair] for pair in pairs)

    def _curve(self, machine: Machine, launch: Launch) -> Curve:
        key = (launch, alike(machine))
        if key not in self.curves:
            entry = self.entry
            self.curves[key] = Curve(entry.model, launch, machine, entry.companions)
        return self.curves[key]

    def _cell(self, place: int, machine: Machine, pair: Pair) -> Cell:
        launch = change(self.entry.launch, type_k=pair[0], type_v=pair[1])
        curve = self._curve(machine, launch)
        first = curve.bare(curve.step)
        refused = first if isinstance(first, Refused) else _without_kernel(first, machine)
        most = self._most(curve)
        best = None if refused else longest(curve, machine, curve.step, most)
        at = tuple(
            self._at(curve, machine, n_ctx, whole=best is not None) for n_ctx in self.contexts
        )
        if self.layers and refused is None:
            at = tuple(self._with_layers(each, machine, launch) for each in at)
        if refused is not None or isinstance(first, Refused):
            return Cell(self.number, place, pair, at, refused=refused)
        if best is None:
            left = slack(first, machine)
            misses = None if left is None else max(0, -left)
            return Cell(self.number, place, pair, at, limit="memory", misses_bytes=misses)
        taken = curve.at(best)
        assert isinstance(taken, Taken)  # noqa: S101  (it fits)
        limit = "memory" if best < most // curve.step * curve.step else self._limit()
        return Cell(
            self.number,
            place,
            pair,
            at,
            n_ctx_max=best,
            n_ctx_seq_max=taken.n_ctx_seq,
            n_ctx_max_all_layers=self._all_layers(machine, launch, best, taken),
            n_predict_max=self._left(taken),
            limit=limit,
            verified=taken.verified,
        )

    def _all_layers(self, machine: Machine, launch: Launch, best: int, taken: Taken) -> int | None:
        if taken.all_layers or not machine.devices:
            return best if taken.all_layers else None
        whole = change(launch, n_gpu_layers=-1, n_cpu_moe=0, override_tensor=(), offload_kqv=True)
        curve = self._curve(machine, whole)
        return longest(curve, machine, curve.step, self._most(curve))

    def _most(self, curve: Curve) -> int:
        """The longest `-c` worth asking for: what every slot was trained for."""
        if self.past_training or not self.trained:
            return LONGEST
        blocks = max(1, self.trained // CELLS)
        return min(LONGEST, blocks * curve.step)

    def _limit(self) -> str:
        return "nothing" if self.past_training or not self.trained else "training"

    def _at(self, curve: Curve, machine: Machine, n_ctx: int, *, whole: bool) -> At:
        """One context; not `whole`: of a cell that never fits only the cache is told."""
        taken = curve.at(n_ctx) if whole else curve.bare(n_ctx)
        if isinstance(taken, Refused):
            return At(n_ctx, refused=taken)
        total = machine.total_bytes
        return At(
            n_ctx,
            cache_bytes=taken.cache + taken.cache_host,
            share=taken.cache / total if total else None,
            beside_bytes=taken.beside,
            gpu_bytes=sum(taken.gpu) if whole and machine.devices else None,
            left_bytes=slack(taken, machine) if whole else None,
            fits=whole and fits(taken, machine),
            n_predict=self._left(taken),
            beyond_training=bool(self.trained) and taken.n_ctx_seq > _padded(self.trained),
        )

    def _with_layers(self, at: At, machine: Machine, launch: Launch) -> At:
        """The context with the layers that fit beside it, where the launch leaves them open."""
        everything = self.entry.everything
        if at.refused or not machine.devices or launch.n_gpu_layers >= 0:
            return at
        if at.fits:
            return replace(at, n_gpu_layers=everything)
        found = most_layers(self._curve, machine, launch, at.n_ctx, everything)
        return replace(at, n_gpu_layers=found)

    def _left(self, taken: Taken) -> int | None:
        """What the prompt leaves in a slot; negative: so many tokens do not find room."""
        if self.prompt_tokens is None:
            return None
        room = taken.n_ctx_seq
        if self.trained and not self.past_training:
            room = min(room, self.trained)
        return room - self.prompt_tokens


def _padded(tokens: int) -> int:
    return -(-tokens // CELLS) * CELLS


def _without_kernel(taken: Taken, machine: Machine) -> Refused | None:
    """Types that llama.cpp takes, but whose attention a GPU would leave to the processor."""
    if not taken.no_attention:
        return None
    kinds = ", ".join(dict.fromkeys(device.kind.upper() for device in machine.devices))
    return Refused(
        NO_KERNEL,
        "usual {kinds} builds have no flash attention for these cache types and heads: the "
        "processor would do it",
        hint="give K and V the same type of f16, bf16, q8_0 or q4_0, or build llama.cpp with "
        "GGML_CUDA_FA_ALL_QUANTS",
        kinds=kinds,
    )


def make_table(
    entries: Sequence[Entry],
    machines: Sequence[Machine],
    pairs: Sequence[Pair],
    contexts: Sequence[int],
    *,
    prompt_tokens: int | None = None,
    past_training: bool = False,
    layers: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Table:
    """Every model on every machine with every pair of cache types.

    `past_training` looks for contexts beyond what a model was trained for, too. `layers` finds how
    many layers fit beside each context, which takes graphs of its own. `progress` hears
    how many models are done. What a launch is refused for stands in its cell; raises UsageError
    for a launch that names what is not there.
    """
    cells: list[Cell] = []
    ledgers = 0
    for number, entry in enumerate(entries):
        maker = _Maker(number, entry, machines, contexts, prompt_tokens, past_training, layers)
        cells += maker.cells(pairs)
        ledgers += maker.asked
        progress(number + 1)
    return Table(
        tuple(entries), tuple(machines), tuple(pairs), tuple(contexts), prompt_tokens,
        tuple(cells), ledgers, layers,
    )  # fmt: skip
