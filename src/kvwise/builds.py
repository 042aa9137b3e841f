"""Builds of llama.cpp: which are known, and what changed between them, each as a row.

A rule that holds from some build on asks `has(build, CHANGE)`. Builds that nobody measured are
given the rules of the nearest known one, change by change; `nearest` names it for the note.
How a build is added: docs/builds.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OLDEST, NEWEST = 10605, 11549
KNOWN = (OLDEST, NEWEST)
"""Builds whose figures were measured over the whole zoo."""

_NUMBER = re.compile(r"b?(\d{1,7})\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of llama.cpp that moves bytes.

    `since` is the first build known to have it, `before` the last one known to lack it; `source`
    where it is to be seen.
    """

    name: str
    since: int
    before: int
    source: str


def _seen(name: str, source: str) -> Change:
    """A change that lies somewhere between the two builds that were compared."""
    return Change(name, NEWEST, OLDEST, source)


MTP_KV_APART = Change(
    "the main context keeps no KV of next-token layers, whatever the architecture", 10821, 10820,
    "src/llama-model.cpp create_memory; pull request 28630",
)  # fmt: skip
EMBEDDINGS_FIRST = _seen(
    "token embeddings are looked up before anything else in the graph",
    "src/llama-graph.cpp build_inp_embd",
)
MIXED_BATCHES = _seen(
    "tokens and vectors may stand in one batch, with inputs and nodes of their own",
    "src/llama-graph.cpp build_inp_embd; src/llama-arch.cpp llm_arch_supports_mixed_batch",
)
SCALES_BY_ROW = _seen(
    "embeddings of tokens are scaled by an input with a factor per row",
    "src/llama-graph.cpp build_inp_embd",
)
STATES_AT_ONCE = _seen(
    "recurrent states of the batch and all others are read with one look-up",
    "src/llama-graph.cpp build_rs",
)
ROWS_BEFORE_LAST = _seen(
    "models with next-token layers pick the rows that are asked for in the last layer",
    "src/llama-graph.h crop_before_nextn",
)
HIDDEN_ALWAYS_OUT = _seen(
    "the hidden state for next-token layers is handed out even when nobody asked",
    "src/models/deepseek4.cpp, mimo2.cpp",
)
QUERIES_BY_STREAM = _seen(
    "queries of several streams are cut by the step of a token, also when they are permuted",
    "src/llama-graph.cpp build_attn_mha",
)
DELTA_NORM_BY_RMS = _seen(
    "keys and queries of delta nets are normed by an RMS norm and a scale",
    "src/models/models.h build_gdn_l2_norm",
)
CLAMPED_SWIGLU = _seen(
    "a gate limited before its activation is one operation with it",
    "ggml/src/ggml.c ggml_swiglu_clamp; src/llama-graph.cpp build_ffn",
)
PER_LAYER_FIRST = _seen(
    "Gemma 4 looks up the inputs of all layers before the embeddings",
    "src/models/gemma4.cpp build_inp_per_layer",
)
DECAY_ALWAYS = _seen(
    "MiniMax-01 has one graph for one token and for many",
    "src/models/minimax-01.cpp",
)
ONE_SEQUENCE_TOO = _seen(
    "graphs with tables of decay are also reserved for a single sequence",
    "src/llama-context.cpp sched_reserve",
)
STEPS_COPIED = _seen(
    "Mamba copies its time steps where no norm follows",
    "src/models/mamba-base.cpp build_mamba_layer",
)
PLAMO2_ROWS_EARLIER = _seen(
    "PLaMo 2 picks the rows that are asked for before its feed-forward network",
    "src/models/plamo2.cpp",
)
K3_SNAPSHOTS = _seen(
    "Kimi K3 keeps snapshots of its states",
    "src/models/kimi-k3.cpp; src/llama-arch.cpp llm_arch_supports_rs_rollback",
)
ROPE_BY_SECTIONS = _seen(
    "Ling 3 and DFlash drafts turn by sections where the file has them",
    "src/llama-model.cpp llama_model_rope_type",
)
CHUNKED_STAYS_FUSED = _seen(
    "the fused delta net and indexer are not probed and stay on",
    "src/llama-context.cpp (constructor: auto_fgdn, auto_flid)",
)
CLASSIFIER_POOLING = _seen(
    "the file says how tokens are pooled before a classifier",
    "src/llama-graph.cpp build_pooling",
)
SPLITS_UNLIMITED = _seen(
    "a split of the graph takes any number of inputs",
    "ggml/src/ggml-backend.cpp ggml_backend_sched_split_graph",
)
INPUTS_FROM_LEAFS = _seen(
    "pipeline parallelism multiplies every input of the graph, used or not, in its order",
    "ggml/src/ggml-backend.cpp ggml_backend_sched_split_graph (pass 6)",
)
RPC_ASYNCHRONOUS = _seen(
    "RPC devices copy asynchronously and have events, so they can be pipelined",
    "ggml/src/ggml-rpc/ggml-rpc.cpp get_props",
)
CUDA_KEEPS_FUSED = _seen(
    "CUDA keeps what it fuses of mixtures of experts alive until their last node",
    "ggml/src/ggml-cuda/ggml-cuda.cu graph_optimize",
)
CUDA_MIXED_CACHES = _seen(
    "CUDA's flash attention takes caches of any two types, through copies in f16",
    "ggml/src/ggml-cuda/fattn.cu",
)
CUDA_OPERATIONS = _seen(
    "CUDA runs operations on inputs with gaps that it did not before",
    "ggml/src/ggml-cuda/ggml-cuda.cu device_supports_op",
)
EMPTY_CACHE_TURNED = _seen(
    "a cache without layers is turned too where an indexer asks, which divides by zero",
    "src/llama-kv-cache.cpp (n_rot_k)",
)
FUSED_EXPERTS_LEFT = _seen(
    "fused experts of a next-token layer that nobody asked for stay in the file",
    "src/llama-model.cpp create_tensor_gate_up_exps",
)
SAMPLERS_ALWAYS = _seen(
    "a sampler on the device has as many chains whatever rows a batch asks for",
    "src/llama-graph.cpp build_sampling",
)
NEXTN_RESERVES = _seen(
    "a context is reserved once more when its hidden states are asked for",
    "src/llama-context.cpp set_embeddings_nextn",
)
MORE_LAYER_INPUTS = _seen(
    "more architectures hand out what their layers read",
    "src/models/nanbeige.cpp, hunyuan-vl.cpp, mimo2.cpp",
)
DFLASH_OPTIONS = _seen(
    "DFlash drafts scale embeddings and values and choose their activation as the file says",
    "src/models/dflash.cpp load_arch_hparams",
)
DFLASH_FUSED = _seen(
    "DFlash drafts take in their target's features in the pass that writes the cache",
    "src/models/dflash.cpp; common/speculative.cpp common_speculative_impl_draft_dflash::process",
)
NEWER_ARCHITECTURES = _seen("architectures that came later", "src/llama-arch.cpp LLM_ARCH_NAMES")


def number(build: str) -> int:
    """`b11549` -> 11549; anything that is no build counts as the oldest known."""
    match = _NUMBER.match(build)
    return int(match[1]) if match else OLDEST


def name(build: int) -> str:
    """11549 -> `b11549`."""
    return f"b{build}"


def nearest(build: int) -> int:
    """The known build whose rules a build gets."""
    return min(KNOWN, key=lambda known: (abs(known - build), -known))


def has(build: int, change: Change) -> bool:
    """Whether a build has a change; between two known builds the nearer one decides."""
    if build >= change.since or build <= change.before:
        return build >= change.since
    return change.since - build <= build - change.before
