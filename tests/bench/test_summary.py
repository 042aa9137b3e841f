"""A few figures of many samples, and what becomes of starts that failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvwise.bench.cases import Case, Task
from kvwise.bench.ruled import Ruled
from kvwise.bench.run import FAILED, LEFT_OUT, OK, SKIPPED, Result
from kvwise.bench.summary import doubted, line_of, ratio
from kvwise.cli._bench_view import _doubts, _shares
from kvwise.engine.outcome import Ending, Outcome
from kvwise.gguf.model import Model
from kvwise.launch import Launch
from kvwise.opening import open_model
from kvwise.text import phrase
from kvwise.verify.codec import encode

from .make import DECODE, figure
from .make import line as a_line

TESTS = Path(__file__).resolve().parents[1]
LOGS, ZOO = TESTS / "diagnose/logs", TESTS / "zoo/models/qwen3-8b.json.gz"
RULED = Ruled(Case(0, Launch(n_ctx=1024), (("ctk", "f16"),)), "server", (Task("prompt", 8),))


@pytest.fixture(scope="module")
def model() -> Model:
    return open_model(str(ZOO))


def sample(value: float, *flags: str, discarded: bool = False) -> dict[str, Any]:
    return {"test": "pp8", "value": value, "seconds": 1.0, "at": 5.0, "flags": list(flags),
            "others": 0.0, "load": None, "discarded": discarded}  # fmt: skip


def unit(state: str = OK, *samples: dict[str, Any], **more: Any) -> Result:
    return {
        "state": state, "at": 1.0, "samples": list(samples), "seconds": 1.0, "ready_s": 0.5,
        "argv": [], "build": "", "log": None, "error": None, "outcome": None, "tail": [],
        "memory": [], "figures": {}, "used": {}, "effects": [], **more,
    }  # fmt: skip


def test_disturbed_samples_do_not_count(model: Model) -> None:
    found = {
        "0 ctk=f16 @0 #0": unit(OK, sample(3, "contended", discarded=True), sample(10)),
        "0 ctk=f16 @0 #1": unit(OK, sample(12), sample(11)),
    }
    line = line_of(RULED, model, found)
    assert line is not None
    (figure,) = line.figures
    assert (figure.median, figure.least, figure.most) == (11, 10, 12)
    assert (figure.count, figure.disturbed, figure.doubtful) == (3, 1, False)
    assert figure.spread == 1.0


def test_where_all_are_disturbed_all_of_them_are_shown_as_doubtful(model: Model) -> None:
    tries = [sample(value, "contended", discarded=True) for value in (11, 10)]
    tries += [sample(value, "contended") for value in (19.5, 9)]
    line = line_of(RULED, model, {"0 ctk=f16 @0 #0": unit(OK, *tries)})
    assert line is not None
    (figure,) = line.figures
    assert (figure.median, figure.doubtful, figure.disturbed) == (10.5, True, 4)


def test_a_failure_has_the_cause_that_its_log_shows(model: Model) -> None:
    log = LOGS / "cut-data-b11549.log"
    outcome = Outcome(Ending.REFUSED, 1, 1, 1.0, ready=False, said="no")
    failed = unit(FAILED, outcome=encode(outcome), error=encode(outcome.sentence), log=str(log))
    line = line_of(RULED, model, {"a": failed, "b": unit(LEFT_OUT)})
    assert line is not None
    assert line.state == FAILED
    assert line.findings
    assert line.code == line.findings[0].kind
    assert str(line.why) == str(line.findings[0].cause)


def test_a_failure_that_nobody_knows_says_what_the_engine_said(model: Model) -> None:
    outcome = Outcome(Ending.EXITED, 7, 1, 1.0, ready=True)
    failed = unit(FAILED, outcome=encode(outcome), error=encode(outcome.sentence))
    line = line_of(RULED, model, {"a": failed})
    assert line is not None
    assert (line.state, str(line.why)) == (FAILED, "the engine ended with code 7")


def test_memory_that_was_gone_at_the_start(model: Model) -> None:
    why = encode(phrase("no room"))
    line = line_of(RULED, model, {"a": unit(OK, sample(9)), "b": unit(SKIPPED, error=why)})
    assert line is not None
    assert (line.state, line.code, str(line.why)) == (SKIPPED, "does_not_fit", "no room")


def test_a_setting_that_was_not_reached_has_no_line(model: Model) -> None:
    assert line_of(RULED, model, {}) is None


def test_samples_that_are_shown_are_not_said_to_be_left_out() -> None:
    good, bad = figure(DECODE, 9, 10, 11), replace(figure(DECODE, 8, 9), disturbed=2, doubtful=True)
    some = replace(good, disturbed=3)
    assert list(_doubts([a_line("f16", "f16", good)])) == []
    (aside,) = _doubts([a_line("f16", "f16", some)])
    assert str(aside).startswith("3 samples were disturbed")
    (shown,) = _doubts([a_line("f16", "f16", bad)])
    assert "every sample of 1 figure(s) marked ?" in str(shown)
    assert "do not count" not in str(shown)
    assert len(list(_doubts([a_line("f16", "f16", some), a_line("q8_0", "f16", bad)]))) == 2


def test_a_share_of_a_doubtful_figure_is_doubtful_too() -> None:
    good = figure(DECODE, 20.0)
    base = a_line("f16", "f16", replace(good, doubtful=True))
    other = a_line("q8_0", "q8_0", figure(DECODE, 10.0))
    assert ratio(other, base, "tg128") == 0.5
    assert doubted(other, base, "tg128")
    assert not doubted(other, a_line("f16", "f16", good), "tg128")
    assert [str(cell.words) for cell in _shares(other, [base, other], ["tg128"])] == ["50 %?"]
