"""`kvwise tune` as it is typed, up to where an engine would start."""

from __future__ import annotations

import pytest

from models import smollm2

from .conftest import QWEN, Kvwise

EMBEDDED = ("--engine", "embedded")


def test_without_optuna_it_says_what_to_install(
    quick: Kvwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvwise.tune.search.util.find_spec", lambda _: None)
    done = quick("tune", str(smollm2()))
    assert done.code == 1
    assert done.err.splitlines() == [
        "error: tune needs optuna, which is not installed", "hint: pip install 'kvwise[tune]'",
    ]  # fmt: skip


class TestWithOptuna:
    @pytest.fixture(autouse=True)
    def _there(self) -> None:
        pytest.importorskip("optuna")

    def test_dry_run_shows_the_space(self, quick: Kvwise) -> None:
        words = ("tune", str(smollm2()), "--dry-run", *EMBEDDED, "-c", "2048")
        found = quick(*words, "--json").json
        assert found["schema"] == "kvwise/tune/1"
        names = [knob["name"] for knob in found["space"]["knobs"]]
        assert names[:2] == ["t", "ub"] and "poll" in names
        assert found["space"]["most_evaluations"] <= max(12, found["space"]["size"] // 5)
        assert found["space"]["start"]["ub"] == 512
        assert "at most" in quick(*words).out

    def test_what_is_given_is_kept(self, quick: Kvwise) -> None:
        done = quick(
            "tune", str(smollm2()), "--dry-run", "--json", "-ub", "128", "-t", "1", "-c", "512",
            *EMBEDDED,
        )  # fmt: skip
        names = [knob["name"] for knob in done.json["space"]["knobs"]]
        assert "ub" not in names and "t" not in names

    def test_cache_types_by_quality(self, quick: Kvwise) -> None:
        done = quick(
            "tune", str(smollm2()), "--dry-run", "--json", "--knobs", "cache", "--min-quality",
            "medium", *EMBEDDED,
        )  # fmt: skip
        (knob,) = done.json["space"]["knobs"]
        assert knob["values"][:2] == ["f16/f16", "q8_0/q8_0"]
        assert "q8_0/q4_0" in knob["values"] and "q4_0/q4_0" not in knob["values"]

    def test_what_cannot_be_meant(self, quick: Kvwise) -> None:
        wrong = (
            ("--budget", "soon"), ("--budget", "-3m"), ("--budget", "10"), ("--knobs", "magic"),
            ("--resume", "--fresh"), ("--evaluations", "1"),
        )  # fmt: skip
        for words in wrong:
            done = quick("tune", str(smollm2()), *words, *EMBEDDED)
            assert done.code == 2, words
        assert quick("tune", QWEN, "--ram", "64GiB").code == 2  # only a header
