"""Requests that fill a context to its end: memory that was only promised is really taken then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kvwise.engine.server import Completion, Server
from kvwise.errors import EngineError
from kvwise.launch import Launch
from kvwise.memory.context import Context

_TEXT = (
    "Every token that a model has read leaves a key and a value behind in each layer. "
    "They are kept so that the next token need not read everything again. "
    "The longer the text, the more of the card they take, and what is left over decides "
    "how long the text may become. 一段很长的文字会占满整个缓存。 "
    "def total(parts): return sum(part.nbytes for part in parts)\n"
)


@dataclass(frozen=True, slots=True)
class Filled:
    """What came of it, over all slots: tokens read and generated, tokens per second together."""

    text: str
    prompt_tokens: int
    tokens: int
    prompt_per_s: float | None
    decode_per_s: float | None


def room(context: Context, trained: int) -> int:
    """Tokens that each slot can hold when all are full at once; a slot never exceeds what the
    model was trained for (tools/server/server-context.cpp, b10605). 0 = `trained` is not known."""
    each = context.n_ctx // context.n_seq_max if context.kv_unified else context.n_ctx_seq
    return min(each, trained or each)


def fill(server: Server, launch: Launch, tokens: int, n_predict: int) -> Filled:
    """All slots at once: a prompt of `tokens` tokens each, then `n_predict` generated.

    Raises EngineError when the engine read another number of tokens than it was sent.
    """
    prompt = prompt_of(server, tokens)
    if launch.embeddings:
        began = time.monotonic()
        vectors = server.embed([prompt])
        speed = len(prompt) / max(time.monotonic() - began, 1e-9)
        return Filled(f"{len(vectors[0])} dimensions", len(prompt), 0, speed, None)
    slots = launch.n_seq_max
    with ThreadPoolExecutor(slots) as pool:
        asked = [
            pool.submit(server.complete, prompt, n_predict, ignore_eos=True, id_slot=slot)
            for slot in range(slots)
        ]
        try:
            answers = [each.result() for each in asked]
        except BaseException:
            server.close()  # the pool waits for its requests, which may take many minutes
            raise
    for answer in answers:
        if answer.prompt_tokens != len(prompt):
            raise EngineError(
                "the engine read {read} of {sent} tokens",
                read=answer.prompt_tokens,
                sent=len(prompt),
            )
    return Filled(
        answers[0].text,
        sum(answer.prompt_tokens for answer in answers),
        sum(answer.tokens for answer in answers),
        _together(answers, "prompt_per_s"),
        _together(answers, "decode_per_s"),
    )


def _together(answers: Sequence[Completion], name: str) -> float | None:
    speeds = [getattr(answer, name) for answer in answers]
    return None if None in speeds else sum(speeds)


def prompt_of(server: Server, tokens: int) -> list[int]:
    """A text of exactly so many tokens, by the model's own tokenizer."""
    start = server.tokenize(_TEXT, add_special=True)
    again = server.tokenize(_TEXT)
    if not again:
        raise EngineError("the engine makes no tokens of a text")
    times = max(0, tokens - len(start)) // len(again) + 1
    return (start + again * times)[:tokens]
