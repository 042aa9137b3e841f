"""Sliding-window attention: which layers have the window, and how their rope differs.

Source: src/models/*.cpp (load_arch_hparams) and llama_hparams::set_swa_pattern, b10605.
"""

from __future__ import annotations

from kvwise.arch.draft import Draft, Step

_PATTERN = ".attention.sliding_window_pattern"


def set_pattern(draft: Draft, period: int, dense_first: bool = False) -> None:
    """Every `period`-th layer is full, the last or the first of each group; MTP layers are full.

    Period 0 gives every layer the window, 1 none.
    """
    full_at = 0 if dense_first else period - 1
    layers = draft["n_layer_all"]
    draft["swa"][:layers] = [
        il < draft.n_layer and (period == 0 or il % period != full_at) for il in range(layers)
    ]


def window(
    period: int,
    *,
    kind: str = "standard",
    dense_first: bool = False,
    optional: bool = False,
    or_listed: bool = False,
    rope: str = "as full",
) -> Step:
    """A periodic pattern; the file may give another period.

    `optional`: only when the file gives a window above 0. `or_listed`: the file may list the
    windowed layers instead (elsewhere such a list is ignored). `rope`: frequencies of windowed
    layers when the file gives none: `as full`, `unscaled` (same base) or `default`.
    """

    def step(draft: Draft) -> None:
        if optional and draft["n_swa"] == 0:
            return
        draft["swa_type"] = kind
        listed = isinstance(draft.raw(_PATTERN), tuple)
        given = None if listed else draft.scalar(_PATTERN, "int")
        if or_listed and given is None:
            draft.read_or_array("swa", draft.n_layer, required=True)
        else:
            set_pattern(draft, period if given is None else given, dense_first)
        swa_rope(draft, rope)

    return step


def pattern(period: int, *, kind: str = "standard", dense_first: bool = False) -> Step:
    """A list of the file, or a period, which the file may change: what newer builds read."""

    def step(draft: Draft) -> None:
        draft["swa_type"] = kind
        if not draft.read_array("swa"):
            given = draft.scalar(_PATTERN, "int")
            set_pattern(draft, period if given is None else given, dense_first)
        draft.read("rope_freq_base_train_swa")

    return step


def swa_rope(draft: Draft, rope: str = "as full") -> None:
    if rope != "default":
        draft["rope_freq_base_train_swa"] = draft["rope_freq_base_train"]
    if rope == "as full":
        draft["rope_freq_scale_train_swa"] = draft["rope_freq_scale_train"]
    draft.read("rope_freq_base_train_swa")


def listed(draft: Draft) -> None:
    """The file must say for each layer, or for all at once, whether it has the window."""
    draft["swa_type"] = "standard"
    draft.read_or_array("swa", draft.n_layer, required=True)
    draft.read("rope_freq_base_train_swa")


def listed_array(draft: Draft) -> None:
    """The file must hold a list; layers beyond its end are full."""
    draft["swa_type"] = "standard"
    draft.read_array("swa", required=True)


def every_layer(draft: Draft) -> None:
    """All layers have the window, MTP layers too."""
    draft["swa_type"] = "standard"
    layers = draft["n_layer_all"]
    draft["swa"][:layers] = [True] * layers


def ignored(draft: Draft) -> None:
    """Phi-3: a window in the file is known and not used."""
    if draft["n_swa"] > 0:
        draft["n_swa"] = 0
        draft["notes"] = (*draft["notes"], "phi_swa_ignored")


def chunked(size: int) -> Step:
    """Llama 4: chunks of a fixed size whatever the file says, except 0 which turns them off."""
    periodic = window(4, kind="chunked")

    def step(draft: Draft) -> None:
        if draft.read("n_swa") and draft["n_swa"] == 0:
            draft["n_no_rope_layer_step"] = draft.n_layer
            return
        draft["n_swa"] = draft["n_attn_temp_floor_scale"] = size
        draft["f_attn_temp_scale"], draft["f_attn_temp_offset"] = 0.1, 1.0
        periodic(draft)

    return step


def fixed_when_present(size: int, period: int) -> Step:
    """SmallThinker: a window in the file turns on one of a fixed size."""
    periodic = window(period, dense_first=True)

    def step(draft: Draft) -> None:
        if draft["n_swa"] > 0:
            draft["n_swa"] = size
            periodic(draft)
        else:
            draft["n_no_rope_layer_step"] = draft.n_layer

    return step


def only_with_layers(layers: int, size: int, period: int) -> Step:
    """EXAONE 4: only the 32B, told by its layers, has the window."""
    periodic = window(period)

    def step(draft: Draft) -> None:
        if draft.n_layer == layers:
            draft["n_swa"] = size
            periodic(draft)

    return step


def attention_layers(draft: Draft) -> None:
    """LFM2: every attention layer has the window, when the file gives one."""
    if draft["n_swa"] > 0:
        draft["swa_type"] = "standard"
        layers = draft.n_layer
        draft["swa"][:layers] = [not recr for recr in draft["recr"][:layers]]


def first_layers_own_kv(count: int) -> Step:
    """Gemma 3n: a fixed number of layers has a cache, the others reuse the last ones."""

    def step(draft: Draft) -> None:
        draft["n_layer_kv_from_start"] = count

    return step


def shared_kv(draft: Draft) -> None:
    """Gemma 4: the last layers reuse the cache of earlier ones."""
    draft.read("n_kv_shared_layers")
    shared, layers = draft["n_kv_shared_layers"], draft["n_layer_all"]
    what = "{shared} of {layers} layers share a cache"
    draft.need(shared <= layers, what, shared=shared, layers=layers)
    draft["n_layer_kv_from_start"] = layers - shared
