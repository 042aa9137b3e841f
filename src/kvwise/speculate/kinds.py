"""Which ways of speculating a model has: plain, a draft at several depths, n-grams, MTP.

The kinds and their names are those of `--spec-type`. Which kind a draft file is for stands in its
header: an EAGLE-3 or DFlash head is no model that generates by itself. Source: common/speculative
.cpp common_speculative_types_from_gguf and the constructors of its implementations, b10605.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvwise.errors import Refused, UsageError
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.parts.draft import MTP, kind_by_itself
from kvwise.options.resolve import change
from kvwise.text import Phrase, phrase

PLAIN = "plain"
SIMPLE = "draft-simple"
NGRAMS = ("ngram-simple", "ngram-map-k", "ngram-mod", "ngram-cache")
DEPTHS = (1, 2, 3, 4, 6, 8, 16)
MOST_DEPTH = 64
_HEADS = {"eagle3": "draft-eagle3", "gemma4-assistant": MTP}


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to generate. `kind` is that of `--spec-type` or `plain`; `depth` is the number of
    tokens drafted at once (None where the kind decides by itself)."""

    kind: str
    depth: int | None = None

    @property
    def key(self) -> str:
        """Its name in keys and tables: `plain`, `ngram-mod`, `draft-simple/4`."""
        return self.kind if self.depth is None else f"{self.kind}/{self.depth}"

    @property
    def speculates(self) -> bool:
        return self.kind != PLAIN

    def launch(self, base: Launch, draft: str) -> Launch:
        """`base` with this way of speculating instead of its own; `draft` = the draft's file, used
        by the kinds that draft with a model (MTP without one runs on the target's layers)."""
        changes: dict[str, object] = {
            "spec_types": (self.kind,) if self.speculates else (),
            "model_draft": draft if self.kind.startswith("draft-") else "",
        }
        if self.depth is not None:
            changes["draft_n_max"] = self.depth
        return change(base, **changes)


def kind_of_draft(draft: Model) -> str:
    """The kind of speculation that a draft file is for."""
    head = _HEADS.get(draft.architecture)
    if head is not None:
        return head
    kind = kind_by_itself(draft)
    if kind == MTP and "blk.0.attn_norm.weight" in draft.header.by_name:
        return SIMPLE  # a whole model that also brings such layers
    return kind or SIMPLE


def has_mtp(model: Model) -> bool:
    """Does the file bring layers that predict further tokens, with their tensors?"""
    first = model.n_layer_all - model.n_layer_nextn
    name = f"blk.{first}.nextn.eh_proj.weight"
    return model.n_layer_nextn > 0 and name in model.header.by_name


def check_generates(model: Model, *, draft: bool = False) -> None:
    """Raises Refused for a model that has no scores of a next token, with the reason.

    A head that only drafts (EAGLE-3, DFlash, MTP) generates beside its target: it passes.
    """
    if draft and kind_of_draft(model) != SIMPLE:
        return
    pooled = model.pooling_type not in ("none", "unspecified", "")
    if model.is_diffusion:
        why = phrase("it writes all its tokens at once (diffusion)")
    elif not model.has_decoder:
        why = phrase("it is an encoder for embeddings")
    elif not model.causal_attn:
        why = phrase("it is an embedding model whose attention looks in both directions")
    elif pooled:
        why = phrase(
            "it is an embedding model that pools its hidden states ({pooling}) into one vector",
            pooling=model.pooling_type,
        )
    else:
        return
    raise Refused(
        "cannot_generate",
        "{name} cannot generate token by token: {why}",
        hint="take the language model of the same family",
        name=model.called,
        why=why,
    )


def variants(
    model: Model,
    draft: Model | None,
    depths: Sequence[int] = DEPTHS,
    kinds: Sequence[str] = (),
) -> tuple[Variant, ...]:
    """Everything to measure, plain first. `kinds` = only these kinds. Raises UsageError."""
    found = [Variant(PLAIN), *_possible(model, draft, depths)]
    known = {each.kind for each in found}
    for kind in kinds:
        if kind not in known:
            raise UsageError(
                "{kind} cannot be measured with these files", kind=kind,
                known=", ".join(sorted(known - {PLAIN})), hint="what can be: {known}",
            )  # fmt: skip
    return tuple(each for each in found if not kinds or each.kind in {PLAIN, *kinds})


def _possible(model: Model, draft: Model | None, depths: Sequence[int]) -> Iterator[Variant]:
    for depth in depths:
        if not 0 < depth <= MOST_DEPTH:
            raise UsageError("--depths takes numbers from 1 to {most}", most=MOST_DEPTH)
    ordered = sorted(set(depths))
    if draft is not None:
        yield from (Variant(kind_of_draft(draft), depth) for depth in ordered)
    if has_mtp(model) and (draft is None or kind_of_draft(draft) != MTP):
        yield from (Variant(MTP, depth) for depth in ordered)
    yield from (Variant(kind) for kind in NGRAMS)


def warnings(model: Model, draft: Model | None) -> Iterator[Phrase]:
    """What speaks against a pair before anything is measured."""
    if draft is None:
        return
    ours, theirs = model.header.tensor_bytes, draft.header.tensor_bytes
    if theirs >= ours:
        yield phrase(
            "the draft is not smaller than the model ({draft:,} and {model:,} bytes of weights): "
            "each of its tokens costs as much as one of the model's own",
            draft=theirs, model=ours,
        )  # fmt: skip
