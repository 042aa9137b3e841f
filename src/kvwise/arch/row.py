"""What one architecture adds to the generic keys: the shape of a row of the tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvwise.arch.draft import Step
from kvwise.builds import Change

Family = Literal[
    "none",  # no cache: encoders, diffusion
    "attention",  # KV for every layer, a second cache for windowed layers
    "borrowed",  # a draft head that reads its target's cache
    "recurrent",  # a state for every layer
    "hybrid",  # KV for some layers, a state for others
    "pooled",  # the same, and a cache of indexer keys beside the KV
    "indexed",  # latent KV and a cache of indexer keys, windowed layers apart
    "blocks",  # KV and a cache of indexer keys for all but the leading layers
    "compressed",  # DeepSeek-V4
]


Hybrid = Literal["rest", "all", "bare", "trunk"]


@dataclass(frozen=True, slots=True)
class Row:
    """What one architecture adds to the generic keys.

    `mtp_kv`: whether the main context's KV cache holds the MTP layers too (`kept`) or only the
    MTP context's own cache does (`apart`).
    `hybrid`: which layers of a hybrid have KV (`rest` = those without state, `all`, `bare` =
    those without feed forward, `trunk` = those without state and no MTP layers). `rope_if`: an
    attribute that, when not zero, changes the rope. `since`: with which
    change the architecture came; `rope_later` (change, condition, rope) and `rollback_since`: what
    newer builds do otherwise.
    """

    rope: str
    reads: tuple[str | Step, ...] = ()
    family: Family = "attention"
    mtp_kv: Literal["kept", "apart"] = "kept"
    hybrid: Hybrid = "rest"
    rope_if: tuple[str, str] | None = None
    diffusion: bool = False
    encoder: bool = False
    decoder: bool = True
    rollback: bool = False  # keeps snapshots of its state (n_rs_seq)
    split_tensor: bool = True  # split mode `tensor` is possible
    since: Change | None = None
    rope_later: tuple[Change, str, str] | None = None
    rollback_since: Change | None = None


def row_with(rope: str, *reads: str | Step, **facts: object) -> Row:
    return Row(rope, reads, **facts)  # type: ignore[arg-type]
