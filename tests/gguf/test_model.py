"""What a Model derives from its attributes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from kvwise.gguf.header import Header, Tensor
from kvwise.gguf.model import DEFAULTS, KEYS, Model
from kvwise.gguf.types import F32


def model(**facts: Any) -> Model:
    layers = {"n_layer_all": 4, "n_head": (8,) * 4, "n_head_kv": (2,) * 4, "swa": (False,) * 4}
    return Model(Header(3, {}, ()), "llama", **{**layers, **facts})


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        model().n_embd = 1  # type: ignore[misc]


def test_every_key_has_an_attribute_and_a_default() -> None:
    assert set(KEYS) <= set(DEFAULTS)
    assert all(key.startswith((".", "xielu.")) for key, _ in KEYS.values())


def test_windowed_layers_have_heads_of_their_own() -> None:
    made = model(
        swa=(True, False, True, False), n_embd_head_k_full=128, n_embd_head_v_full=96,
        n_embd_head_k_swa=64, n_embd_head_v_swa=32, n_rot_full=128, n_rot_swa=64,
    )  # fmt: skip
    assert [made.n_embd_k_gqa(il) for il in range(4)] == [128, 256, 128, 256]
    assert [made.n_embd_v_gqa(il) for il in range(4)] == [64, 192, 64, 192]
    assert [made.n_rot(il) for il in range(4)] == [64, 128, 64, 128]
    assert made.n_embd_v_gqa_max == 192
    assert made.is_n_embd_v_gqa_variable
    assert made.is_swa_any


def test_shared_layers_have_no_kv() -> None:
    shared = model(n_layer_kv_from_start=2)
    assert [shared.has_kv(il) for il in range(4)] == [True, True, False, False]
    assert all(model().has_kv(il) for il in range(4))


def test_mtp_layers_are_not_counted() -> None:
    assert model(n_layer_nextn=1).n_layer == 3


def test_heads_per_group() -> None:
    assert model().n_gqa() == 4
    assert model(n_head_kv=(0,) * 4).n_gqa() == 0


def test_embedding_widths() -> None:
    made = model(n_embd=64)
    assert (made.n_embd_inp, made.n_embd_out, made.n_embd_inp_enc) == (64, 64, 64)
    made = model(n_embd=64, n_deepstack_layers=3, n_embd_out_impl=16)
    assert (made.n_embd_inp, made.n_embd_out, made.n_embd_inp_enc) == (256, 16, 256)


def test_latent_heads() -> None:
    plain = model(n_embd_head_k_full=64, n_embd_head_v_full=64)
    assert not plain.is_mla
    assert (plain.n_embd_head_k_mla, plain.n_embd_head_v_mla) == (64, 64)
    latent = replace(plain, n_embd_head_k_mla_impl=192, n_embd_head_v_mla_impl=128)
    assert latent.is_mla
    assert (latent.n_embd_head_k_mla, latent.n_embd_head_v_mla) == (192, 128)


@pytest.mark.parametrize(
    ("facts", "r", "s"),
    [
        ({"wkv_head_size": 64, "n_embd": 512}, 2 * 512, 512 * 64),
        ({"wkv_head_size": 64, "n_embd": 512, "token_shift_count": 1}, 512, 512 * 64),
        ({"n_shortconv_l_cache": 3, "n_embd": 512}, 2 * 512, 0),
        ({"n_embd_head_kda": 128, "ssm_d_conv": 4}, 3 * 3 * 8 * 128, 128 * 128 * 8),
        ({"n_embd_head_kda": 128}, 3 * 3 * 8 * 128, 128 * 128 * 8),
        ({"n_embd_head_la": 128}, 0, 128 * 128 * 8),
        ({"ssm_d_conv": 4, "ssm_d_inner": 1024, "ssm_d_state": 16}, 3 * 1024, 16 * 1024),
        (
            {"ssm_d_conv": 4, "ssm_d_inner": 1024, "ssm_d_state": 16, "ssm_n_group": 2},
            3 * (1024 + 2 * 2 * 16),
            16 * 1024,
        ),
    ],
)
def test_states(facts: dict[str, Any], r: int, s: int) -> None:
    made = model(**facts)
    assert (made.n_embd_r, made.n_embd_s) == (r, s)


def test_tied_embeddings() -> None:
    embedding = Tensor("token_embd.weight", (8, 4), F32)
    output = Tensor("output.weight", (8, 4), F32)
    assert replace(model(), header=Header(3, {}, (embedding,))).tied_embeddings
    assert not replace(model(), header=Header(3, {}, (embedding, output))).tied_embeddings


def test_the_router_layer_has_no_positions() -> None:
    made = model(rope=(True,) * 4, router_layer=3)
    assert [made.has_rope(il) for il in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("rope", "positions"), [("none", 1), ("neox", 1), ("mrope", 4), ("imrope", 4)]
)
def test_positions_per_token(rope: str, positions: int) -> None:
    assert model(rope_type=rope).n_pos_per_embd == positions


def test_a_model_without_a_name_is_called_by_its_file() -> None:
    assert model(path="folder/My.gguf").called == "My"
    assert model(path="zoo/qwen3-8b.json.gz").called == "qwen3-8b"
    assert model(path="folder/My.gguf", name="Given").called == "Given"
    assert model().called == "llama"
