"""Launch + Model -> Context: llama.cpp's own order of padding, clamping and refusing.

Source: src/llama-context.cpp (constructor, llama_init_from_model), b10605.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Context:
    """A launch as the engine resolves it (llama_cparams)."""

    n_ctx: int
    n_ctx_seq: int
    n_batch: int
    n_ubatch: int
    n_seq_max: int
    kv_unified: bool
    flash_attn: bool
    type_k: str
    type_v: str
    offload_kqv: bool
    op_offload: bool
    swa_full: bool
    n_outputs_max: int
    n_rs_seq: int
    embeddings: bool
    pooling: str
    mtp: bool = False
    notes: tuple[str, ...] = ()  # note codes of zoo/README.md

    @property
    def n_stream(self) -> int:
        """KV streams: one if unified, else one per sequence."""
        return 1 if self.kv_unified else self.n_seq_max
