"""Exact counts: equal to what the engine itself counts, whole or in pieces."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.engine import tokens
from kvwise.engine.cuts import Cuts, cuts_in, cuts_of
from kvwise.engine.find import find
from kvwise.engine.tokens import Counter, count_file, count_ids, read_text
from kvwise.errors import EngineError, SourceError
from kvwise.gguf.header import Header
from models import gemma3, smollm2

NAMES = ("smollm2", "gemma3")

WORDS = (
    "the", "of", "and", "to", "in", "that", "his", "was", "for", "with", "unto", "shall", "LORD",
    "they", "will", "be", "Beginning", "created", "heaven", "earth", "darkness", "deep", "waters",
)  # fmt: skip
MESSY = (
    "def f(x):\r\n\treturn x  # trailing  \n\n\n", "    \t  mixed\ttabs", "a  b   c    d",
    "emoji 👩‍👩‍👧 and é combining", "中文没有空格，也要计数。", "<bos>not<eos>special?",
    "<|im_start|>user\nHello<|im_end|>", "1234567890 3.14159 0xdeadbeef", "-----=====*****_____",
    "\u00a0nbsp\u2003em\u200bzero", "▁▁ ▁x▁", "\x00\x01\x7f control",
    "LOUD words And MixedCase camelCaseWords snake_case_words",
)  # fmt: skip


def prose(size: int, seed: int = 1) -> str:
    rng = random.Random(seed)
    parts: list[str] = []
    length = 0
    while length < size:
        sentence = " ".join(rng.choices(WORDS, k=rng.randint(4, 18))).capitalize()
        parts.append(sentence + rng.choice([". ", ".\n", "? ", "; "]))
        length += len(parts[-1])
    return "".join(parts)[:size]


def messy(size: int, seed: int = 2) -> str:
    rng = random.Random(seed)
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        parts.append(rng.choice(MESSY) if rng.random() < 0.4 else prose(120, rng.randint(0, 99)))
        parts.append(rng.choice(["", " ", "\n", "\n\n", "\t"]))
    return "".join(parts)[:size]


def path_of(name: str) -> Path:
    return {"smollm2": smollm2, "gemma3": gemma3}[name]()


@pytest.fixture(scope="module", params=NAMES)
def counter(request: pytest.FixtureRequest) -> Iterator[Counter]:
    with Counter.start(path_of(request.param), engine=find("embedded")) as running:
        yield running


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize("text", ["", "Hello world", " ", "\n", *MESSY])
def test_a_count_is_the_length_of_the_engine_s_own_list(counter: Counter, text: str) -> None:
    for special in (False, True):
        for parse in (False, True):
            ids = counter.server.tokenize(text, add_special=special, parse_special=parse)
            got = counter.count(text, add_special=special, parse_special=parse)
            assert got.tokens == len(ids)
            assert got.characters == len(text)
            assert got.bytes == len(text.encode())


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_a_count_is_what_the_server_evaluates_for_a_prompt(counter: Counter) -> None:
    for text in (prose(600), messy(300)):
        answer = counter.server.complete(text, 1, cache_prompt=False)
        assert counter.count(text).tokens == answer.prompt_tokens


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_what_the_model_adds_is_known(counter: Counter) -> None:
    expected = 1 if "gemma" in counter._model else 0
    assert counter.count("x").special == expected
    assert counter.count("x", add_special=False).special == 0


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize("size", [500, 20_000])
def test_pieces_add_up_to_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = messy(60_000)
    with Counter.start(gemma3(), engine=find("embedded")) as counter:
        whole = len(counter.server.tokenize(text, add_special=True))
        monkeypatch.setattr(tokens, "PIECE", size)
        monkeypatch.setattr(Cuts.pieces, "__defaults__", (size,))
        seen: list[tuple[int, int]] = []
        got = counter.count(text, progress=lambda done, of: seen.append((done, of)))
    assert len(seen) > 60_000 / size / 2
    assert seen[0] == (0, 60_000)
    assert seen[-1] == (60_000, 60_000)
    assert got.tokens == whole


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_two_megabytes_in_one_go(tmp_path: Path) -> None:
    text = prose(2_000_000)
    path = tmp_path / "big.txt"
    path.write_text(text, newline="")
    got = count_file(smollm2(), path, engine=find("embedded"))
    assert got.bytes == 2_000_000
    assert 360_000 < got.tokens < 520_000  # some 20 % more tokens than words
    with Counter.start(smollm2(), engine=find("embedded")) as counter:
        half = text.index(". ", 1_000_000) + 1
        parts = (text[:half], text[half:])
        assert sum(counter.count(part).tokens for part in parts) == got.tokens


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize("name", NAMES)
def test_equal_to_llama_tokenize(name: str, tmp_path: Path) -> None:
    server = os.environ.get("KVWISE_TEST_ENGINE")
    program = find(server).tool("llama-tokenize") if server else shutil.which("llama-tokenize")
    if not program:
        pytest.skip("no llama-tokenize here (KVWISE_TEST_ENGINE names a llama-server beside it)")
    path = tmp_path / "text"
    path.write_bytes(messy(50_000).replace("\x00", "").encode())
    words = [str(program), "-m", str(path_of(name)), "-f", str(path), "--ids", "--no-escape"]
    done = subprocess.run([*words, "--log-disable"], capture_output=True, text=True, check=True)
    assert count_file(path_of(name), path, engine=find("embedded")).tokens == len(
        json.loads(done.stdout)
    )


CUTS = Cuts(frozenset("ab"), frozenset("ab"))


@given(st.text(alphabet="abc \n", max_size=300), st.integers(1, 50))
def test_pieces_are_the_text_and_every_cut_is_safe(text: str, size: int) -> None:
    pieces = list(CUTS.pieces(text, size))
    assert "".join(pieces) == text
    for left, right in itertools.pairwise(pieces):
        assert left[-1] in "ab"
        assert right[0] == " "
        assert right[1] in "ab"


@given(st.text(max_size=200))
def test_without_proof_a_text_stays_whole(text: str) -> None:
    assert list(Cuts().pieces(text, 10)) == [text]


@settings(max_examples=30)
@given(st.integers(1, 400))
def test_pieces_are_not_much_longer_than_asked(size: int) -> None:
    text = "ab " * 500
    assert max(map(len, CUTS.pieces(text, size))) <= max(size, 4) + 3


def vocabulary(tokens: list[str], kinds: list[int]) -> Header:
    keys = {"tokenizer.ggml.tokens": tuple(tokens), "tokenizer.ggml.token_type": tuple(kinds)}
    return Header(version=3, metadata=keys, tensors=())


def test_letters_are_safe_only_as_far_as_the_vocabulary_proves() -> None:
    plain = cuts_in(vocabulary(["<unk>", "▁the", "b▁c", "d ", "e", "▁▁"], [2, 1, 1, 1, 1, 1]))
    assert not {"b", "d"} & plain.before
    assert {"e", "t", "c"} <= plain.before
    assert "t" in plain.after
    special = cuts_in(vocabulary(["user", "<|x|>", "z"], [4, 3, 1]))
    assert "r" not in special.before
    assert "u" not in special.after
    assert {"x", "z"} <= special.before & special.after
    assert cuts_in(Header(version=3, metadata={}, tensors=())) == Cuts()
    assert cuts_in(vocabulary(["a"], [])) == Cuts()


def test_only_vocabularies_that_merge_letters_are_cut() -> None:
    assert cuts_of(str(smollm2())) == Cuts()  # BPE: whole texts are fast
    assert len(cuts_of(str(gemma3())).before) > 40


@given(st.lists(st.integers(0, 10**6), max_size=50), st.lists(st.integers(1, 9), max_size=30))
def test_ids_are_counted_however_the_answer_is_cut(ids: list[int], cuts: list[int]) -> None:
    data = json.dumps({"tokens": ids}, separators=(",", ":")).encode()
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(data[at : at + cut])
        at += cut
    assert count_ids([*pieces, data[at:]]) == len(ids)


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"error":[1,2]}', b'{"tokens":[1,2', b"[1,2]"])
def test_anything_else_is_no_list_of_tokens(answer: bytes) -> None:
    with pytest.raises(EngineError, match="no list of tokens"):
        count_ids([answer])


def test_texts_that_cannot_be_counted_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "latin1.txt"
    bad.write_bytes(b"caf\xe9")
    with pytest.raises(SourceError, match="byte 3"):
        read_text(bad)
    with pytest.raises(SourceError, match="cannot be read"):
        read_text(tmp_path)
    with pytest.raises(SourceError, match="cannot be read"):
        read_text(tmp_path / "none")
    monkeypatch.setattr(tokens, "MAX_BYTES", 3)
    with pytest.raises(SourceError, match="more than 3"):
        read_text(bad)
    if os.name != "nt":
        with pytest.raises(SourceError, match="more than 3"):
            read_text("/dev/zero")  # has no size, and no end
    crlf = tmp_path / "x"
    crlf.write_bytes(b"a\r\n")
    monkeypatch.setattr(tokens, "MAX_BYTES", 30)
    assert read_text(crlf) == "a\r\n"


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_half_a_character_is_refused(counter: Counter) -> None:
    with pytest.raises(SourceError, match="half a character"):
        counter.count("a\ud800")
    assert replace(counter.count("a"), seconds=0.0).tokens >= 1
