"""What is noticed in a table; the lines about GPUs are made up, for there is none here."""

from __future__ import annotations

from dataclasses import replace

from kvwise.bench.remarks import FALLBACK, LOST, SLOWER, V_ALONE, remarks, sentences
from kvwise.bench.summary import Line
from kvwise.text import phrase

from .make import DECODE, PROMPT, figure, line

GPU = {"devices": ["CUDA0"], "splits_prompt": 2, "splits_token": 2}
F16 = line("f16", "f16", figure(PROMPT, 990, 1000, 1010), figure(DECODE, 99, 100, 101), used=GPU)


def codes(*lines: Line) -> list[str]:
    return [each.code for each in remarks(lines)]


def test_v_alone_on_a_gpu_names_the_rule() -> None:
    slow = line("f16", "q8_0", figure(PROMPT, 530, 540, 550), figure(DECODE, 99, 100, 101),
                used=GPU)  # fmt: skip
    (found,) = remarks([F16, slow])
    assert (found.code, found.test) == (V_ALONE, "pp512")
    assert "46 %" in str(found.message)
    assert "-ctk q8_0" in str(found.message)


def test_a_difference_within_the_spread_is_none() -> None:
    near = line("q8_0", "q8_0", figure(PROMPT, 985, 992, 1005), figure(DECODE, 98, 99, 100.5))
    assert codes(F16, near) == []
    wide = line("q8_0", "q8_0", figure(PROMPT, 700, 900, 1100), figure(DECODE, 99, 100, 101))
    assert codes(F16, wide) == []


def test_a_small_difference_is_none_however_sure() -> None:
    sure = line("f16", "f16", figure(DECODE, 100, 100, 100))
    near = line("q8_0", "q8_0", figure(DECODE, 99, 99, 99))
    assert codes(sure, near) == []


def test_slower_without_a_gpu_is_only_slower() -> None:
    slow = line("f16", "q4_0", figure(DECODE, 50, 51, 52), used={"devices": []})
    assert codes(F16, slow) == [SLOWER]


def test_a_setting_that_is_slower_in_several_tests_is_told_once() -> None:
    base = line("f16", "f16", figure(PROMPT, 990, 1000, 1010), figure(DECODE, 99, 100, 101))
    slow = line("q8_0", "f16", figure(PROMPT, 530, 540, 550), figure(DECODE, 50, 51, 52))
    other = line("f16", "q8_0", figure(PROMPT, 730, 740, 750), figure(DECODE, 99, 100, 101))
    found = remarks([base, slow, other])
    assert len(found) == 3
    first, second = sentences(found, {slow.case.key: "ctk=q8_0 ctv=f16"})
    assert str(first) == (
        "ctk=q8_0 ctv=f16 is slower than f16: pp512 by 46 % (540.0 against 1,000.0 tokens/s); "
        "tg128 by 49 % (51.0 against 100.0 tokens/s)"
    )
    assert str(second) == (
        "ctk=f16 ctv=q8_0: pp512 is 26 % slower than f16 (740.0 against 1,000.0 tokens/s)"
    )


def test_a_cut_graph_shows_that_the_processor_does_a_part() -> None:
    cut = line("q5_1", "q5_1", figure(DECODE, 98, 99, 101), used=GPU | {"splits_token": 58})
    assert codes(F16, cut) == [FALLBACK]


def test_only_settings_that_are_alike_otherwise_are_compared() -> None:
    other = line("q8_0", "q8_0", figure(DECODE, 50, 51, 52), rest=(("ub", "64"),))
    assert codes(F16, other) == []


def test_what_was_not_used_is_told_once_for_all() -> None:
    effect = (("flash_attn", phrase("flash attention was asked for and is off"), True),)
    lines = [replace(line(kind, kind), effects=effect) for kind in ("f16", "q8_0")]
    (found,) = remarks(lines)
    assert (found.code, len(found.keys), found.test) == (LOST, 2, "flash_attn")
    assert str(found.message).startswith("2 settings: ")
