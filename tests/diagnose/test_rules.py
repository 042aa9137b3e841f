"""Every rule has a log of its own, is the first to speak there, and nowhere else."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.diagnose import Diagnosis, diagnose
from kvwise.diagnose.finding import Rule
from kvwise.diagnose.rules import RULES
from kvwise.diagnose.titles import TITLES, VOCABULARY

from .provoke.table import FAILURES, HEALTHY

LOGS = Path(__file__).parent / "logs"
WRITTEN = sorted((LOGS / "written").glob("*.log"))
PROVOKED = sorted(LOGS.glob("*.log"))
BY_NAME = {rule.name: rule for rule in RULES}
_BUILD = re.compile(r"-b\d+$")


def name_of(path: Path) -> str:
    return _BUILD.sub("", path.stem)


def seen(path: Path) -> Diagnosis:
    return diagnose(path, numbers=False)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_a_rule_speaks_first_in_its_own_log(path: Path) -> None:
    found = seen(path)
    assert found.findings[0].rule == path.stem
    assert path.read_text("utf-8").startswith("# ")  # where the words come from


@pytest.mark.parametrize("case", json.loads((LOGS / "wordings.json").read_text("utf-8")))
def test_wordings_of_public_issues_keep_their_kind(case: dict[str, Any]) -> None:
    first = diagnose(case["log"], numbers=False).findings[0]
    assert first.kind == case["kind"]
    assert first.memory_is_the_cause == case["memory_is_the_cause"]


@pytest.mark.parametrize(
    "case",
    json.loads((LOGS / "healthy.json").read_text("utf-8")),
    ids=lambda case: case["source"],
)
def test_nothing_is_blamed_in_healthy_lines_of_public_issues(case: dict[str, Any]) -> None:
    found = diagnose(case["log"], numbers=False)
    assert found.blamed == ()
    assert found.outcome in ("ok", "unknown")


@pytest.mark.parametrize("path", PROVOKED, ids=lambda path: path.stem)
def test_a_provoked_failure_is_named(path: Path) -> None:
    name, found = name_of(path), seen(path)
    if name in HEALTHY:
        assert found.blamed == ()
        assert found.outcome == "ok"
        return
    assert found.findings[0].kind == FAILURES[name].kind
    assert found.findings[0].memory_is_the_cause == FAILURES[name].memory


def test_every_failure_that_can_be_provoked_has_its_log() -> None:
    assert {name_of(path) for path in PROVOKED} == {*FAILURES, *HEALTHY}


def test_every_rule_has_a_log() -> None:
    first = {seen(path).findings[0].rule for path in (*WRITTEN, *PROVOKED)}
    rare = {"block-below-free"}  # figures decide: test_numbers
    assert set(BY_NAME) - first - rare == set()


def test_a_rule_speaks_first_in_no_log_of_another() -> None:
    for path in WRITTEN:
        own = path.stem
        for finding in seen(path).findings[1:]:
            assert finding.rule != own
            assert finding.confidence <= seen(path).findings[0].confidence


def test_every_kind_of_the_vocabulary_has_a_rule_and_a_title() -> None:
    kinds = {rule.kind for rule in RULES}
    assert set(VOCABULARY) <= kinds
    assert kinds == set(TITLES)
    readme = json.dumps(sorted(VOCABULARY))
    assert len(VOCABULARY) == 38, readme


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_whole(rule: Rule) -> None:
    assert rule.cause
    assert rule.remedies
    assert all(remedy.text.template for remedy in rule.remedies)
    assert len([each for each in RULES if each.name == rule.name]) == 1
    assert rule.memory or rule.pool in (None, "vram")


# -- what somebody puts around a log changes nothing ----------------------------------------------


def as_docker(lines: list[str]) -> list[str]:
    return [
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-05-01T10:00:00.1Z"})
        for line in lines
    ]


AROUND = {
    "docker": as_docker,
    "docker logs": lambda lines: [f"2026-05-01T10:00:00.123456789Z {line}" for line in lines],
    "journald": lambda lines: [f"Sep 26 10:00:00 box llama[123]: {line}" for line in lines],
    "compose": lambda lines: [f"llama-1  | {line}" for line in lines],
    "router": lambda lines: [f"[34353] {line}" for line in lines],
    "lm studio": lambda lines: [f"2026-01-30 22:09:40 [DEBUG]\n {line}" for line in lines],
    "local ai": lambda lines: [f"3:44PM DBG GRPC(ab-127.0.0.1:1): stderr {line}" for line in lines],
    "new prefix": lambda lines: [f"0.00.149.828 I {line}" for line in lines],
    "quoted": lambda lines: [f"> {line}" for line in lines],
    "quoted twice": lambda lines: [f"> > {line}" for line in lines],
    "fenced": lambda lines: ["Here is my log:", "```console", *lines, "```"],
    "colour": lambda lines: [f"\x1b[33m{line}\x1b[0m" for line in lines],
    "windows": lambda lines: [f"{line}\r" for line in lines],
    "indented": lambda lines: [f"    {line}" for line in lines],
}  # fmt: skip


@pytest.mark.parametrize("path", [*WRITTEN, *PROVOKED[::5]], ids=lambda path: path.stem)
def test_what_is_put_around_a_log_changes_nothing(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    plain = diagnose(lines, numbers=False)
    for way, around in AROUND.items():
        found = diagnose("\n".join(around(lines)), numbers=False)
        kinds = [finding.kind for finding in found.findings[:1]]
        assert (way, kinds) == (way, [finding.kind for finding in plain.findings[:1]])
        assert (way, found.outcome) == (way, plain.outcome)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_noise_between_the_lines_changes_nothing(path: Path) -> None:
    rng = random.Random(path.stem)
    lines: list[bytes] = []
    for line in path.read_bytes().splitlines():
        lines += [line, rng.randbytes(rng.randrange(60)).replace(b"\n", b"\r ")]
    found = diagnose(b"\n".join(lines), numbers=False)
    assert found.findings[0].rule == path.stem


@given(st.lists(st.sampled_from(range(len(WRITTEN))), max_size=3), st.binary(max_size=400))
@settings(max_examples=60, deadline=None)
def test_no_bytes_break_the_doctor(chosen: list[int], noise: bytes) -> None:
    data = noise + b"\n".join(WRITTEN[number].read_bytes() for number in chosen) + noise
    found = diagnose(data)
    assert found.outcome
    for finding in found.findings:
        assert str(finding.cause)
        assert all(str(remedy.text) for remedy in finding.remedies)


_GREW = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 0: "
    "cudaMalloc failed: out of memory\n"
    "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 536870912\n"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("slot launch_slot_: id  0 | task 0 | processing task\n", ""),
        ("srv  update_slots: all slots are idle\n", ""),
        ("", "process_ubatch: failed to compute graph, compute status: -2\n"),
        ("", "llama_decode: failed to decode, ret = -2\n"),
    ],
)
def test_a_work_buffer_refused_while_decoding_is_growth_after_the_load(
    before: str, after: str
) -> None:
    found = diagnose(before + _GREW + after, numbers=False)
    assert [each.kind for each in found.findings[:2]] == ["runtime-vram-growth", "compute-oom"]
    assert found.outcome == "refused"


def test_a_work_buffer_refused_while_loading_is_not_growth() -> None:
    found = diagnose("graph_reserve: failed to allocate compute buffers\n" + _GREW, numbers=False)
    assert found.findings[0].kind == "compute-oom"
