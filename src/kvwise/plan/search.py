"""Candidates: launches that keep what the user fixed, fit the machine, and hold the most context.

Everything is asked of `account`, so a candidate fits by the same figures that the ledger shows.
Memory grows with the context almost linearly, but the compute buffer is not monotonic: the
search closes in on the edge, then steps over it to see whether a longer context fits after all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvwise.device import Device, Host
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory import flash
from kvwise.memory.ledger import Ledger
from kvwise.memory.placement import HOST
from kvwise.options import change
from kvwise.plan.asking import Account, Ledgers
from kvwise.plan.candidate import CELLS, Candidate, missing, slack_of
from kvwise.plan.edge import edge
from kvwise.plan.goal import Goal
from kvwise.plan.offload import Level, is_full, levels
from kvwise.plan.quality import PAIRS, meets, quality_of
from kvwise.plan.speed import Weights, host_reads, weights_read

UBATCHES = (512, 256, 128)
_LARGE_UBATCHES = (2048, 1024)
_STEPS_BEYOND = 2  # how far to look past the edge for a context that fits after all
_LONGEST = 1 << 27  # an engine asked for more dies before it says why (engine-facts.md 0.8)


@dataclass
class Search:
    """One request: a model, a machine, a goal, and what the user fixed."""

    model: Model
    devices: Sequence[Device]
    host: Host | None
    goal: Goal
    base: Launch
    fixed: Collection[str]
    account: Account
    found_any: bool = False  # a launch was taken by the engine, whether it fits or not
    closest: int | None = None  # fewest bytes by which a launch missed

    @cached_property
    def ledgers(self) -> Ledgers:
        return Ledgers(self.model, self.devices, self.host, self.account)

    @property
    def refusals(self) -> Sequence[Refused]:
        return self.ledgers.refusals

    @cached_property
    def weights(self) -> Weights:
        return weights_read(self.model)

    @cached_property
    def slots(self) -> int:
        if "n_seq_max" in self.fixed and self.goal.slots is None:
            return self.base.n_seq_max
        return self.goal.slots or 1

    @cached_property
    def unit(self) -> int:
        """Smallest step of n_ctx that changes every slot by a whole block."""
        return CELLS * self.slots

    @cached_property
    def trained(self) -> int:
        return self.model.n_ctx_train or _LONGEST

    @cached_property
    def least(self) -> int:
        """Tokens that a slot must hold."""
        return self.goal.least(self.trained)

    @cached_property
    def start(self) -> Launch:
        """The user's launch with slots and build settled, before anything is searched."""
        changes: dict[str, Any] = {"fit": False}
        if self.embeds and "embeddings" not in self.fixed:
            changes["embeddings"] = True
        if "n_seq_max" not in self.fixed or self.goal.slots is not None:
            changes["n_seq_max"] = self.slots
            if "kv_unified" not in self.fixed:
                changes["kv_unified"] = False
        return change(self.base, **changes)

    @property
    def levels(self) -> Sequence[Level]:
        found = levels(self.model, len(self.devices), self.fixed)
        if self.goal.never_offload and self.devices:
            full = [level for level in found if is_full(level, self.model)]
            return full or found[:1]
        return found

    # -- what may be tried -----------------------------------------------------

    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of cache types that the user's flags and the quality floor admit, best first."""
        k = self.base.type_k if "type_k" in self.fixed else None
        v = self.base.type_v if "type_v" in self.fixed else None
        other = (k or v or "f16") if self.model.is_mla else "f16"  # it wants both alike
        alone = (k or other, v or other)
        if (k and v) or not self._has_cache:
            return [alone]
        pairs = [pair for pair in PAIRS if k in (None, pair[0]) and v in (None, pair[1])] or [alone]
        if self.model.is_mla:
            pairs = [pair for pair in pairs if pair[0] == pair[1]] or [alone]
        good = [pair for pair in pairs if meets(quality_of(*pair), self.goal.floor)]
        return good or pairs[:1]

    @property
    def _has_cache(self) -> bool:
        return not (self.model.is_recurrent and not self.model.is_hybrid)

    @property
    def embeds(self) -> bool:
        """An encoder: it reads a text whole, in one micro-batch, and generates nothing."""
        return not self.model.causal_attn and not self.model.is_diffusion

    def ubatches(self) -> tuple[int, ...]:
        """Micro-batches to try, best first."""
        if "n_ubatch" in self.fixed:
            return (self.base.n_ubatch,)
        if self.embeds:
            return (min(self.trained, max(self.goal.enough, self.least)),)
        if self.goal.purpose == "max-speed" and self.devices:
            return (*_LARGE_UBATCHES, *UBATCHES[:1])
        if self.goal.purpose == "min-memory":
            return UBATCHES[::-1]
        return UBATCHES

    # -- asking ----------------------------------------------------------------

    def ledger(self, launch: Launch) -> Ledger | None:
        """The ledger of a launch, or None where the engine would refuse it."""
        return self.ledgers.whole(launch)

    def _hopeless(self, launch: Launch) -> bool:
        """Whether a launch surely misses, and by no less than another one did."""
        if not self.found_any or self.closest is None:
            return False
        bare = self.ledgers.bare(launch)
        return bare is not None and missing(bare) >= self.closest

    def fitting(self, launch: Launch, level: Level) -> Candidate | None:
        """The launch as a candidate if the engine takes it and it fits."""
        if self._hopeless(launch):
            return None
        ledger = self.ledger(launch)
        if ledger is None:
            return None
        self.found_any = True
        if self._attention_leaves_gpu(ledger):
            return None
        short = missing(ledger)
        if short:
            self.closest = min(short, self.closest or short)
            return None
        reads = host_reads(self.weights, launch, len(self.devices)) + self._cache_read(ledger)
        full = bool(self.devices) and is_full(level, self.model)
        shared = launch.kv_unified and self.goal.slots is not None
        return Candidate(launch, ledger, full, reads, self.trained, shared)

    def at(self, launch: Launch, tokens_per_slot: int, level: Level) -> Candidate | None:
        tokens = _blocks(tokens_per_slot) * self.unit
        return self.fitting(change(launch, n_ctx=tokens), level)

    def _cache_read(self, ledger: Ledger) -> int:
        """Bytes of cache on the host that a token reads when the context is well used."""
        if not self.devices:
            return 0
        used = min(self.goal.enough * self.slots, ledger.context.n_ctx)
        return ledger.host.context_bytes * used // max(1, ledger.context.n_ctx)

    def _attention_leaves_gpu(self, ledger: Ledger) -> bool:
        """Whether a GPU lacks flash attention for cache types that nobody insists on.

        A quantized V cache forces it on; what a GPU cannot do then runs on the CPU.
        """
        if {"type_k", "type_v"} <= set(self.fixed) or quality_of(*_types(ledger)) == "lossless":
            return False
        layers = flash.attention_layers(self.model, ledger.context)
        homes = ((layer, ledger.placement.of(layer)) for layer in layers)
        return any(
            home != HOST
            and not flash.supported(self.model, ledger.context, ledger.devices[home], layer)
            for layer, home in homes
        )

    def with_types(self, launch: Launch, type_k: str, type_v: str) -> Launch:
        return change(launch, type_k=type_k, type_v=type_v)

    def with_context(self, launch: Launch, n_ctx: int) -> Launch:
        return change(launch, n_ctx=n_ctx)

    def with_changes(
        self, launch: Launch, changes: dict[str, Any], level: Level
    ) -> Candidate | None:
        return self.fitting(change(launch, **changes), level)

    # -- searching -------------------------------------------------------------

    def longest(self, launch: Launch, level: Level, least: int, most: int) -> Candidate | None:
        """The candidate with the longest context of `least` to `most` tokens per slot."""
        if "n_ctx" in self.fixed:
            return self.fitting(launch, level)
        low, high = _blocks(least), max(_blocks(least), _blocks(most))
        best, top = (self.at(launch, blocks * CELLS, level) for blocks in (low, high))
        if best is None or top is not None:
            return top
        last = edge(lambda blocks: self._slack(launch, blocks * CELLS), low, high)
        further = [blocks for blocks in range(last + 2, last + 2 + _STEPS_BEYOND) if blocks < high]
        found = [self.at(launch, blocks * CELLS, level) for blocks in (last, *further)]
        return [each for each in found if each][-1]

    def first_level(self, launch: Launch, tokens: int) -> tuple[Level, Candidate] | None:
        """The fastest level at which a slot of `tokens` tokens fits."""
        steps = self.levels
        context = None if "n_ctx" in self.fixed else tokens

        def slack(at: int) -> int | None:
            return self._slack(change(launch, **steps[at]), context)

        def roughly(at: int) -> int | None:
            return self.ledgers.rough_slack(self._sized(change(launch, **steps[at]), context))

        first, last, left = 0, len(steps) - 1, slack(0)
        if left is None or left < 0:
            first = edge(slack, last, 0, edge(roughly, last, 0))
        settled = change(launch, **steps[first])
        found = (
            self.fitting(settled, steps[first])
            if context is None
            else self.at(settled, context, steps[first])
        )
        return (steps[first], found) if found else None

    def _slack(self, launch: Launch, tokens: int | None) -> int | None:
        """Bytes left on the tightest device, its reserve set aside; None where it is refused.

        What is missing may be a guess; that something is missing never is.
        """
        launch = self._sized(launch, tokens)
        bare = self.ledgers.bare(launch)
        if bare is not None and missing(bare):
            return self.ledgers.rough_slack(launch)
        ledger = self.ledger(launch)
        if ledger is None or self._attention_leaves_gpu(ledger):
            return None
        return slack_of(ledger)

    def _sized(self, launch: Launch, tokens: int | None) -> Launch:
        return launch if tokens is None else change(launch, n_ctx=_blocks(tokens) * self.unit)

    def candidates(self) -> list[Candidate]:
        """Fitting launches worth comparing; empty if nothing reaches the goal's least context."""
        return [found for found in self._candidates() if found.slot_tokens >= self.least]

    def _candidates(self) -> Iterator[Candidate]:
        least = min(self.least, self.trained)
        grow = self.goal.terms.grow
        most = max(least, self.trained if grow else min(self.goal.enough, self.trained))
        for pair in self.pairs():
            saturated = False
            for ubatch in self.ubatches():
                launch = self._with(pair, ubatch)
                level = self.levels[0]
                found = self.longest(change(launch, **level), level, least, most)
                if found:
                    yield found
                    saturated = saturated or found.slot_tokens >= most
                if found is None or not saturated:
                    yield from self._offloaded(launch, least, most, ubatch)
            if saturated and self.goal.purpose != "min-memory":
                return  # a smaller cache type could not give more context

    def _offloaded(self, launch: Launch, least: int, most: int, ubatch: int) -> Iterator[Candidate]:
        if len(self.levels) < 2 or ubatch != self.ubatches()[0]:
            return
        targets = sorted({least, min(self.goal.enough, most), most})
        for tokens in targets:
            found = self.first_level(launch, tokens)
            if found is None:
                return
            level, candidate = found
            yield self.longest(change(launch, **level), level, tokens, most) or candidate
        if "offload_kqv" not in self.fixed:  # the cache alone in the host's memory
            level = dict(self.levels[0]) | {"offload_kqv": False}
            on_host = self.longest(change(launch, **level), level, least, most)
            if on_host:
                yield on_host

    def _with(self, pair: tuple[str, str], ubatch: int) -> Launch:
        changes: dict[str, Any] = {"type_k": pair[0], "type_v": pair[1], "n_ubatch": ubatch}
        if ubatch > self.start.n_batch and "n_batch" not in self.fixed:
            changes["n_batch"] = ubatch
        return change(self.start, **changes)


def _blocks(tokens: int) -> int:
    return -(-tokens // CELLS)


def _types(ledger: Ledger) -> tuple[str, str]:
    return ledger.context.type_k, ledger.context.type_v
