"""The door through which commands that start an engine ask why a run failed."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvwise
from kvwise.diagnose.failed_run import failure_error, findings_json, sentences, why_failed
from kvwise.engine.outcome import Ending, Outcome
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.memory.account import account
from kvwise.text import phrase

from .test_numbers import FULL, ROOT

LOGS = Path(__file__).parent / "logs"


@pytest.fixture(scope="module")
def qwen() -> Model:
    return kvwise.open_model(str(ROOT / "zoo/models/qwen3-8b.json.gz"))


def outcome(*tail: str, code: int = 1) -> Outcome:
    return Outcome(Ending.REFUSED, code, 1, 1.0, ready=False, tail=tail)


def test_a_kept_log_tells_more_than_the_last_lines() -> None:
    log = LOGS / "v-needs-flash-b10605.log"
    for name in (log, str(log), log.read_text().splitlines()):
        assert why_failed(name, outcome("bye"))[0].kind == "fa-required"


def test_without_a_log_the_last_lines_speak(tmp_path: Path) -> None:
    ended = outcome(*FULL.splitlines()[-4:])
    for log in (None, "", str(tmp_path / "none.log"), tmp_path):
        assert why_failed(log, ended)[0].kind == "kv-alloc-oom"


def test_an_end_without_a_word_is_told_by_its_status() -> None:
    assert why_failed(None) == ()
    assert why_failed(None, outcome("loading", "still loading")) == ()
    found = why_failed(["load_tensors: loading model tensors"], exit_code=-9)
    assert found[0].memory_is_the_cause


def test_what_only_slows_is_no_reason_for_a_failure() -> None:
    line = (
        "slot   operator(): id  0 | task 6 | forcing full prompt re-processing due to lack of "
        "cache data (likely due to SWA or hybrid/recurrent memory)"
    )
    assert why_failed([line]) == ()
    assert why_failed([line], outcome(code=0)) == ()
    assert why_failed([line], exit_code=1)[0].kind == "swa-reprocessing"


def test_with_the_model_settings_that_fit_come_first(qwen: Model) -> None:
    plain = why_failed(FULL.splitlines())[0]
    found = why_failed(FULL.splitlines(), model=qwen)[0]
    assert found.remedies[1:] == plain.remedies
    flags = found.remedies[0].flags[0].split()
    devices = kvwise.diagnose(FULL, model=qwen).numbers.plan.choice.ledger.devices
    assert account(qwen, Launch.parse(flags), devices).fits
    other = why_failed(LOGS / "port-b10605.log", model=qwen)[0]
    assert other.remedies == why_failed(LOGS / "port-b10605.log")[0].remedies


def test_the_error_says_cause_and_remedy() -> None:
    findings = why_failed(FULL.splitlines())
    error = failure_error(findings, phrase("it ended"))
    assert str(error) == str(findings[0].cause)
    assert str(findings[0].remedies[0].text) in str(error.hint)
    assert str(error) in str(sentences(findings[0])[0])
    unknown = failure_error((), phrase("it ended"), log="a.log")
    assert (str(unknown), str(unknown.hint)) == ("it ended", "its log is in a.log")
    assert failure_error((), phrase("it ended")).hint is None


def test_the_document_has_them_in_both_languages() -> None:
    findings = why_failed(FULL.splitlines())
    here, there = findings_json(findings), findings_json(findings, "zh")
    assert here[0]["kind"] == there[0]["kind"] == "kv-alloc-oom"
    assert here[0]["cause"] != there[0]["cause"]
