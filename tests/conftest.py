"""Shared by all tests: no test touches the user's folders."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "kvwise", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # a busy machine is no failure
settings.load_profile("kvwise")


@pytest.fixture(autouse=True)
def _own_home(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No test touches the user's folders or is steered by the user's environment."""
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path_factory.mktemp("home")))
    for name in ("LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_MODEL", "KVWISE_LANG"):
        monkeypatch.delenv(name, raising=False)
    if request.node.get_closest_marker("engine"):
        # beside another worker, two threads of an engine spend most of their time on each other
        monkeypatch.setenv("LLAMA_ARG_THREADS", "1")
