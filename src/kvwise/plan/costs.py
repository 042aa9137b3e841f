"""What each decision of a launch freed or took, in bytes, tokens and speed.

A decision is undone alone, everything else stays, and two exact ledgers are subtracted; tokens
are what the bytes would hold as context at the launch's own cache types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvwise.launch import Launch
from kvwise.memory.ledger import Ledger
from kvwise.options import change
from kvwise.plan.candidate import CELLS, Candidate
from kvwise.plan.experts import count_on_host
from kvwise.plan.search import Search
from kvwise.plan.speed import Measured, Speed, against, estimate
from kvwise.plan.speed.words import with_speed
from kvwise.text import Phrase, phrase
from kvwise.units import show

_USUAL_UBATCH = 512  # llama.cpp's default
_PLACES = {"-ngl", "-ncmoe", "-nkvo"}  # their opposite does not fit: what they free is no choice


@dataclass(frozen=True, slots=True)
class Cost:
    """A decision against its opposite.

    `flag` names it; `freed_bytes` on the GPUs (the host without any), negative = it takes them;
    `tokens` what they hold per slot, None where that is no choice or a context takes no bytes;
    `decode` and `prompt` the speed relative to the opposite (1.1 = a tenth faster), None = not
    known, or no more than noise.
    """

    flag: str
    what: Phrase
    freed_bytes: int
    tokens: int | None
    decode: float | None = None
    prompt: float | None = None

    @property
    def sentence(self) -> Phrase:
        """The cost in words."""
        size, tokens = show(abs(self.freed_bytes)), abs(self.tokens or 0)
        if self.freed_bytes >= 0:
            said = phrase("{what} frees {size}", what=self.what, size=size)
            if tokens:
                said = phrase(
                    "{what} frees {size} = {tokens:,} tokens",
                    what=self.what, size=size, tokens=tokens,
                )  # fmt: skip
        else:
            said = phrase("{what} takes {size}", what=self.what, size=size)
            if tokens:
                said = phrase(
                    "{what} takes {size} = {tokens:,} tokens",
                    what=self.what, size=size, tokens=tokens,
                )  # fmt: skip
        return with_speed(said, self.decode, self.prompt)

    def as_json(self) -> dict[str, Any]:
        """One entry of `costs` in kvwise/plan/1."""
        return {
            "flag": self.flag,
            "freed_bytes": self.freed_bytes,
            "tokens_per_slot": self.tokens,
            "decode_ratio": None if self.decode is None else round(self.decode, 3),
            "prompt_ratio": None if self.prompt is None else round(self.prompt, 3),
        }


def costs(
    search: Search, chosen: Candidate, speed: Speed, results: Sequence[Measured] = ()
) -> tuple[Cost, ...]:
    """The decisions of a candidate that differ from the plain way; `results` are the measurements
    that `speed` stands on."""
    launch = chosen.launch
    per_block = _bytes_per_block(search, chosen)
    found = []
    for flag, what, opposite in _decisions(search, chosen):
        if opposite == launch:
            continue
        ledger = search.ledger(opposite)
        if ledger is None:
            continue
        freed = _bytes(ledger) - _bytes(chosen.ledger)
        tokens = freed * CELLS // per_block if per_block and flag not in _PLACES else None
        other = estimate(ledger, speed.depth, host=search.host, results=results)
        ratios = against.decode(speed, other), against.prompt(speed, other)
        found.append(Cost(flag, what, freed, tokens, *ratios))
    return tuple(each for each in found if each.freed_bytes)


def _decisions(search: Search, chosen: Candidate) -> Iterator[tuple[str, Phrase, Launch]]:
    """(flag, name, the launch with its opposite)."""
    launch = chosen.launch
    k, v = launch.type_k, launch.type_v
    if any(cache.kind == "kv" for cache in chosen.ledger.caches) and (k, v) != ("f16", "f16"):
        types = phrase("{type} for K and V", type=k) if k == v else phrase("K {k}, V {v}", k=k, v=v)
        yield "-ctk/-ctv", types, search.with_types(launch, "f16", "f16")
    if launch.n_ubatch != _USUAL_UBATCH and not search.embeds:
        yield (
            "-ub",
            phrase("-ub {size}", size=launch.n_ubatch),
            change(launch, n_ubatch=_USUAL_UBATCH, n_batch=max(launch.n_batch, _USUAL_UBATCH)),
        )
    named = launch.override_tensor if "override_tensor" in search.fixed else ()
    away = count_on_host(chosen.ledger)
    if away and (launch.n_cpu_moe or launch.override_tensor != named):
        yield (
            "-ncmoe",
            phrase("keeping {count} expert matrices on the host", count=away),
            change(launch, n_cpu_moe=0, override_tensor=named),
        )
    everything = search.model.n_layer_all + 1
    if search.devices and 0 <= launch.n_gpu_layers < everything:
        what = phrase("-ngl {count}", count=launch.n_gpu_layers)
        yield "-ngl", what, change(launch, n_gpu_layers=everything)
    if search.devices and not launch.offload_kqv:
        yield "-nkvo", phrase("-nkvo"), change(launch, offload_kqv=True)
    if launch.swa_full and search.model.is_swa_any:
        yield "--swa-full", phrase("--swa-full"), change(launch, swa_full=False)
    if launch.flash_attn == "off":
        yield "-fa", phrase("-fa off"), change(launch, flash_attn="on")


def _bytes(ledger: Ledger) -> int:
    """All bytes on the GPUs; on the host where there are none."""
    gpus = [line.total_bytes for line in ledger.lines if not line.host]
    return sum(gpus) if gpus else ledger.host.total_bytes


def _bytes_per_block(search: Search, chosen: Candidate) -> int:
    """What one block of cells more in every slot takes there."""
    n_ctx = chosen.ledger.context.n_ctx
    more = search.ledger(search.with_context(chosen.launch, n_ctx + search.unit))
    if more is None:
        return 0
    return max(0, sum(_context(more)) - sum(_context(chosen.ledger)))


def _context(ledger: Ledger) -> Iterator[int]:
    lines = [line for line in ledger.lines if not line.host] or [ledger.host]
    for line in lines:
        yield line.context_bytes
