"""Whether a server can reuse the cache of an earlier prompt, and what it costs where it cannot.

A sliding window keeps the latest tokens only, a recurrent state one point in time: a prompt that
differs from the last one before that point is read again, from a checkpoint if there is one.

Source: tools/server/server-context.cpp (the search for a context checkpoint, "forcing full prompt
re-processing"), common/common.h checkpoint_min_step, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvwise.memory.ledger import Ledger
from kvwise.options import change
from kvwise.plan.candidate import Candidate
from kvwise.plan.search import Search
from kvwise.text import Phrase, phrase
from kvwise.units import show

CHECKPOINT_TOKENS = 8192
"""llama-server keeps a checkpoint at most every so many tokens."""


def reuse(search: Search, chosen: Candidate) -> Iterator[Phrase]:
    """What to know about prompts that begin like the last one; nothing where all is reused."""
    if search.embeds or chosen.launch.tool != "llama-server":
        return
    kinds = {cache.kind for cache in chosen.ledger.caches}
    if kinds & {"recurrent", "dsv4_state"}:
        yield phrase(
            "the model's state cannot go back: a prompt that differs from the last one in the "
            "middle is read again from a checkpoint (one per {tokens:,} tokens), or from the start",
            tokens=CHECKPOINT_TOKENS,
        )
    elif _windows(chosen.ledger) and not chosen.ledger.context.swa_full:
        whole = search.ledger(change(chosen.launch, swa_full=True))
        more = _cache(whole) - _cache(chosen.ledger) if whole else 0
        yield phrase(
            "the cache goes back {window:,} tokens at most: a prompt that differs from the last "
            "one before that is read again from a checkpoint (one per {tokens:,} tokens), or from "
            "the start; --swa-full avoids it and takes {size} more",
            window=max(cache.n_swa for cache in chosen.ledger.caches),
            tokens=CHECKPOINT_TOKENS,
            size=show(more),
        )


def _windows(ledger: Ledger) -> bool:
    return any(cache.n_swa and cache.layers for cache in ledger.caches)


def _cache(ledger: Ledger) -> int:
    return sum(line.context_bytes for line in ledger.lines)
