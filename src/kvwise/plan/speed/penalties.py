"""Known slow paths of llama.cpp that bytes and arithmetic alone do not show, each with its source.

A penalty multiplies the low end (and the high end, where every measurement shows it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvwise.memory import flash
from kvwise.memory.ledger import Ledger
from kvwise.plan.speed.measured import FLOATS
from kvwise.text import Phrase, phrase


@dataclass(frozen=True, slots=True)
class Penalty:
    """Factors for (low, high) of prompt and decode speed, and why.

    A `notable` one is worth a sentence wherever the speed is told.
    """

    prompt: tuple[float, float]
    decode: tuple[float, float]
    why: Phrase
    source: Phrase
    notable: bool = False


def penalties(ledger: Ledger, *, unpacks: bool) -> tuple[Penalty, ...]:
    """Those that apply to a launch; `unpacks`: its cache is quantized."""
    return (*_attention_leaves(ledger), *(_unpacking(ledger) if unpacks else ()))


def _attention_leaves(ledger: Ledger) -> Iterator[Penalty]:
    context = ledger.context
    if not flash.attention_leaves(ledger.model, context, ledger.placement, ledger.devices):
        return
    yield Penalty(
        (0.4, 0.6), (0.3, 0.9),
        phrase(
            "the GPU has no fast attention for K {k} with V {v}: the processor does it",
            k=context.type_k, v=context.type_v,
        ),
        phrase(
            "GTX 1660 Ti, b7152: V quantized alone loses 46 % of prompt speed, both alike gain 4 %"
        ),
        notable=True,
    )  # fmt: skip


def has_quantized_cache(ledger: Ledger) -> bool:
    """Whether attention reads blocks that must be unpacked."""
    types = {ledger.context.type_k, ledger.context.type_v}
    return not types <= FLOATS and any(cache.kind == "kv" for cache in ledger.caches)


def _unpacking(ledger: Ledger) -> Iterator[Penalty]:
    if not ledger.placement.n_gpu or not ledger.context.offload_kqv:
        yield Penalty(
            (1.0, 1.0), (1.0, 1.0),
            phrase(
                "the processor unpacks a quantized cache: attention takes 1.5 to 3 times as long "
                "(counted in the range)"
            ),
            phrase(
                "llama-bench b10605, one thread, SmolLM2 135M at depth 1,024: 127 and 79 prompt "
                "tokens/s with f16 and q8_0, 67 and 51 generated"
            ),
        )  # fmt: skip
    elif any(device.kind == "metal" for device in ledger.devices):
        yield Penalty(
            (0.75, 1.0), (0.70, 1.0),
            phrase("Metal unpacks a quantized cache before it attends"),
            phrase(
                "github.com/ggml-org/llama.cpp/pull/26570: 1.2 to 1.5 times as fast at depth since"
            ),
        )  # fmt: skip
    else:
        yield Penalty(
            (0.90, 1.04), (0.90, 1.0),
            phrase("a quantized cache is unpacked on the GPU"),
            phrase("GTX 1660 Ti, b7152: K and V in q8_0 gain 4 % of prompt speed"),
        )  # fmt: skip
