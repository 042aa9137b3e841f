"""Headers become models, or one-line errors; unknown architectures get what their keys imply."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.arch import describe
from kvwise.arch.layout import layout
from kvwise.arch.table import ROWS
from kvwise.errors import KvwiseError, ModelError
from kvwise.gguf.header import ArrayInfo, Header
from kvwise.gguf.open import open_header

MODELS = Path(__file__).parents[1] / "zoo" / "models"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in MODELS.glob("*.gz"))


@cache
def header(name: str) -> Header:
    return open_header(str(MODELS / f"{name}.json.gz"))


def header_of(architecture: str, **keys: Any) -> Header:
    plain: dict[str, Any] = {
        "context_length": 4096,
        "embedding_length": 512,
        "block_count": 8,
        "attention.head_count": 8,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
    }
    plain |= {key.replace("__", "."): value for key, value in keys.items()}
    values = {f"{architecture}.{key}": value for key, value in plain.items() if value is not None}
    return Header(3, {"general.architecture": architecture, **values}, ())


@pytest.mark.parametrize("name", NAMES)
def test_zoo_models_have_the_layers_that_the_engine_found(name: str) -> None:
    known = json.loads(gzip.decompress((MODELS / f"{name}.json.gz").read_bytes()))
    model = describe(header(name))
    assert model.verified
    assert model.architecture == known["architecture"]
    if "n_layer" in known:
        assert (model.n_layer, model.n_layer_all) == (known["n_layer"], known["n_layer_all"])
    for listed in ("n_head", "n_head_kv", "n_ff", "swa", "recr", "rope", "dsv4_compress_ratios"):
        assert len(getattr(model, listed)) == model.n_layer_all
    assert model.n_vocab >= 0


RENAMED = (
    "qwen3-8b", "mixtral-8x7b", "deci-nemotron-51b-like", "mamba-2.8b", "rwkv6-world-1.6b",
    "deepseek-v3", "deepseek-v2-lite-nomla", "minicpm3-4b", "gemma-4-e4b", "qwen3-next-80b-a3b",
    "kimi-linear-48b-a3b", "falcon-h1-1.5b", "lfm2-1.2b", "jamba-mini-1.7", "deepseek-v4-flash",
    "mimo-v2-flash", "deepseek-v3.2", "bge-small-en-v1.5", "granite-4.0-h-tiny",
    "nemotron-nano-9b-v2", "tiny-jamba", "tiny-minimax-m3", "tiny-glm-dsa", "tiny-plamo2",
    "tiny-kimi-k3", "tiny-arwkv7",
)  # fmt: skip


@pytest.mark.parametrize("name", RENAMED)
def test_an_unknown_architecture_gets_the_caches_that_its_keys_imply(name: str) -> None:
    """The same file under a name nobody knows: same caches, but not verified.

    The tiny models carry windows that their architecture ignores: those are left out.
    """
    known = header(name)
    old, windows = known.architecture, describe(known).is_swa_any
    metadata = {
        "brandnew" + key.removeprefix(old) if key.startswith(old + ".") else key: value
        for key, value in known.metadata.items()
        if windows or "sliding_window" not in key
    }
    renamed = replace(known, metadata={**metadata, "general.architecture": "brandnew"})
    model = describe(renamed)
    assert not model.verified
    implied = [store for store in layout(model) if store.layers]
    assert implied == [store for store in layout(describe(known)) if store.layers]


def test_an_unknown_window_without_a_pattern_keeps_full_caches() -> None:
    model = describe(header_of("brandnew", attention__sliding_window=128))
    assert [store.role for store in layout(model)] == ["main"]


@pytest.mark.parametrize("value", [None, 0, 513, 2**32, -1, "8", 8.0, (8, 8), True])
def test_absurd_layer_counts(value: Any) -> None:
    with pytest.raises(ModelError):
        describe(header_of("llama", block_count=value))


@pytest.mark.parametrize(
    ("architecture", "keys", "word"),
    [
        ("llama", {"attention__layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon"),
        ("llama", {"embedding_length": None}, "embedding_length"),
        ("llama", {"attention__head_count_kv": (8, 8)}, "8 expected"),
        ("llama", {"attention__head_count_kv": ArrayInfo("uint32", 8)}, "head_count_kv"),
        ("llama", {"rope__dimension_count": 32}, "rope"),
        ("llama", {"expert_count": 4}, "experts"),
        ("llama", {"expert_count": 4, "expert_used_count": 5}, "experts"),
        ("llama", {"pooling_type": 9}, "pooling"),
        ("llama", {"rope__scaling__type": "magic"}, "rope scaling"),
        ("cohere2", {"logit_scale": 1.0}, "sliding_window"),
        ("glm4", {"nextn_predict_layers": 8}, "MTP"),
        ("gemma4", {"attention__sliding_window": 8}, "sliding_window_pattern"),
        ("eagle3", {"target_layers": (1, 2)}, "target layers"),
        ("gemma3", {"block_count": 62, "attention__head_count": 0}, "heads"),
        ("clip", {}, "projector"),
        ("", {}, "architecture"),
    ],
)
def test_what_llama_cpp_refuses_is_one_sentence(
    architecture: str, keys: dict[str, Any], word: str
) -> None:
    with pytest.raises(ModelError) as error:
        describe(header_of(architecture, **keys))
    assert word in str(error.value)
    assert "\n" not in str(error.value)


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**33), 2**33), st.floats(), st.text(max_size=5),
    st.lists(st.integers(-5, 5), max_size=520).map(tuple),
    st.builds(ArrayInfo, st.just("uint32"), st.integers(0, 9)),
)  # fmt: skip


@given(st.sampled_from(NAMES), st.data())
@settings(deadline=None, max_examples=400)
def test_any_damage_is_a_model_or_an_error_of_ours(name: str, data: Any) -> None:
    known = header(name)
    metadata: dict[str, Any] = dict(known.metadata)
    for key in data.draw(st.lists(st.sampled_from(sorted(metadata)), max_size=3)):
        value = data.draw(values)
        metadata.pop(key, None)
        if value is not None:
            metadata[key] = value
    try:
        model = describe(replace(known, metadata=metadata))
        layout(model)
        layout(model, mtp=True)
    except KvwiseError as error:
        assert "\n" not in str(error)


def test_diffusion_encoders_and_embedders_have_no_cache() -> None:
    for architecture, row in ROWS.items():
        if row.family == "none":
            assert layout(describe(header(_zoo_of(architecture)))) == ()


def _zoo_of(architecture: str) -> str:
    for name in reversed(NAMES):
        if header(name).architecture == architecture:
            return name
    return next(name for name in NAMES if header(name).architecture == "bert")
