"""Sorting a command line: ours, llama.cpp's, and what belongs to nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.cli._commands import CommandFolder, split_words

from .conftest import QWEN, Kvwise

OURS = {"--gpu": 1, "--cpu-only": 0, "-n": 1, "--pair": 2}


@given(
    st.lists(
        st.one_of(
            st.just(["--cpu-only"]),
            st.tuples(st.just("--gpu"), st.text(min_size=1)).map(list),
            st.tuples(st.just("--pair"), st.text(), st.text()).map(list),
            st.text(alphabet="abc-", max_size=4)
            .filter(lambda word: word not in OURS)
            .map(lambda word: [word]),
        )
    )
)
def test_every_word_ends_on_one_side_in_its_order(groups: list[list[str]]) -> None:
    words = [word for group in groups for word in group]
    ours, others = split_words(words, OURS)
    assert ours == [word for group in groups if group[0] in OURS for word in group]
    assert others == [word for group in groups if group[0] not in OURS for word in group]


def test_a_flag_may_carry_its_value() -> None:
    assert split_words(["--gpu=6GiB", "x"], OURS) == (["--gpu=6GiB"], ["x"])
    assert split_words(["-n=5"], OURS) == ([], ["-n=5"])  # short flags take no =


def test_multi_letter_short_flags_of_llama_cpp_work_anywhere(quick: Kvwise) -> None:
    one = quick("size", QWEN, "-c", "4096", "-ctk", "q8_0", "-ctv", "q8_0", "-ngl", "20",
                "-nkvo", "--gpu", "24GiB", "--json")  # fmt: skip
    two = quick("size", "--json", "-nkvo", "-ngl", "20", "--gpu", "24GiB", "-ctv", "q8_0",
                "-ctk", "q8_0", "-c", "4096", QWEN)  # fmt: skip
    assert one.code == two.code == 0
    assert one.json["launch"] == two.json["launch"]
    assert one.json["launch"]["gpu_layers"] == 20
    assert one.json["launch"]["offload_kqv"] is False


def test_the_model_may_stand_behind_m(quick: Kvwise) -> None:
    assert (
        quick("size", "-m", QWEN, "--cpu-only", "--json").json["model"]["architecture"] == "qwen3"
    )
    twice = quick("size", "-m", QWEN, "other.gguf", "--cpu-only", "--json")
    assert (twice.code, twice.json["error"]["type"]) == (2, "UsageError")


def test_llama_cpps_environment_is_read(kvwise: Kvwise) -> None:
    done = kvwise("size", QWEN, "--cpu-only", "--json", env={"LLAMA_ARG_CTX_SIZE": "1024"})
    assert done.json["launch"]["n_ctx"] == 1024


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("size", QWEN, "--gpus", "6GiB"), "--gpu"),
        (("size", QWEN, "--ctx-sise", "4096"), "--ctx-size"),
        (("plan", QWEN, "--gaol", "chat"), "--goal"),
        (("sise", QWEN), "size"),
    ],
)
def test_a_misspelt_word_names_the_nearest(
    quick: Kvwise, words: tuple[str, ...], near: str
) -> None:
    done = quick(*words)
    assert done.code == 2
    assert f"did you mean {near}?" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("size",),
        ("size", QWEN, "-c"),
        ("size", QWEN, "-c", "many"),
        ("size", QWEN, "--gpu", "RTX 1"),
        ("size", QWEN, "--gpu", "6GiB", "--cpu-only"),
        ("size", QWEN, "--reserve", "lots", "--gpu", "6GiB"),
        ("size", QWEN, "--compute-mode", "other"),
        ("plan", QWEN, "--slots", "0"),
        ("plan", QWEN, "--goal", "fun"),
        ("plan", QWEN, "--prompt-tokens", "-5"),
        ("inspect", QWEN, "extra"),
        ("tokens", QWEN),
        ("--lang", "fr"),
        ("nothing",),
    ],
)
def test_wrong_usage_is_exit_2_in_one_line_with_a_hint(
    quick: Kvwise, words: tuple[str, ...]
) -> None:
    done = quick(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    as_json = quick(*words, "--json")
    assert as_json.code == 2
    assert as_json.json["schema"] == "kvwise/error/1"
    assert set(as_json.json["error"]) == {"type", "message", "hint"}


def test_every_command_explains_itself_and_ends_with_two_examples(quick: Kvwise) -> None:
    names = CommandFolder.names()
    assert {"inspect", "plan", "size", "tokens"} <= set(names)
    for name in names:
        done = quick(name, "-h")
        assert done.code == 0
        examples = done.out.partition("Examples:")[2].split("$ ")[1:]
        assert len(examples) >= 2, name
        assert all(f"kvwise {name}" in example for example in examples)
    whole = quick("-h").out
    assert all(name in whole for name in names)


def test_versions(quick: Kvwise) -> None:
    assert quick("--version").out.startswith("kvwise ")
    assert quick("--version", "--json").json["schema"] == "kvwise/version/1"


def test_an_option_that_took_the_next_one_for_its_value_is_named(quick: Kvwise) -> None:
    """`-fa` alone was right in older builds."""
    for words, says in (
        (("-fa", "-c", "512"), "-fa needs a value: on|off|auto"),
        (("-c", "512", "-ngl", "--temp", "0.5"), "-ngl needs a value: N|auto|all"),
        (("-c", "512", "more.gguf"), "one word too many: more.gguf"),
    ):
        done = quick("size", QWEN, *words)
        assert (done.code, done.err) == (2, f"error: {says}\n")


def test_what_llama_cpp_takes_no_equals_sign_after_is_told(quick: Kvwise) -> None:
    done = quick("size", QWEN, "--ctx-size=512")
    assert done.code == 2
    assert done.err == (
        "error: llama-server takes no = after --ctx-size\nhint: write --ctx-size 512\n"
    )
