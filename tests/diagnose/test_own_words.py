"""What kvwise itself says does not fit is known by its part, in both languages."""

from __future__ import annotations

import pytest

from kvwise.diagnose import diagnose
from kvwise.memory.lacking import LACKING, Lacking
from kvwise.text import phrase, say

KINDS: dict[Lacking, str] = {
    "weights": "weights-oom",
    "context": "kv-alloc-oom",
    "compute": "compute-oom",
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("part", KINDS)
def test_a_plan_that_does_not_fit_names_what(part: Lacking, language: str) -> None:
    said = phrase(
        "{least:,} tokens per slot do not fit {where}: the nearest misses by {short}; {lacking}",
        least=8192, where="card", short="72.0 MiB", lacking=phrase(LACKING[part]),
    )  # fmt: skip
    error = {"en": "error: ", "zh": "错误："}[language]
    found = diagnose(error + say(said, language), numbers=False).findings[0]
    assert found.kind == KINDS[part]
    assert found.memory_is_the_cause


@pytest.mark.parametrize("part", KINDS)
def test_a_ledger_that_does_not_fit_names_what(part: Lacking) -> None:
    line = phrase(
        "does not fit; missing on {places}; {part}", places="VGPU0: 1.2 GiB",
        part=phrase(LACKING[part]),
    )  # fmt: skip
    assert diagnose(say(line, "en"), numbers=False).findings[0].kind == KINDS[part]
