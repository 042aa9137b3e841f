"""What llama-server may come to keep in host memory: its prompt cache and context checkpoints.

Both grow with use up to a limit, so their lines say "up to" and are in no total.

Source: tools/server/server-context.cpp create_checkpoint and load_model,
tools/server/server-task.cpp server_prompt_cache, common/common.h, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvwise.memory.ledger import Extra
from kvwise.memory.loader import CPU
from kvwise.memory.made import Made
from kvwise.memory.parts.draft import Drafted
from kvwise.memory.parts.state import has_state, has_window, sequence_bytes
from kvwise.memory.placement import HOST
from kvwise.options import asked
from kvwise.options.row import BENCH
from kvwise.text import Phrase, phrase
from kvwise.units import MIB

CACHE_RAM_MIB = 8192
CHECKPOINTS = 32
MIN_STEP = 8192
CLOSE = 4
"""Checkpoints that may stand closer than the step: around the last message and the prompt's end."""


def extras(target: Made, draft: Drafted | None) -> Iterator[Extra]:
    """The lines of both; none for llama-bench, embeddings, or a model without caches."""
    launch = target.launch
    if launch.tool == BENCH or launch.embeddings or not target.caches:
        return
    checkpoints = _checkpoints(target, draft)
    if checkpoints is not None:
        yield checkpoints
    cache = _prompt_cache(target, draft)
    if cache is not None:
        yield cache


def _slot_tokens(target: Made) -> int:
    return min(target.context.n_ctx_seq, target.model.n_ctx_train or target.context.n_ctx_seq)


def _prompt_cache(target: Made, draft: Drafted | None) -> Extra | None:
    limit = asked.number(target.launch, "-cram", CACHE_RAM_MIB)
    if limit == 0:
        return None
    one = sequence_bytes(target, _slot_tokens(target))
    one += sequence_bytes(draft.made, _slot_tokens(target)) if draft else 0
    if limit > 0:
        why = phrase(
            "saved prompts, at most {limit} MiB (-cram); one whole context is {one} bytes "
            "(tools/server/server-task.cpp, {build})",
            limit=limit,
            one=one,
            build=target.launch.build,
        )
        return _line("prompt_cache", limit * MIB, why)
    why = phrase(
        "saved prompts without a limit of bytes: at least one whole context "
        "(tools/server/server-task.cpp, {build})",
        build=target.launch.build,
    )
    return _line("prompt_cache", one, why)


def _checkpoints(target: Made, draft: Drafted | None) -> Extra | None:
    """Checkpoints exist where a sequence cannot be cut back: windows and recurrent states."""
    most = asked.number(target.launch, "-ctxcp", CHECKPOINTS)
    window = has_window(target.caches) and not target.context.swa_full
    if most <= 0 or not (window or has_state(target.caches)):
        return None
    tokens = _slot_tokens(target)
    step = asked.number(target.launch, "-cms", MIN_STEP)
    count = min(most, tokens // step + CLOSE) if step > 0 else most
    one = sequence_bytes(target, tokens, "partial")
    one += sequence_bytes(draft.made, tokens, "partial") if draft else 0
    why = phrase(
        "up to {count} checkpoints of {one} bytes for each of {slots} slots "
        "(tools/server/server-context.cpp create_checkpoint, {build})",
        count=count,
        one=one,
        slots=target.context.n_seq_max,
        build=target.launch.build,
    )
    return _line("checkpoints", count * one * target.context.n_seq_max, why)


def _line(of: str, size: int, why: Phrase) -> Extra:
    return Extra(
        of="prompt_cache" if of == "prompt_cache" else "checkpoints",
        name="",
        buffer=CPU,
        device=HOST,
        context_bytes=size,
        up_to=True,
        basis={"context": "computed"},
        reasons={"context": why},
    )
