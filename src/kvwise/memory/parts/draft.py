"""A draft beside its target: weights, caches, compute and output at the target's context.

`-md` loads a model of its own; `--spec-type draft-mtp` without it makes a second context on the
target's weights. Both take the target's settings but for those that have a draft flag.

Source: common/speculative.cpp common_base_params_to_speculative and
common_speculative_init_result, tools/server/server-context.cpp load_model, b10605.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from kvwise import builds
from kvwise.arch import row_of
from kvwise.device import Device, Host
from kvwise.errors import Refused
from kvwise.gguf.hub import path_in_repo
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory import borrowing
from kvwise.memory.ledger import Companion
from kvwise.memory.made import ComputeMode, Made, make
from kvwise.memory.paired import ALONE, Paired
from kvwise.memory.parts.lending import lent, lent_caches
from kvwise.options import asked, change
from kvwise.options.row import BENCH

MTP = "draft-mtp"
BLOCK_TYPES = frozenset({"draft-dflash", "draft-dspark"})
"""Kinds that guess a whole block of tokens in one pass, a row of scores for each."""

SELECTOR = "selector_hidden.weight"
"""DFlash 2 chooses by itself (since b11549)."""

READING_TYPES = frozenset({"draft-eagle3", *BLOCK_TYPES})
"""Kinds whose draft reads what some layers of its target read."""

SAMPLED_TYPES = frozenset({MTP, *READING_TYPES})
"""Kinds whose draft samples on its device and hands hidden states on."""

SIDECARS = {
    MTP: "mtp-",
    "draft-dspark": "dspark-",
    "draft-dflash": "dflash-",
    "draft-eagle3": "eagle3-",
}
"""What marks a kind's file in a repository of the Hub; the order in which nobody's wish is met."""

_ASKED_ORDER = (MTP, "draft-dflash", "draft-eagle3", "draft-dspark")
"""The order among kinds that a launch names."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """A draft's context, and whose weights it runs on."""

    of: Companion
    made: Made
    target: Made

    @property
    def name(self) -> str:
        model = self.made.model
        return model.name or model.path or model.architecture


def kind_by_itself(draft: Model) -> str | None:
    """The kind of speculation that the engine takes from a draft's file when the launch names none;
    None = it drafts nothing. Source: common/speculative.cpp common_speculative_types_from_gguf,
    which arg.cpp asks, b10605."""
    tensors = draft.header.by_name
    if draft.architecture == "dflash":
        return "draft-dspark" if "markov_w1.weight" in tensors else "draft-dflash"
    return MTP if f"blk.{draft.n_layer_all - 1}.nextn.eh_proj.weight" in tensors else None


def sidecars(launch: Launch) -> tuple[str, ...]:
    """Words of the files that `-hfd REPO[:QUANT]` takes before the model of the repository.

    Source: common/arg.cpp common_models_handler_init and common_models_handler_apply, b10605.
    """
    if builds.number(launch.build) < builds.OLDEST:
        return ()
    if _asks_for_none(launch):
        return tuple(SIDECARS.values())
    return tuple(SIDECARS[kind] for kind in _ASKED_ORDER if kind in launch.spec_types)


def by_its_file(launch: Launch, draft: Model | None) -> Launch:
    """The launch with the kind of speculation that the engine takes from the file of `-md`, where
    the launch names none. The layers of the main model never turn it on by themselves.

    Source: common/arg.cpp common_models_handler_apply (spec_types_is_default), common/common.cpp
    common_model_params_to_llama (load_mtp), b10605.
    """
    if draft is None or not launch.model_draft or launch.tool == BENCH:
        return launch
    if not _asks_for_none(launch) or builds.number(launch.build) < builds.OLDEST:
        return launch
    kind = kind_of_file(launch, draft)
    return launch if kind is None else change(launch, spec_types=(kind,))


def _asks_for_none(launch: Launch) -> bool:
    """Whether no kind of speculation is named, not even `none`."""
    return not (launch.spec_types or asked.values(launch, "--spec-type"))


