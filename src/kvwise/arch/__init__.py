"""Architectures: what each one reads from a header and how its caches are laid out.

`describe` is the door: header in, `Model` out. An architecture of a known family is one row in
`table.py`; an unknown one gets the family that its metadata implies and is not `verified`.
"""

from __future__ import annotations

from kvwise import builds
from kvwise.arch import steps, unknown
from kvwise.arch.draft import Draft
from kvwise.arch.generic import read_generic
from kvwise.arch.row import Row
from kvwise.arch.table import ROWS
from kvwise.errors import ModelError
from kvwise.gguf.header import Header
from kvwise.gguf.model import Model

__all__ = ["describe", "n_pos_per_embd", "row_of", "supports_rollback"]


def row_of(header: Header) -> Row:
    """The rules of the header's architecture; implied by its keys when it is unknown."""
    return ROWS.get(header.architecture) or unknown.imply(header)


def describe(header: Header) -> Model:
    """What `header` says about the model; raises ModelError when it does not describe one."""
    architecture = header.architecture
    if not architecture:
        raise ModelError(
            "the file does not say its architecture",
            hint="this is a GGUF file without a model: adapters and control vectors are such files",
        )
    if architecture == "clip":
        raise ModelError(
            "this is a projector for images or sound, not a model of its own",
            hint="give it as --mmproj beside the model it belongs to",
        )
    row = row_of(header)
    draft = Draft(header)
    read_generic(draft)
    if row.family == "recurrent":
        draft["recr"] = [True] * len(draft["recr"])
    for step in row.reads:
        (steps.take(step) if isinstance(step, str) else step)(draft)
    return draft.finish(
        family=row.family,
        verified=architecture in ROWS,
        is_recurrent=row.family == "recurrent",
        is_hybrid=row.family in {"hybrid", "pooled", "compressed"},
        is_diffusion=row.diffusion,
        has_encoder=row.encoder,
        has_decoder=row.decoder,
        supports_rs_rollback=row.rollback,
        supports_sm_tensor=row.split_tensor,
        use_alibi=draft["f_max_alibi_bias"] > 0.0,
        rope_type=_rope(row, draft),
        use_kq_norm=architecture == "llama4" and draft["n_expert"] != 128,
    )


def n_pos_per_embd(model: Model, build: int) -> int:
    """Positions of one token in a build of llama.cpp: four where a rope has sections."""
    later = row_of(model.header).rope_later
    if later is None or not builds.has(build, later[0]):
        return model.n_pos_per_embd
    given = getattr(model, later[1])
    if any(given) if isinstance(given, tuple) else given:
        return 4 if later[2] in {"mrope", "imrope"} else 1
    return model.n_pos_per_embd


def supports_rollback(model: Model, build: int) -> bool:
    """Whether the architecture keeps snapshots of its states in a build of llama.cpp."""
    later = row_of(model.header).rollback_since
    return model.supports_rs_rollback or (later is not None and builds.has(build, later))


def _rope(row: Row, draft: Draft) -> str:
    if row.rope_if is None:
        return row.rope
    condition, other = row.rope_if
    if condition == "use_mrope":
        first, second = draft["rope_sections"][:2]
        return other if first > 0 and second > 0 else row.rope
    return other if draft[condition] else row.rope
