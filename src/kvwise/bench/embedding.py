"""Models that make vectors: they read and never generate, so that reading is all there is to time.

What is read at once is one micro-batch, because attention may look in both directions; nothing
stands in the cache before it.
"""

from __future__ import annotations

from kvwise.errors import Refused
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.options import change


def embeds(model: Model) -> bool:
    """Whether it makes vectors instead of text. Raises Refused for what makes neither one after
    the other: diffusion, and rankers of pairs of texts."""
    if model.is_diffusion or model.pooling_type == "rank":
        raise Refused(
            "cannot_generate",
            "{name} can be measured by no test: it neither reads token by token nor makes vectors",
            name=model.called,
        )
    pooled = model.pooling_type not in ("none", "unspecified", "")
    return not model.has_decoder or not model.causal_attn or pooled


def for_embedding(launch: Launch, model: Model, longest: int, *, fixed_batch: bool) -> Launch:
    """The launch of an embedding model that reads `longest` tokens at once, or as many as it was
    trained for; a batch that the user named stays."""
    made = change(launch, embeddings=True)
    if fixed_batch:
        return made
    longest = min(longest, model.n_ctx_train or longest)
    return change(made, n_ubatch=max(made.n_ubatch, longest), n_batch=max(made.n_batch, longest))
