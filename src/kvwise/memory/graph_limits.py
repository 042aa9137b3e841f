"""How large a graph llama.cpp provides for: a larger one stops it.

Source: src/llama-context.cpp graph_max_nodes, ggml/src/ggml-backend.cpp sched_reserve, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.memory.context import Context

MANY_NODES = frozenset(
    {
        "qwen3next", "kimi-linear", "bailingmoe3", "qwen35", "qwen35moe", "deepseek4", "nanbeige",
        "minimax-01", "minimax-m3", "clef", "qwen4exp", "hy_v4",
    }
)  # fmt: skip
"""Architectures whose graphs grow with the batch."""

SAMPLER_NODES = 5
"""Nodes of a sampler that picks the best candidates (llama_sampler_backend_n_nodes)."""


def check_graph(model: Model, context: Context, n_tensors: int, n_nodes: int, n_leafs: int) -> None:
    """The worst-case graph must fit the tables the engine sized for it. Raises Refused."""
    limit = max_nodes(model, min(context.n_ctx, context.n_ubatch), n_tensors)
    limit += SAMPLER_NODES * context.paired.samplers * context.n_seq_max
    table = next((size for size in _hash_sizes() if size >= limit), limit | 1)
    if n_nodes > limit or n_nodes + n_leafs > table:
        raise Refused(
            "graph_too_large",
            "llama.cpp allows this model a graph of {table} tensors, this setting needs {count}",
            hint="use an unquantized cache, a unified one (-kvu), or fewer slots (-np)",
            table=table,
            count=n_nodes + n_leafs,
        )


def max_nodes(model: Model, n_tokens: int, n_tensors: int) -> int:
    """Nodes that the engine provides for (llama_context::graph_max_nodes, b10605)."""
    if model.architecture in ("kimi-k3", "glm5-next"):
        return max(n_tokens * 160, 64 * n_tensors)
    if model.architecture == "hrm_text":
        return max(n_tokens * 80, 64 * n_tensors)
    draft = model.architecture == "dflash" and model.dsv4_hc_mult > 0
    if model.architecture in MANY_NODES or draft:
        return max(n_tokens * 40, 32 * n_tensors)
    selects = "selector_hidden.weight" in model.header.by_name
    return max(1024, (12 if selects else 8) * n_tensors)


def _hash_sizes() -> Iterator[int]:
    """Sizes of ggml's hash sets: the first prime above each power of two (ggml_hash_size)."""
    yield from (1031, 2053, 4099, 8209, 16411, 32771, 65537, 131101, 262147, 524309, 1048583)
