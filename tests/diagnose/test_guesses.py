"""Guesses: below every rule, of memory only with a word of memory, worth what they are said to."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from kvwise.diagnose import diagnose
from kvwise.diagnose.guesses import CONFIDENCE
from kvwise.diagnose.likeness import HEALTHY, scores, words_of

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/doctor_words.py"
UNKNOWN = "gguf reader: the tokenizer vocabulary of this model failed the checks: merges bad\n"
VAGUE = "Error: 500 Internal Server Error: llama runner process has terminated: exit status 2\n"
HEALTHY_LOG = (Path(__file__).parent / "logs/healthy-b10605.log").read_text("utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("doctor_words", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_counts_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0


def test_lines_that_no_rule_knows_get_guesses_and_stay_unexplained() -> None:
    found = diagnose(UNKNOWN, numbers=False)
    assert all(each.guessed for each in found.findings)
    assert 0 < len(found.findings) <= len(CONFIDENCE)
    assert [each.confidence for each in found.findings] == list(CONFIDENCE)[: len(found.findings)]
    assert [each.text for each in found.unexplained] == [UNKNOWN.strip()]
    assert {each.text for each in found.findings[0].evidence} == {UNKNOWN.strip()}
    assert not any(each.reason_known for each in found.findings)
    assert found.outcome == "unknown"


def test_where_only_that_it_failed_is_known_guesses_come_after() -> None:
    findings = diagnose(VAGUE, numbers=False).findings
    assert [each.guessed for each in findings] == [False, True, True]
    assert len({each.kind for each in findings}) == 3


def test_a_cause_that_a_rule_is_sure_of_gets_no_guess_beside_it() -> None:
    log = "llama_model_load: error loading model: missing tensor 'output_norm'\n" + UNKNOWN
    assert not any(each.guessed for each in diagnose(log, numbers=False).findings)


@pytest.mark.parametrize("text", [UNKNOWN, VAGUE])
def test_without_a_word_of_memory_memory_is_not_guessed(text: str) -> None:
    assert not any(each.memory_is_the_cause for each in diagnose(text, numbers=False).findings)


def test_with_a_word_of_memory_it_may_be() -> None:
    log = VAGUE + "the weights did not get their memory: allocation failed, not enough memory\n"
    assert any(each.memory_is_the_cause for each in diagnose(log, numbers=False).findings)


@pytest.mark.parametrize(
    "line",
    [
        "something failed: the frobnicator",
        "warning: " + UNKNOWN,
        "[WARN] " + UNKNOWN,
        UNKNOWN.strip() + "; falling back to the built-in one",
    ],
)
def test_little_said_and_warnings_are_no_reason_to_guess(line: str) -> None:
    assert diagnose(line, numbers=False).blamed == ()


def test_a_load_that_went_well_gets_no_guess() -> None:
    assert diagnose(HEALTHY_LOG + UNKNOWN, numbers=False).blamed == ()


def test_a_guess_about_the_last_load_does_not_hide_what_an_earlier_one_failed_of() -> None:
    failed = (Path(__file__).parent / "logs/v-needs-flash-b10605.log").read_text("utf-8")
    other = "build: 5000 (abcdef) with gcc\n" + UNKNOWN
    assert diagnose(failed + other, numbers=False).findings[0].kind == "fa-required"


def test_words_and_marks_do_not_depend_on_paths_and_times() -> None:
    one = diagnose("error: /home/a/b.gguf has failed at time=2026-01-01T00:00:00Z", numbers=False)
    other = diagnose("error: /srv/models/c.gguf has failed at time=2025-05-05T10:10:10Z",
                     numbers=False)  # fmt: skip
    assert one.case
    assert other.case
    assert words_of(one.case) == words_of(other.case)


def test_scores_are_ordered_and_cover_every_kind_with_texts() -> None:
    found = scores(frozenset({"alloca", "failed", "%memory"}))
    assert list(found.values()) == sorted(found.values(), reverse=True)
    document = json.loads((ROOT / "src/kvwise/data/diagnose/words.json").read_text("utf-8"))
    assert set(found) == set(document["texts"])
    assert HEALTHY in found


@pytest.mark.slow
def test_what_is_left_out_is_still_found(script: ModuleType) -> None:
    """Every fifth text, without what knows it: the page says more, with the command for it."""
    tally: Counter[str] = script.left_out(all_of_them=False, step=5)
    failed = tally["failed"]
    assert failed > 150
    assert tally["first"] >= 0.5 * failed
    assert tally["three"] >= 0.62 * failed
    assert tally["blamed wrongly"] <= 0.05 * failed
    assert tally["blamed"] <= 0.08 * tally["healthy"]
