"""Failures provoked now, with real engines, are named from the log they leave.

The embedded engine always; a llama-server where KVWISE_TEST_ENGINE names one, and one with Vulkan
where KVWISE_TEST_VULKAN does. The logs that stay in `logs/` are those of
`python -m diagnose.provoke`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvwise.diagnose import diagnose
from kvwise.engine.find import Engine, find

from .provoke.running import run, suits
from .provoke.table import FAILURES, HEALTHY

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

ENGINES = [
    "embedded",
    *filter(None, map(os.environ.get, ("KVWISE_TEST_ENGINE", "KVWISE_TEST_VULKAN"))),
]
ALWAYS = {"v-needs-flash", "cut-data", "missing-part", "missing-tensor", "slots", "no-cells",
          "huge-context", "wrong-draft", "group-cache", "healthy"}  # fmt: skip
"""Run with the embedded engine in every test run; all of them with a llama-server."""


@pytest.fixture(params=ENGINES, scope="module")
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "embedded":
        pytest.importorskip("xllamacpp")
    return find(request.param)


@pytest.mark.parametrize("name", [*FAILURES, *HEALTHY])
def test_a_failure_is_named_from_its_log(name: str, engine: Engine, tmp_path: Path) -> None:
    failure = (FAILURES | HEALTHY)[name]
    if not suits(failure, engine):
        pytest.skip("not with this engine, or not on this machine")
    if failure.beside and not Path(engine.path).with_name(failure.beside).exists():
        pytest.skip(f"no {failure.beside} beside the engine")
    if engine.kind == "embedded" and name not in ALWAYS:
        pytest.skip("with a llama-server only: KVWISE_TEST_ENGINE")
    log, code = run(failure, engine, tmp_path)
    found = diagnose(log, exit_code=None if failure.stop_at else code, numbers=False)
    if not failure.kind:
        assert found.blamed == ()
        assert found.outcome == "ok"
        return
    first = found.findings[0]
    assert first.kind == failure.kind
    assert first.memory_is_the_cause == failure.memory
    assert first.evidence or failure.kind == "hang"
