"""The engine's five checks of two vocabularies, on real headers and on changed ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.gguf.header import Header
from kvwise.gguf.open import open_header
from kvwise.speculate.vocabulary import FIRST_CHECKED, TOKENS, Vocabulary, compare
from models import gemma3, smollm2


@cache
def real(name: str) -> Vocabulary:
    path = {"smollm2": smollm2, "gemma3": gemma3}[name]()
    return Vocabulary.of(open_header(str(path), arrays=(TOKENS,)))


def header(**keys: object) -> Header:
    data = {"general.architecture": "llama", **{k.replace("__", "."): v for k, v in keys.items()}}
    return Header(3, data, ())  # type: ignore[arg-type]


def test_what_the_engine_prints_of_two_real_files() -> None:
    """The log of b11549 says BOS 1, EOS 2, add_bos false of SmolLM2; 2, 1, true of Gemma 3."""
    smol, gemma = real("smollm2"), real("gemma3")
    assert (smol.type, smol.add_bos, smol.bos, smol.eos, smol.size) == ("BPE", False, 1, 2, 49152)
    assert (gemma.type, gemma.add_bos, gemma.bos, gemma.eos) == ("SPM", True, 2, 1)
    assert gemma.size == 262144


def test_a_model_goes_with_itself_and_not_with_another_kind() -> None:
    smol, gemma = real("smollm2"), real("gemma3")
    assert compare(smol, smol).holds is True
    against = compare(smol, gemma)
    assert against.holds is False
    assert against.failed is not None and against.failed.subject == "type"
    assert [check.agrees for check in against.checks] == [False, False, True, False, False]


@pytest.mark.parametrize("number", [FIRST_CHECKED, 1000, 49151])
def test_the_first_token_that_differs_is_named(number: int) -> None:
    smol = real("smollm2")
    assert smol.texts
    texts = list(smol.texts)
    texts[number] += "!"
    texts[49151] += "?"
    found = compare(smol, replace(smol, texts=tuple(texts)))
    assert found.failed is not None and found.failed.difference is not None
    assert found.failed.difference[0] == number
    assert found.failed.difference[1] == smol.texts[number]


def test_the_first_five_tokens_may_differ() -> None:
    smol = real("smollm2")
    assert smol.texts
    changed = replace(smol, texts=("a", "b", "c", "d", "e", *smol.texts[5:]))
    assert compare(smol, changed).holds is True


@pytest.mark.parametrize(("more", "holds"), [(128, True), (129, False)])
def test_sizes_may_differ_by_128(more: int, holds: bool) -> None:
    smol = real("smollm2")
    assert smol.texts
    texts = (*smol.texts, *(f"extra {n}" for n in range(more)))
    larger = replace(smol, size=len(texts), texts=texts)
    assert compare(smol, larger).holds is holds
    assert compare(larger, smol).holds is holds


def test_tokens_that_nobody_adds_do_not_count() -> None:
    smol = real("smollm2")
    assert compare(smol, replace(smol, bos=7, eos=9)).holds is True
    adds = replace(smol, add_bos=True)
    assert compare(adds, replace(adds, bos=7)).failed.subject == "bos"  # type: ignore[union-attr]
    ends = replace(smol, add_eos=True)
    assert compare(ends, smol).failed.subject == "eos"  # type: ignore[union-attr]


def test_without_the_texts_nothing_is_claimed() -> None:
    smol = real("smollm2")
    assert compare(smol, replace(smol, texts=None)).holds is None
    assert compare(replace(smol, type="SPM"), replace(smol, texts=None)).holds is False


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"tokenizer__ggml__model": "llama"}, (True, 1, False, 2)),
        ({"tokenizer__ggml__model": "t5"}, (False, None, True, 1)),
        ({"tokenizer__ggml__model": "rwkv"}, (False, None, False, None)),
        ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__pre": "llama-bpe"},
         (True, 11, False, 11)),
        ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__pre": "qwen2"},
         (False, 11, False, 11)),
        ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__pre": "glm4"},
         (False, None, False, 11)),
        ({"tokenizer__ggml__model": "gemma4", "tokenizer__ggml__add_bos_token": False},
         (True, None, False, None)),
        ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__bos_token_id": 99},
         (False, 11, False, 11)),  # an id outside the vocabulary is not taken
        ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__bos_token_id": 3,
          "tokenizer__ggml__add_bos_token": True}, (True, 3, False, 11)),
    ],
)  # fmt: skip
def test_what_a_file_leaves_unsaid(keys: dict[str, object], expected: tuple[object, ...]) -> None:
    """Defaults of src/llama-vocab.cpp, b10605."""
    tokens = tuple(f"t{number}" for number in range(50))
    found = Vocabulary.of(header(**keys, tokenizer__ggml__tokens=tokens))
    assert (found.add_bos, found.bos, found.add_eos, found.eos) == expected


def test_a_default_outside_the_vocabulary_is_no_token() -> None:
    small = Vocabulary.of(header(tokenizer__ggml__model="gpt2", tokenizer__ggml__tokens=("a",) * 5))
    assert small.bos is None


@given(st.lists(st.text(max_size=3), max_size=30), st.lists(st.text(max_size=3), max_size=30))
def test_the_difference_is_the_first_one(one: list[str], other: list[str]) -> None:
    a, b = (
        Vocabulary("BPE", False, None, False, None, len(texts), tuple(texts))
        for texts in (one, other)
    )
    check = compare(a, b).checks[-1]
    pairs = [(a.text(n), b.text(n)) for n in range(FIRST_CHECKED, min(len(one), len(other)))]
    first = next((n for n, (x, y) in enumerate(pairs, FIRST_CHECKED) if x != y), None)
    assert check.agrees is (first is None)
    assert (check.difference or (None,))[0] == first
