"""What is to be measured, as units of a job: bases, noise, scores, prompts.

Launches that differ in their cache types alone share a base: the same settings with f16 for K and
V. Launches that are scored alike (another context, other slots) are measured once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvwise.launch import Launch
from kvwise.quality.prompts import Prompt
from kvwise.quality.scorers import for_chunks
from kvwise.results import settings_seen
from kvwise.results.record import canonical

_SMALL, _LARGE = 128, 512
"""Batches whose attention takes different paths (llama.cpp's kernels for few and many rows)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One launch as it is scored. `asked` are the launches that it answers for."""

    launch: Launch
    base: Launch
    asked: tuple[Launch, ...] = ()

    @property
    def key(self) -> str:
        return key_of(self.launch)

    @property
    def group(self) -> str:
        """Of the settings that share its base."""
        return key_of(self.base)

    @property
    def is_base(self) -> bool:
        return self.launch == self.base


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of work: `base`, `noise`, `score`; `ask` with a prompt, and `again`, the base asked
    once more with the roundings of its noise."""

    kind: str
    setting: Setting
    prompt: Prompt | None = None

    @property
    def key(self) -> str:
        name = f"{self.kind} {self.setting.key}"
        return name if self.prompt is None else f"{name} {self.prompt.name}"


def key_of(launch: Launch) -> str:
    """A short name of everything in a launch that can change a number."""
    return hashlib.sha256(canonical(settings_seen(launch)).encode()).hexdigest()[:12]


def settings(launches: Sequence[Launch], chunk_tokens: int) -> list[Setting]:
    """Each distinct setting once, those of a base together, the base itself first."""
    groups: dict[Launch, dict[Launch, list[Launch]]] = {}
    for launch in launches:
        scored = for_chunks(launch, chunk_tokens)
        base = replace(scored, type_k="f16", type_v="f16")
        members = groups.setdefault(base, {base: []})
        members.setdefault(scored, []).append(launch)
    return [
        Setting(scored, base, tuple(asked))
        for base, members in groups.items()
        for scored, asked in members.items()
    ]


def noise_of(base: Launch) -> Launch:
    """The base with another batch: the same mathematics, other roundings."""
    other = _SMALL if base.n_ubatch > _SMALL else min(_LARGE, base.n_ctx)
    return replace(base, n_ubatch=other)


def other_noise_of(base: Launch) -> Launch:
    """Where the batch changes nothing: attention computed the other way."""
    return replace(base, flash_attn="on" if base.flash_attn == "off" else "off")


def units(found: Sequence[Setting], prompts: Sequence[Prompt]) -> Iterator[Unit]:
    """All of them, in the order in which they are done."""
    for setting in found:
        if setting.is_base:
            yield Unit("base", setting)
            yield Unit("noise", setting)
        else:
            yield Unit("score", setting)
        for prompt in prompts:
            yield Unit("ask", setting, prompt)
        for prompt in prompts if setting.is_base else ():
            yield Unit("again", setting, prompt)
