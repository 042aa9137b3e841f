"""Prompts and texts that come with the package; what is made of two answers; the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.errors import SourceError, UsageError
from kvwise.launch import Launch
from kvwise.quality.plan import noise_of, other_noise_of, settings, units
from kvwise.quality.prompts import Answer, Prompt, diverged_at, outcome, prompts
from kvwise.quality.texts import shipped, text_of

TOKENS = st.lists(st.integers(0, 5), max_size=12)
ASKED = Prompt("sum", "?", 16, expect="42")


def answer(*tokens: int, text: str = "it is 42", stop: str = "eos") -> Answer:
    return Answer(tokens, text, 5, stop)


def test_every_kind_of_prompt_is_there() -> None:
    found = {each.name: each for each in prompts()}
    assert {"arithmetic", "code", "chinese", "needle-10", "needle-50", "needle-90"} <= set(found)
    needles = [each for each in found.values() if each.depth is not None]
    assert len({each.expect for each in needles}) == len(needles)
    assert all(each.expect in each.needle and "{text}" in each.prompt for each in needles)
    assert all(each.expect not in shipped().content for each in needles)


def test_the_text_is_in_two_languages_and_names_itself() -> None:
    text = shipped()
    assert sum("一" <= letter <= "鿿" for letter in text.content) > 1500
    assert sum(letter.isascii() and letter.isalpha() for letter in text.content) > 8000
    assert text.hash == text_of(None).hash
    assert len(text.hash) == 16


def test_a_text_of_the_user(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "mine.txt"
    path.write_text("one\r\ntwo", newline="")
    assert text_of(path).content == "one\r\ntwo"
    assert text_of(path).hash != shipped().hash
    path.write_text(" \n")
    with pytest.raises(UsageError, match="empty"):
        text_of(path)
    with pytest.raises(SourceError):
        text_of(tmp_path / "none.txt")


@given(TOKENS, TOKENS)
def test_the_first_difference(one: list[int], other: list[int]) -> None:
    place = diverged_at(one, other)
    if place is None:
        assert one == other
    else:
        assert one[:place] == other[:place]
        assert one[place : place + 1] != other[place : place + 1]


def test_outcomes() -> None:
    base = answer(1, 2, 3)
    same = outcome(ASKED, base, base)
    assert (same.diverged_at, same.right, same.broken, same.lost, same.cut) == (
        None, True, False, False, False,
    )  # fmt: skip
    empty = outcome(ASKED, base, answer(2, text=" \n"))
    assert empty.empty
    assert empty.broken
    assert empty.lost
    round_and_round = outcome(ASKED, base, answer(1, *[7, 8] * 20, stop="limit"))
    assert round_and_round.broken
    assert round_and_round.cut
    assert round_and_round.diverged_at == 1
    assert outcome(replace(ASKED, expect=""), base, base).right is None


def test_an_answer_through_json() -> None:
    found = answer(1, 2)
    assert Answer.from_dict(found.as_dict()) == found


def launch(**changes: object) -> Launch:
    return Launch(**{"n_ctx": 4096, "n_seq_max": 4} | changes)  # type: ignore[arg-type]


def test_settings_that_are_scored_alike_are_measured_once() -> None:
    found = settings([launch(type_k="q8_0"), launch(type_k="q8_0", n_ctx=8192), launch()], 512)
    assert [(each.launch.type_k, len(each.asked)) for each in found] == [("f16", 1), ("q8_0", 2)]
    assert found[0].is_base
    assert {each.launch.n_ctx for each in found} == {512}


def test_what_changes_numbers_gets_its_own_base() -> None:
    found = settings(
        [launch(type_k="q8_0", flash_attn="on"), launch(type_k="q8_0", flash_attn="off")], 512
    )
    assert [each.is_base for each in found] == [True, False, True, False]
    assert len({each.group for each in found}) == 2
    assert not found[0].asked  # nobody asked for f16 itself


def test_units_come_base_first_and_have_names_of_their_own() -> None:
    found = settings([launch(type_k="q8_0"), launch(type_v="q8_0")], 512)
    keys = [unit.key for unit in units(found, prompts()[:2])]
    assert len(set(keys)) == len(keys)
    kinds = [key.split()[0] for key in keys]
    assert kinds == ["base", "noise", "ask", "ask", "again", "again",
                     *["score", "ask", "ask"] * 2]  # fmt: skip


@pytest.mark.parametrize(("ubatch", "expected"), [(512, 128), (256, 128), (128, 512), (1, 512)])
def test_noise_is_another_batch(ubatch: int, expected: int) -> None:
    base = settings([launch(n_ubatch=ubatch)], 512)[0].launch
    assert noise_of(base).n_ubatch == expected
    assert other_noise_of(base) == replace(base, flash_attn="off")
    assert other_noise_of(replace(base, flash_attn="off")) == replace(base, flash_attn="on")
