"""What --matrix and --vary make."""

from __future__ import annotations

from contextlib import suppress

import pytest

from kvwise.bench.cases import SIX, Lengths, Task, make_cases, matrix, parse_vary
from kvwise.errors import UsageError
from kvwise.launch import Launch
from kvwise.options import OPTIONS, asked_threads


def cases(text: str, base: Launch | None = None, *, fixed: bool = False):
    axes, tests = parse_vary([text], Lengths())
    return make_cases([base or Launch()], axes, tests.all(), fixed)


def test_all_combinations_in_llama_cpps_own_words() -> None:
    found = cases("ctk=f16,q8_0;fa=on,off;ub=128,512")
    assert [each.label for each in found][:3] == [
        "ctk=f16 fa=on ub=128", "ctk=f16 fa=on ub=512", "ctk=f16 fa=off ub=128",
    ]  # fmt: skip
    assert len(found) == 8
    assert {each.launch.n_ubatch for each in found} == {128, 512}
    assert {each.launch.flash_attn for each in found} == {"on", "off"}
    assert len({each.key for each in found}) == 8


def test_switches_have_values_as_in_llama_bench() -> None:
    found = cases("nkvo=0,1")
    assert [each.launch.offload_kqv for each in found] == [True, False]


def test_flags_that_change_no_byte_are_passed_on_and_replace_the_users() -> None:
    found = cases("t=1,2", Launch(extra=("-t", "8", "--prio", "1")))
    assert [each.launch.extra for each in found] == [
        ("--prio", "1", "-t", "1"), ("--prio", "1", "-t", "2"),
    ]  # fmt: skip


def test_load_modes_decide_where_weights_are_counted() -> None:
    assert [each.launch.mmap for each in cases("lm=mmap,none")] == [True, False]


def test_lengths_make_tests_and_not_settings() -> None:
    axes, tests = parse_vary(["d=0,4096;p=512;n=64"], Lengths())
    assert axes == ()
    assert [test.name for test in tests.all()] == ["pp512", "tg64", "pp512@d4096", "tg64@d4096"]


def test_the_context_holds_the_longest_test_and_one_token_more() -> None:
    (case,) = cases("ctk=f16;d=4096")
    assert case.launch.n_ctx == 4864  # 4096 + 512 + 1, in whole blocks of 256
    (case,) = cases("ctk=f16;d=4096", Launch(n_ctx=1000), fixed=True)
    assert case.launch.n_ctx == 1000


def test_slots_that_share_a_context_get_one_each() -> None:
    one, four = cases("np=1,4")
    assert (one.launch.n_ctx, four.launch.n_ctx) == (768, 4 * 768)
    (case,) = cases("np=4", Launch(kv_unified=True))
    assert case.launch.n_ctx == 768


def test_the_matrix_begins_with_the_six_and_has_every_pair_once() -> None:
    (axis,) = matrix("kv")
    pairs = [tuple(text.split("/")) for text, _, _ in axis.values]
    assert pairs[:6] == list(SIX)
    assert len(pairs) == len(set(pairs)) == 81
    found = make_cases([Launch()], matrix("six"), (Task("prompt", 8),), fixed_ctx=False)
    assert [(each.launch.type_k, each.launch.type_v) for each in found] == list(SIX)
    assert found[1].label == "ctk=q8_0 ctv=f16"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ctk", "no option with values"),
        ("ctk=f16;ctk=q8_0", "twice"),
        ("ctx=1", "no option ctx"),
        ("ctk=f17", "not a cache type"),
        ("fa=maybe", "fa"),
        ("d=-1", "not a count"),
        ("p=x", "p"),
        ("p=1;n-prompt=2", "n-prompt is there twice"),
        ("ctk=f16;cache-type-k=q8_0", "cache-type-k is there twice"),
        ("m=other.gguf", "m cannot vary"),
        ("kv-unified-per-slot=1", "cannot vary"),
        ("t=1.5", "not a whole number"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        cases(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("value", ["1", "1.5", "on", "f16", "a/b"])
def test_any_option_of_llama_cpp_varies_or_is_refused(value: str) -> None:
    for option in OPTIONS:
        for flag in {*option.flags, *option.negative, *option.bench}:
            with suppress(UsageError):
                assert all(each.key for each in cases(f"{flag}={value}"))


def test_no_number_of_threads_is_all_cores_as_in_llama_cpp() -> None:
    said = {text: asked_threads(Launch(extra=("-t", text)), 8) for text in ("-1", "0", "3")}
    assert said == {"-1": 8, "0": 8, "3": 3}
    assert asked_threads(Launch(extra=("-t", "2", "--threads", "4")), 8) == 4
    assert asked_threads(Launch(), 8) is None
    with pytest.raises(UsageError, match="-t"):
        asked_threads(Launch(extra=("-t", "1,2")), 8)


def test_nothing_to_run_and_far_too_much_are_refused() -> None:
    with pytest.raises(UsageError):
        Lengths(prompt=(0,), decode=(0,)).all()
    values = ",".join(str(number) for number in range(1, 5000))
    with pytest.raises(UsageError) as caught:
        cases(f"ub={values}")
    assert "4,096" in str(caught.value)
