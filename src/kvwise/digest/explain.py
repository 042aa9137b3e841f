"""What the same text would cost in one context, per cache type, beside the digest's own cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvwise.device import Device, Host
from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.text import Phrase

TYPES = ("f16", "q8_0", "q4_0")


@dataclass(frozen=True, slots=True)
class OneContext:
    """One context of `tokens` with K and V in `type`: bytes of its caches, of everything, whether
    it fits the devices; `refused` = llama.cpp would not start it."""

    type: str
    tokens: int
    cache_bytes: int = 0
    total_bytes: int = 0
    fits: bool | None = None
    refused: Phrase | None = None


def one_context(
    model: Model, tokens: int, devices: Sequence[Device], host: Host,
    types: Sequence[str] = TYPES,
) -> list[OneContext]:  # fmt: skip
    """All of the text at once in `model`, as llama-server would hold it with one slot."""
    found = []
    for kind in types:
        launch = Launch(
            n_ctx=tokens, n_seq_max=1, n_outputs_max=1, flash_attn="on", type_k=kind, type_v=kind,
        )  # fmt: skip
        try:
            ledger = account(model, launch, list(devices), host=host)
        except Refused as error:
            found.append(OneContext(kind, tokens, refused=error.phrase))
            continue
        cache = sum(
            each.k_bytes + each.v_bytes + each.r_bytes + each.s_bytes for each in ledger.caches
        )
        total = sum(line.total_bytes for line in ledger.lines)
        found.append(OneContext(kind, tokens, cache, total, ledger.fits))
    return found
