"""Patterns of `-ot`: what std::regex finds, and no pattern that takes for ever."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.errors import UsageError
from kvwise.memory.patterns import compiled

UP, QUERY = "blk.12.ffn_up_exps.weight", "blk.3.attn_q.weight"


@pytest.mark.parametrize(
    ("pattern", "found"),  # what libstdc++ 12 answers for (UP, QUERY)
    [
        ("exps", (True, False)),
        (r"blk\.(?:[0-9]|1[0-9])\.ffn_.*_exps\.", (True, False)),
        (r"blk\.[[:digit:]]+\.ffn", (True, False)),
        (r"^(?!blk\.1[0-2]\.)", (False, True)),
        (r"blk\.\d\.", (False, True)),
        (r"\Ablk", (False, False)),  # only a letter in C++
        ("[[:alpha:]_]+_q", (False, True)),
        ("[]|attn", (False, True)),
        ("b[^]k", (True, True)),
        ("[b&&l]lk", (True, True)),
        (r"\x62lk", (True, True)),
        ("weight$", (True, True)),
        ("", (True, True)),
    ],
)
def test_finds_what_the_engine_finds(pattern: str, found: tuple[bool, bool]) -> None:
    assert tuple(bool(compiled(pattern).search(name)) for name in (UP, QUERY)) == found


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[a", "*", "a**", "(?i)EXPS", "(?<=blk)a", "(?P<n>a)", "blk.{0-3}",
     "{1}", "\\",
     "[[:nothing:]]", "[[.a.]]", r"\x4", r"\u12", r"\1", r"[\1]", "(?=a)+", "a{99999999999}",
     "(" * 500 + ")" * 500],
)  # fmt: skip
def test_refuses_what_the_engine_refuses(pattern: str) -> None:
    with pytest.raises(UsageError, match="is not a pattern"):
        compiled(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+!", "^([a-z._0-9]+)+!", "(.*)*x", "((b|l)*k?)*!", "(.{1,60}){2,}!", ".*" * 20 + "!",
     "(a{0,90}){0,90}!"],
)  # fmt: skip
def test_refuses_what_takes_for_ever(pattern: str) -> None:
    with pytest.raises(UsageError, match="for ever"):
        compiled(pattern)


@given(
    st.lists(
        st.sampled_from(
            [*"ab.*+?|()[]^$-,", "{1,2}", "{", "}", "(?:", "(?!", r"\d", "[[:digit:]]", "[^a]"]
        ),
        max_size=12,
    ).map("".join)
)
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        compiled(text).search(UP)