def kind_of_file(launch: Launch, draft: Model) -> str | None:
    """The kind that the draft's file stands for, if the launch names none. One from a repository of
    the Hub is judged by its name, before it is downloaded, and not at all where it was named."""
    if not launch.model_draft.startswith("hf:"):
        return kind_by_itself(draft)
    if launch.model_draft.lower().endswith(".gguf"):
        return None
    path = path_in_repo(draft.path)
    return next((kind for kind, word in SIDECARS.items() if word in path), None)


def draft_of(
    target: Made,
    model: Model | None,
    devices: Sequence[Device],
    host: Host | None,
    mode: ComputeMode,
) -> Drafted | None:
    """The draft that a launch asks for, or None; `model` is that of `-md`.

    Raises Refused where the engine would stop because of the draft.
    """
    launch, types = target.launch, target.launch.spec_types
    if launch.mtp or (model is None and (launch.model_draft or MTP not in types)):
        return None
    settings = _shared(launch, target.context.n_ctx)
    if model is not None:
        borrowing.check_borrowed(target.model, model)
        settings = replace(
            settings,
            model=launch.model_draft,
            devices=launch.draft_devices,
            n_gpu_layers=launch.draft_gpu_layers,
            override_tensor=asked.draft_overrides(launch),
            n_cpu_moe=launch.draft_n_cpu_moe,
        )
    try:
        beside = partial(_beside, target, model)
        made = make(model or target.model, settings, devices, host, mode, paired=beside)
    except Refused as why:
        raise Refused(
            why.code,
            "the draft cannot be created: {why}",
            hint="start without it, or use another draft",
            why=why.phrase,
        ) from why
    return Drafted("mtp" if model is None else "draft", made, target)


def _shared(launch: Launch, n_ctx: int) -> Launch:
    """The target's settings as its draft gets them."""
    return replace(
        launch,
        n_ctx=n_ctx,
        type_k=launch.draft_type_k,
        type_v=launch.draft_type_v,
        embeddings=False,
        pooling="",
        n_outputs_max=launch.n_seq_max * rows_of(launch),
        n_rs_seq=0,
        mtp=MTP in launch.spec_types,
        load_mtp=MTP in launch.spec_types,
        beside_target=True,
        model_draft="",
        spec_types=(),
        mmproj="",
    )


def handed_on(model: Model, launch: Launch, draft: Model | None) -> Paired:
    """What the target hands on to the draft that a launch asks for. Raises Refused where llama.cpp
    has no such hidden states to give."""
    types, newer = set(launch.spec_types), builds.number(launch.build)
    if launch.mtp or launch.beside_target or launch.tool == BENCH:
        return ALONE
    nextn = MTP in types and builds.has(newer, builds.NEXTN_RESERVES)
    layers: tuple[int, ...] = ()
    if draft is not None and types & READING_TYPES:
        last = model.n_layer if "draft-eagle3" in types else -1
        layers = tuple(il for il in draft.target_layers if il != last)
        nextn |= last in draft.target_layers
        borrowing.check_layer_inputs(model, layers, launch.build)
    return Paired(embeddings_layer_inp=layers, embeddings_nextn=nextn)


def _beside(target: Made, draft: Model | None, devices: Sequence[Device]) -> Paired:
    """What the draft gets of its target and does for it; `devices` are the draft's."""
    if draft is None or not borrowing.is_head(draft.architecture):
        return Paired(samplers=samplers(target.launch, draft))
    borrows = row_of(draft.header).family == "borrowed"
    return Paired(
        samplers=samplers(target.launch, draft),
        lent=tuple(lent(target, devices)),
        caches=tuple(lent_caches(target, draft, devices)) if borrows else (),
    )


def samplers(launch: Launch, draft: Model | None) -> int:
    """Rows of a sequence that are sampled on the draft's device, 0 = none."""
    if asked.has(launch, "--no-spec-draft-backend-sampling"):
        return 0
    if draft is not None and SELECTOR in draft.header.by_name:
        return 0
    if not SAMPLED_TYPES & set(launch.spec_types):
        return 0
    return rows_of(launch)


def rows_of(launch: Launch) -> int:
    """Rows of scores that a draft asks for of each sequence."""
    return max(1, launch.draft_n_max + 1) if BLOCK_TYPES & set(launch.spec_types) else 1
