"""Why each line is what it is: rule, source file and build, as sentences to be worded later."""

from __future__ import annotations

from kvwise.launch import Launch
from kvwise.memory.context import Context
from kvwise.memory.ledger import Ledger, Note
from kvwise.memory.weights import Weights
from kvwise.text import Phrase, phrase

_NOTES: dict[str, str] = {
    "n_ctx_rounded": "the context became {n_ctx} tokens: {n_seq_max} sequences of {n_ctx_seq}",
    "v_cache_padded": "without flash attention every layer's V is padded to the widest",
    "flash_attn_unavailable": (
        "flash attention is off, as some layer's device would not run it: the compute buffer "
        "holds all attention scores"
    ),
    "fused_op_unavailable": "a fused operation is off: a device does not run it where its layer is",
    "phi_swa_ignored": "the model's sliding window is ignored, as in llama.cpp",
    "swa_full": "windowed layers keep the whole context (--swa-full)",
    "fa_forced_off": "flash attention is not compatible with this architecture",
    "msa_falls_back_to_dense": "sparse attention falls back to dense attention",
    "unused_tensors_skipped": "{skipped} tensors of unused layers are not loaded",
    "mtp_left": (
        "{skipped} tensors of layers for speculation (MTP) are not loaded: nothing but --spec-type "
        "draft-mtp turns them on"
    ),
    "compute_estimated": "the compute buffers are an upper estimate",
    "compute_graph_failed": "the compute graph could not be made for this model",
}


def note(code: str, context: Context, weights: Weights, *, on_request: bool = False) -> Note:
    """A note by its code, worded with this context's numbers; `on_request`: the tensors that are
    not loaded would be with another launch."""
    said = "mtp_left" if on_request and code == "unused_tensors_skipped" else code
    message = phrase(
        _NOTES.get(said, said),
        n_ctx=context.n_ctx,
        n_seq_max=context.n_seq_max,
        n_ctx_seq=context.n_ctx_seq,
        skipped=len(weights.skipped),
    )
    return Note(code, message)


def weights_on(device: str, count: int, launch: Launch, *, host: bool, mapped: bool) -> Phrase:
    """Why the weights of a line have their size."""
    if mapped:
        return phrase(
            "{count} tensors read in place from the mapped file: the span from the first to the "
            "last (src/llama-model-loader.cpp get_mapping_range, {build})",
            count=count,
            build=launch.build,
        )
    rule = (
        "{count} tensors on {device}: those of layers on the host, the embedding tables, and what "
        "no device runs, each padded to 32 bytes (src/llama-model.cpp load_tensors, {build})"
        if host
        else "{count} tensors on {device}: layers by -ngl and -ts, the output layer with the last, "
        "each padded as the device asks (src/llama-model.cpp load_tensors, {build})"
    )
    return phrase(rule, count=count, device=device, build=launch.build)


def output(context: Context, n_vocab: int, launch: Launch) -> Phrase:
    """Why the output buffer has its size."""
    return phrase(
        "one row of {n_vocab} logits for each of {n_seq_max} sequences, 4 bytes each, and of "
        "embeddings where asked (src/llama-context.cpp output_reserve, {build})",
        n_vocab=n_vocab,
        n_seq_max=context.n_seq_max,
        build=launch.build,
    )


def together(reasons: list[Phrase]) -> Phrase | None:
    """Several reasons of one figure as one."""
    if not reasons:
        return None
    first, *rest = reasons
    for more in rest:
        first = phrase("{first}; {more}", first=first, more=more)
    return first


def beyond_training(ledger: Ledger) -> Phrase | None:
    """What becomes of a slot that is longer than the model was trained for; None where none is.

    Source: tools/server/server-context.cpp (n_ctx_slot), b10605.
    """
    trained, per_slot = ledger.model.n_ctx_train, ledger.context.n_ctx_seq
    if not 0 < trained < per_slot:
        return None
    return phrase(
        "{tokens:,} tokens per slot are more than the {trained:,} the model was trained "
        "for: llama-server uses no more than these of each slot, and the rest of the cache "
        "is never filled",
        tokens=per_slot, trained=trained,
    )  # fmt: skip
