"""The settings of an embedding engine: chunk size, batch, pooling, and what fits the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvwise.device import Device, Host
from kvwise.errors import DoesNotFit, Refused, UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.memory.ledger import Ledger
from kvwise.text import Phrase, phrase

DEFAULT_TOKENS = 512
"""Of a chunk: what embedding models are mostly trained and searched with."""
POOLINGS = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
"""`<architecture>.pooling_type` (src/llama.cpp, enum llama_pooling_type, b10605)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What to start the engine with. `pooled_by` says who chose the pooling."""

    launch: Launch
    ledger: Ledger
    chunk_tokens: int
    pooling: str
    pooled_by: str
    notes: tuple[Phrase, ...] = ()


def settings(
    model: Model,
    launch: Launch,
    chunk_tokens: int | None,
    devices: Sequence[Device],
    host: Host,
) -> Settings:
    """The launch of an embedding engine for chunks of at most `chunk_tokens`, one at a time.

    As many layers on the GPU as fit. Raises UsageError for what the model cannot do, DoesNotFit
    with the largest chunk that fits.
    """
    pooling, chosen, notes = _pooling(model, launch)
    tokens = _tokens(model, chunk_tokens)
    made = _fits(model, launch, tokens, devices, host)
    if made is None:
        nearest = _nearest(model, launch, tokens, devices, host)
        raise DoesNotFit(
            "chunks of {tokens} tokens do not fit the memory there is", tokens=tokens,
            nearest=nearest, name=model.called,
            hint="--chunk-tokens {nearest} fits" if nearest else "{name} does not fit at all",
        )  # fmt: skip
    return Settings(*made, tokens, pooling, chosen, tuple(notes))


def _pooling(model: Model, launch: Launch) -> tuple[str, str, list[Phrase]]:
    own = model.header.get(f"{model.architecture}.pooling_type")
    named = POOLINGS.get(own, "") if isinstance(own, int) else ""
    if launch.pooling == "rank" or (named == "rank" and not launch.pooling):
        raise UsageError(
            "{name} ranks pairs of texts, it makes no vectors", name=model.called,
            hint="name an embedding model",
        )  # fmt: skip
    if launch.pooling == "none":
        raise UsageError("--pooling none gives a vector per token, not one per chunk")
    if launch.pooling:
        return launch.pooling, "you", []
    if named in ("mean", "cls", "last"):
        return named, "the model", []
    note = phrase(
        "{name} does not say how it pools: the mean of all tokens is taken; a model made for "
        "embeddings gives better vectors", name=model.called,
    )  # fmt: skip
    return "mean", "kvwise", [note]


def _tokens(model: Model, asked: int | None) -> int:
    trained = model.n_ctx_train or 0
    if asked is None:
        return min(DEFAULT_TOKENS, trained) if trained else DEFAULT_TOKENS
    if trained and asked > trained:
        raise UsageError(
            "--chunk-tokens {asked}: {name} was trained for {trained} tokens",
            asked=asked, name=model.called, trained=trained, hint="--chunk-tokens {trained}",
        )  # fmt: skip
    return asked


def _launch(launch: Launch, tokens: int, pooling: str, layers: int | None) -> Launch:
    made = replace(
        launch, n_ctx=tokens, n_batch=tokens, n_ubatch=tokens, n_seq_max=1, kv_unified=False,
        embeddings=True, pooling=pooling, fit=False, n_outputs_max=0,
    )  # fmt: skip
    return made if layers is None else replace(made, n_gpu_layers=layers)


def _fits(
    model: Model, launch: Launch, tokens: int, devices: Sequence[Device], host: Host
) -> tuple[Launch, Ledger] | None:
    pooling, _, _ = _pooling(model, launch)
    most = model.n_layer + 1
    asked = launch.n_gpu_layers
    for layers in [asked] if asked >= 0 else range(most if devices else 0, -1, -1):
        made = _launch(launch, tokens, pooling, layers)
        try:
            ledger = account(model, made, list(devices), host=host)
        except Refused:
            continue
        if ledger.fits is not False:
            return made, ledger
    return None


def _nearest(
    model: Model, launch: Launch, tokens: int, devices: Sequence[Device], host: Host
) -> int:
    """The largest chunk that fits, in steps of 64; 0 = none."""
    low, high = 0, tokens // 64
    while low < high:
        middle = (low + high + 1) // 2
        if _fits(model, launch, middle * 64, devices, host) is None:
            high = middle - 1
        else:
            low = middle
    return low * 64
