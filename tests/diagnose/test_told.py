"""What somebody tells in words where a log says nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvwise.diagnose import diagnose
from kvwise.diagnose.finding import POSSIBLE
from kvwise.diagnose.rules import TOLD

ROOT = Path(__file__).parents[1]
DESCRIBED: list[dict[str, Any]] = [
    report
    for report in json.loads((ROOT / "reports/failures.dev.json").read_text())
    if not report["symptom_log"]
]
HEALTHY = (Path(__file__).parent / "logs/healthy-b10605.log").read_text("utf-8")
TEXTS = {
    "fit-gap-mtp": "with --spec-type draft-mtp it does not fit any more, without it it does",
    "fit-gap-mmproj": "as soon as I add --mmproj the load ends: OOM",
    "fa-kernel-fallback": "since I set -ctk q5_0 everything is slow and the CPU is busy",
    "vram-spill-slow": "4x slower, and the task manager shows 6 GB of shared GPU memory in use",
    "single-allocation-limit": "it has a limit of 4GB and cannot allocate the buffer",
    "kernel-bug-garbage": "after the update it writes token soup",
    "kv-quant-quality": "with --cache-type-k q4_0 the model repeats itself",
    "runtime-vram-growth": "VRAM climbs with every request",
    "host-ram-growth": "RSS keeps increasing, after a day 40 GB",
    "slot-split": "with --parallel 4 each request gets 2048 tokens",
    "hang": "it gets stuck, GPU idle",
}


def test_every_kind_that_can_be_told_has_a_text() -> None:
    assert {rule.kind for rule in TOLD} == set(TEXTS)


@pytest.mark.parametrize("kind", TEXTS)
def test_words_point_at_a_cause(kind: str) -> None:
    first = diagnose(TEXTS[kind], numbers=False).findings[0]
    assert first.rule == f"told-{kind}"
    assert first.confidence > POSSIBLE
    assert [line.text for line in first.evidence] == [TEXTS[kind]]


@pytest.mark.parametrize("kind", TEXTS)
def test_a_log_speaks_before_words(kind: str) -> None:
    failed = "llama_model_load: error loading model: missing tensor 'output.weight'\n"
    assert diagnose(failed + TEXTS[kind], numbers=False).findings[0].kind == "missing-tensor"
    assert diagnose(HEALTHY + TEXTS[kind], numbers=False).blamed == ()


def test_lines_of_a_program_are_no_words_of_a_person() -> None:
    line = "ggml_vulkan: 0 = X (amd) | uma: 0 | shared memory: 65536 | 21.3 t/s, slow path"
    assert diagnose(line, numbers=False).blamed == ()


def test_reports_without_a_line_of_a_log() -> None:
    first = memory = 0
    for report in DESCRIBED:
        found = diagnose(report["symptom_described"], numbers=False).findings
        first += bool(found) and found[0].kind == report["kind"]
        memory += bool(found) and found[0].memory_is_the_cause == report["memory_is_the_cause"]
    assert first >= 0.9 * len(DESCRIBED)
    assert memory >= 0.97 * len(DESCRIBED)
