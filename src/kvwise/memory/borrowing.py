"""What llama.cpp refuses, or stops at, where a draft does not fit its target.

Source: src/models/*.cpp (t_layer_inp), src/llama-context.cpp, b10605 and b11549.
"""

from __future__ import annotations

from collections.abc import Collection

from kvwise import builds
from kvwise.errors import Refused
from kvwise.gguf.model import Model

GIVES_INPUTS = {
    "llama": 0, "qwen3": 0, "qwen3moe": 0, "qwen3next": 0, "qwen35": 0, "qwen35moe": 0,
    "gpt-oss": 0, "gemma4": 0, "lfm2": 0, "lfm2moe": 0, "minimax-m2": 0, "minimax-01": 0,
    "muse-glimmer": 0, "bailingmoe3": 0, "nemotron_h": 1, "nemotron_h_moe": 1, "deepseek4": 1,
}  # fmt: skip
"""Targets whose layers' inputs a draft may read; 1: what the last layer leaves, too. Source:
t_layer_inp in src/models/*.cpp, b10605."""
GIVES_INPUTS_LATER = {
    "nanbeige": 0, "hunyuan_vl": 0, "hunyuan-dense": 0, "k2-horizon": 0, "qwen4exp": 0, "mimo2": 1,
}  # fmt: skip
"""Those that came later. Source: the same, b11549."""

NEEDS_TARGET = frozenset({"eagle3", "dflash"})
"""Draft heads that borrow embeddings or the output matrix when the file has none."""

ASSISTANT = "gemma4-assistant"
"""It borrows the target's embeddings and caches in any case."""


def is_head(architecture: str) -> bool:
    """Draft heads that may run on weights of their target."""
    return architecture in NEEDS_TARGET or architecture == ASSISTANT


def check_borrowed(target: Model, draft: Model) -> None:
    """A head runs on embeddings and scores of its target, whose rows must be as wide as its own.
    Raises Refused: llama.cpp stops on an assertion."""
    own = draft.header.by_name
    whole = "token_embd.weight" in own and "output.weight" in own
    wanted = draft.n_embd_inp if draft.architecture == ASSISTANT else draft.n_embd
    if not is_head(draft.architecture) or (whole and draft.architecture != ASSISTANT):
        return
    if target.n_embd != wanted:
        raise Refused(
            "draft_does_not_fit",
            "the draft borrows from a target of {wanted} numbers a token, this one has {found}",
            hint="use the draft that was made for this model",
            wanted=wanted,
            found=target.n_embd,
        )


def check_layer_inputs(model: Model, layers: Collection[int], build: str) -> None:
    """A draft reads what these layers of its target read. Raises Refused where llama.cpp's graph
    of the target does not hand it out, which ends it at the first batch."""
    if not layers:
        return
    number = builds.number(build)
    reach = GIVES_INPUTS.get(model.architecture, -1)
    if reach < 0 and builds.has(number, builds.MORE_LAYER_INPUTS):
        reach = GIVES_INPUTS_LATER.get(model.architecture, -1)
    last = model.n_layer - 1 + reach
    if reach < 0 or not all(0 <= il <= last for il in layers):
        raise Refused(
            "draft_cannot_read_target",
            "the draft reads the input of layers {layers} of {arch}, which llama.cpp {build} does "
            "not hand out: it stops at the first batch",
            hint="use another draft, or another kind of speculation",
            layers=", ".join(map(str, layers)),
            arch=model.architecture,
            build=build,
        )
