"""Memory to keep free counts in what `size` answers, and what is not counted is said."""

from __future__ import annotations

from typing import Any

import pytest

from kvwise.units import MIB

from .conftest import QWEN, Kvwise

SIX = ("size", QWEN, "-c", "4096", "--gpu", "6GiB")


def codes(document: Any) -> set[str]:
    return {note["code"] for note in document["notes"]}


def test_a_reserve_that_was_asked_for_decides(quick: Kvwise) -> None:
    plain = quick(*SIX, "--json")
    left = plain.json["buffers"][0]["headroom_bytes"]
    assert plain.code == 0 < left
    for kept, code in ((left // MIB, 0), (left // MIB + 1, 3)):
        done = quick(*SIX, "--reserve", f"{kept}MiB", "--json")
        line = done.json["buffers"][0]
        assert (done.code, done.json["fits"]) == (code, code == 0)
        assert line["reserve_bytes"] == kept * MIB
        assert line["headroom_bytes"] == left - kept * MIB
        assert line["total_bytes"] == plain.json["buffers"][0]["total_bytes"]
        assert done.json["misses_by_bytes"] == max(0, kept * MIB - left)
    shown = quick(*SIX, "--reserve", "100MiB").out
    assert "beside the reserve of 100.0 MiB" in shown
    assert "does not fit with the reserve" in quick(*SIX, "--reserve", "2GiB").out


def test_a_reserve_of_the_gpu_itself_decides_too(quick: Kvwise) -> None:
    done = quick(*SIX[:-1], "name=A,total=6GiB,kind=cuda,reserve=2GiB", "--json")
    assert done.code == 3
    assert done.json["buffers"][0]["reserve_bytes"] == 2048 * MIB


def test_a_reserve_that_is_only_advised_is_told(quick: Kvwise) -> None:
    words = ("size", QWEN, "-ctk", "q8_0", "-ctv", "q8_0", "-np", "1", "--gpu", "RTX 4060")
    for n_ctx, told in (("36864", False), ("38912", True)):
        done = quick(*words, "-c", n_ctx, "--json")
        assert done.code == 0
        assert ("below_reserve" in codes(done.json)) is told
        assert done.json["buffers"][0]["reserve_bytes"] == 0


def test_a_bare_size_says_what_is_missing(quick: Kvwise) -> None:
    assert "bare_size" in codes(quick(*SIX, "--json").json)
    assert "bare_size" not in codes(quick(*SIX, "--reserve", "1MiB", "--json").json)
    words = (*SIX[2:], "--ram", "32GiB")
    for command in (("size",), ("plan", "--no-simulate"), ("run", "--dry-run")):
        out = quick(*command, QWEN, *words[2:] if command[0] != "size" else words).out
        head = out.partition("\n\n")[0].partition("\n  - ")[0]
        assert "6GiB is only a size" in head, command  # before any figure that rests on it
        assert "no speed is known" in head
        assert 'name the card ("RTX 4060")' in head
        assert out.count("only a size") == 1
    assert "only a size" in quick("table", QWEN, "--gpu", "6GiB", "--contexts", "4k").out
    card = quick(*SIX[:-1], "RTX 4060", "--json").json
    assert "bare_size" not in codes(card)


@pytest.mark.parametrize(("more", "told"), [((), True), (("--no-repack",), False),
                                            (("-lm", "none"), False)])  # fmt: skip
def test_weights_that_stand_twice_are_explained(
    quick: Kvwise, more: tuple[str, ...], told: bool
) -> None:
    done = quick("size", QWEN, "-c", "512", "--cpu-only", *more, "--json")
    assert ("weights_repacked" in codes(done.json)) is told
    parts = {part["buffer"]: part["weights_bytes"] for part in done.json["buffers"][0]["parts"]}
    assert ("CPU_REPACK" in parts and "CPU_Mapped" in parts) is told


def test_a_wide_colon_needs_no_space(quick: Kvwise) -> None:
    assert quick("size", "--lang", "zh").err.startswith("错误：没有")
    assert quick("size").err.startswith("error: no model\nhint: name")


def test_what_is_no_llama_cpp_is_told(quick: Kvwise) -> None:
    done = quick("simulate", QWEN, "--cpu-only", "--engine", "/bin/false")
    assert (done.code, "is no program of llama.cpp" in done.err) == (2, True)


def test_a_table_gives_no_reason_for_what_was_asked_for(quick: Kvwise) -> None:
    words = ("table", QWEN, "--gpu", "RTX 4060", "--contexts", "4k", "--types", "q8_0", "--json")
    (kept,) = quick(*words, "--reserve", "300MiB").json["gpus"][0]["devices"]
    assert (kept["reserve_bytes"], kept["reserve_reason"]) == (300 * MIB, None)
