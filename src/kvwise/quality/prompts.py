"""Fixed prompts at temperature 0: what a setting answers, beside what f16 answers.

Arithmetic, code, Chinese, prose, and a needle: one sentence at several depths of a text as long
as the context that is asked about. The prompts were written for kvwise (data/quality).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvwise.engine.server import RequestRefused, Server
from kvwise.quality.repetition import Loop, loop
from kvwise.quality.texts import data

_CODES = ("4817", "2956", "7302", "6149", "8371")
_ROOM = 96
"""Tokens for the template around a needle's text."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question. `expect` must be in a right answer (empty = any is); `depth` of the needle in
    hundredths, None for no needle."""

    name: str
    prompt: str
    n_predict: int
    expect: str = ""
    needle: str = ""
    depth: int | None = None


def prompts() -> tuple[Prompt, ...]:
    """All of them; a needle is one for each depth."""
    found = []
    for row in json.loads(data("prompts.json")):
        depths = row.pop("depths", None)
        if depths is None:
            found.append(Prompt(**row))
            continue
        for number, depth in enumerate(depths):
            code = _CODES[number % len(_CODES)]
            needle = row["needle"].format(code=code)
            values = {"expect": code, "needle": needle, "depth": depth}
            found.append(Prompt(**row | values | {"name": f"{row['name']}-{depth}"}))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `stop` is `eos`, `limit` (all of `n_predict`) or `context` (its end)."""

    tokens: tuple[int, ...]
    text: str
    prompt_tokens: int
    stop: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"tokens": list(self.tokens)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Answer:
        """Back from `as_dict`."""
        return cls(**{**values, "tokens": tuple(values["tokens"])})


def answer(server: Server, prompt: Prompt, haystack: str, room: int) -> Answer:
    """Ask, through the model's chat template where it has one, without reusing the cache.

    `room` = tokens of the context. Raises what `Server.complete` raises.
    """
    question = prompt.prompt
    if prompt.depth is not None:
        question = _with_needle(server, prompt, haystack, room - prompt.n_predict - _ROOM)
    asked = _templated(server, question)
    got = server.complete(asked, prompt.n_predict, return_tokens=True, cache_prompt=False)
    tokens = tuple(int(each) for each in got.raw.get("tokens") or ())
    stop = "context" if got.truncated else str(got.raw.get("stop_type", ""))
    return Answer(tokens, got.text, got.prompt_tokens, stop)


def _templated(server: Server, question: str) -> str:
    body = {"messages": [{"role": "user", "content": question}]}
    try:
        return str(server.post("/apply-template", body)["prompt"])
    except (RequestRefused, KeyError, TypeError):  # a model without a template, or an older build
        return question


def _with_needle(server: Server, prompt: Prompt, haystack: str, tokens: int) -> str:
    """The question with a text of about `tokens` tokens, never more, and the needle in it."""
    around = len(server.tokenize(prompt.prompt + prompt.needle))
    paragraphs = [each for each in haystack.split("\n\n") if each.strip()]
    sizes = [len(server.tokenize(each + "\n\n", parse_special=False)) for each in paragraphs]
    chosen: list[str] = []
    left, at = tokens - around, 0
    while paragraphs and left >= sizes[at % len(sizes)] > 0:
        chosen.append(paragraphs[at % len(sizes)])
        left -= sizes[at % len(sizes)]
        at += 1
    place = round(len(chosen) * (prompt.depth or 0) / 100)
    text = "\n\n".join([*chosen[:place], prompt.needle, *chosen[place:]])
    return prompt.prompt.format(text=text)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer beside the base's. `diverged_at` = the first token that differs, None = none does;
    `noise_at` = the same of the base beside itself with other roundings, where `noise_known`;
    `right` = it holds what it must, None where anything goes; `cut` = it ran into its limit
    where the base came to an end."""

    name: str
    tokens: int
    diverged_at: int | None
    empty: bool
    loop: Loop | None
    cut: bool
    right: bool | None
    base_empty: bool
    base_loop: bool
    base_right: bool | None
    noise_at: int | None = None
    noise_known: bool = False

    @property
    def beyond_noise(self) -> bool:
        """Whether it parts from the base before the base parts from itself."""
        if self.diverged_at is None or not self.noise_known:
            return False
        return self.noise_at is None or self.diverged_at < self.noise_at

    @property
    def broken(self) -> bool:
        """Empty, or in a loop, where the base is not."""
        return self.emptied or (self.loops and not self.base_loop)

    @property
    def emptied(self) -> bool:
        """Empty where the base is not."""
        return self.empty and not self.base_empty

    @property
    def loops(self) -> bool:
        """Whether it ends in a loop."""
        return self.loop is not None

    @property
    def lost(self) -> bool:
        """Wrong where the base is right."""
        return self.right is False and self.base_right is True


def outcome(prompt: Prompt, base: Answer, got: Answer, again: Answer | None = None) -> Outcome:
    """What became of an answer; `again` = the base's once more, None where that is unknown."""
    return Outcome(
        name=prompt.name,
        tokens=len(got.tokens),
        diverged_at=diverged_at(base.tokens, got.tokens),
        empty=not got.text.strip(),
        loop=loop(got.tokens),
        cut=got.stop != "eos" and base.stop == "eos",
        right=_right(prompt, got),
        base_empty=not base.text.strip(),
        base_loop=loop(base.tokens) is not None,
        base_right=_right(prompt, base),
        noise_at=diverged_at(base.tokens, again.tokens) if again else None,
        noise_known=again is not None,
    )


def _right(prompt: Prompt, got: Answer) -> bool | None:
    return prompt.expect in got.text if prompt.expect else None


def diverged_at(base: Sequence[int], got: Sequence[int]) -> int | None:
    """The first place at which two answers differ, None when they are equal."""
    for place, (one, other) in enumerate(zip(base, got, strict=False)):
        if one != other:
            return place
    return None if len(base) == len(got) else min(len(base), len(got))
