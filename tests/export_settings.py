"""Settings to export, without a model: by hand and by hypothesis."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from kvwise.export.settings import Settings
from kvwise.launch import Launch
from kvwise.options.reading import experts_on_cpu

LAYERS = 37

NASTY = (
    "/srv/models/Qwen3-8B Q4_K_M.gguf",
    '/srv/it\'s "quoted"/模型 100%.gguf',
    "/srv/$HOME/`id`/$(id)/!x/\\n.gguf",
    "/srv/%PATH%/^a & b | c < d > e (f).gguf",
    "/srv/-ünïcode\u2019s\u201e/*?[a]{b}~.gguf",
    "C:\\Users\\Jürgen\\models\\a b.gguf",
    "\\\\server\\share\\100%\\x.gguf",
    "D:/models/${x}.gguf",
)

_WORDS = (
    st.tuples(st.just("-c"), st.integers(1, 1 << 20).map(str)),
    st.tuples(st.just("-ngl"), st.integers(0, LAYERS).map(str)),
    st.tuples(st.just("-np"), st.integers(1, 8).map(str)),
    st.tuples(st.just("-ctk"), st.sampled_from(["f16", "bf16", "q8_0", "q4_0", "q5_1", "iq4_nl"])),
    st.tuples(st.just("-ctv"), st.sampled_from(["f16", "bf16", "q8_0", "q4_0", "q5_1", "iq4_nl"])),
    st.tuples(st.just("-b"), st.integers(1, 4096).map(str)),
    st.tuples(st.just("-ub"), st.sampled_from(["64", "100", "256", "512", "1024"])),
    st.tuples(st.just("-fa"), st.sampled_from(["on", "off", "auto"])),
    st.tuples(st.just("-ncmoe"), st.integers(0, 20).map(str)),
    st.tuples(st.just("-lm"), st.sampled_from(["none", "mmap", "mlock", "dio", "mmap+mlock"])),
    st.tuples(st.just("-ot"), st.just("blk\\.[0-3]\\.ffn=CPU")),
    st.tuples(st.just("-ts"), st.just("3,1")),
    st.tuples(st.just("-sm"), st.sampled_from(["none", "layer", "row"])),
    st.tuples(st.just("--temp"), st.just("0.7")),
    st.tuples(st.just("--threads"), st.integers(1, 64).map(str)),
    st.tuples(st.just("-fit"), st.sampled_from(["on", "off"])),
    st.sampled_from([("-kvu",), ("-nkvo",), ("--swa-full",), ("--jinja",), ("-cmoe",)]),
)

LAUNCHES = st.lists(st.one_of(*_WORDS), max_size=9, unique_by=lambda words: words[0]).map(
    lambda parts: Launch.parse(["-m", "/srv/m.gguf", *(word for part in parts for word in part)])
)

PATHS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=40
).map(lambda text: f"/{text}.gguf")
"""Absolute paths of any characters that a file may have."""

LINES = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=40
).map(lambda text: f"/{text}.gguf")
"""The same without line ends and control characters, which most formats cannot hold."""


def tensors_in_one(launch: Launch) -> Launch:
    """The same placement with -ncmoe spelled out behind the patterns of -ot."""
    moved = launch.override_tensor + experts_on_cpu(launch.n_cpu_moe)
    return replace(launch, override_tensor=moved, n_cpu_moe=0)


def settings(launch: Launch | str, *flags: str, name: str = "m", exact: bool = False) -> Settings:
    """The settings of a launch, or of a model's path with flags, as if a ledger had them."""
    if isinstance(launch, str):
        launch = Launch.parse(["-m", launch, *flags])
    layers = launch.n_gpu_layers
    n_ctx = launch.n_ctx or 40960
    return Settings(
        launch=launch,
        name=name,
        n_ctx=n_ctx,
        slot_tokens=n_ctx if launch.kv_unified else n_ctx // launch.n_seq_max,
        gpu_layers=LAYERS if layers < 0 else min(layers, LAYERS),
        layers=LAYERS,
        flash=launch.flash_attn != "off",
        gpu_kinds=("cuda",),
        exact=exact,
    )
