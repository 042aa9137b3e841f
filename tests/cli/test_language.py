"""Chinese throughout: answers, errors, help; and how the language is chosen."""

from __future__ import annotations

import re

import pytest

from .conftest import QWEN, Kvwise

CHINESE = re.compile(r"[\u4e00-\u9fff]")
GPU = ("--gpu", "RTX 4060")


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", QWEN),
        ("size", QWEN, "-c", "4096", *GPU),
        ("size", QWEN, "-c", "4096", *GPU, "--explain"),
        ("plan", QWEN, *GPU),
        ("plan", QWEN, *GPU, "-c", "3584", "--prompt-tokens", "3982"),
        ("size", QWEN, "-fa", "off", "-ctv", "q8_0", *GPU),
        ("inspect", "nothing.gguf"),
        ("size", QWEN, "--gpus"),
        ("-h",),
        ("plan", "-h"),
    ],
)
def test_every_line_with_words_is_chinese(quick: Kvwise, words: tuple[str, ...]) -> None:
    done = quick(*words, "--lang", "zh")
    text = done.out + done.err
    lines = [
        line for line in text.splitlines() if re.search(r"[A-Za-z]{3,} [a-z]{3,} [a-z]{2,}", line)
    ]
    assert CHINESE.search(text)
    assert [line for line in lines if not CHINESE.search(line) and "$ " not in line] == []


@pytest.mark.parametrize(
    ("env", "chinese"),
    [
        ({"KVWISE_LANG": "zh"}, True),
        ({"LANG": "zh_CN.UTF-8"}, True),
        ({"LANG": "zh_CN.UTF-8", "KVWISE_LANG": "en"}, False),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, False),
        ({"LANG": "de_DE.UTF-8"}, False),
        ({}, False),
    ],
)
def test_how_the_language_is_chosen(kvwise: Kvwise, env: dict[str, str], chinese: bool) -> None:
    done = kvwise("size", QWEN, "-c", "4096", "--cpu-only", env=env)
    assert bool(CHINESE.search(done.out)) is chinese


def test_the_flag_wins(kvwise: Kvwise) -> None:
    done = kvwise("size", QWEN, "--cpu-only", "--lang", "en", env={"KVWISE_LANG": "zh"})
    assert not CHINESE.search(done.out)


def test_json_keys_stay_and_sentences_change(quick: Kvwise) -> None:
    english = quick("size", QWEN, "-c", "4096", *GPU, "--json").json
    chinese = quick("size", QWEN, "-c", "4096", *GPU, "--json", "--lang", "zh").json
    assert english["buffers"][0]["total_bytes"] == chinese["buffers"][0]["total_bytes"]
    assert set(english) == set(chinese)
    assert CHINESE.search(chinese["buffers"][0]["reasons"]["weights"])
