"""Causes out of logs: known codes, public reports by their labels, and the shape of the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvwise.diagnose.causes import CAUSES, CURABLE, MEMORY, OF_CODE, sentence
from kvwise.diagnose.titles import TITLES
from kvwise.engine.failures import ROWS
from kvwise.engine.loaded import Collector
from kvwise.engine.log import Reader
from kvwise.engine.outcome import Ending, Outcome
from kvwise.guard.cause import Log, cause_of

REPORTS = json.loads(
    (Path(__file__).parents[1] / "reports/failures.dev.json").read_text(encoding="utf-8")
)


def log_of(*lines: str, ending: Ending = Ending.REFUSED, code: int = 1, ready: bool = False) -> Log:
    reader, collector = Reader(), Collector()
    collector.add_all(reader.feed("".join(line + "\n" for line in lines).encode()))
    return Log(collector.loaded, Outcome(ending, code, 1, 1.0, ready), lines)


def test_every_code_is_one_that_the_log_reader_knows() -> None:
    known = {row.code for row in ROWS}
    assert {code for code, _ in OF_CODE} <= known
    assert {kind for _, kind in OF_CODE} <= set(CAUSES)
    assert all(sentence(name) for name in CAUSES)
    assert {row.kind for row in CAUSES.values()} <= {*TITLES, ""}
    assert MEMORY <= CURABLE


FATAL = {
    "kv-alloc-oom", "weights-oom", "compute-oom", "recurrent-state-oom", "single-allocation-limit",
    "device-lost-timeout", "file-corrupt", "arch-unknown", "wrong-kernel-build", "fa-required",
    "split-missing", "missing-tensor",
}  # fmt: skip
CASES = [
    report
    for report in (REPORTS["records"] if isinstance(REPORTS, dict) else REPORTS)
    if report["kind"] in FATAL and report["symptom_log"]
    if log_of(*report["symptom_log"]).loaded.failures  # some logs end before the failure
]


@pytest.mark.parametrize("report", CASES, ids=lambda report: report["id"])
def test_a_public_report_is_curable_exactly_when_memory_or_a_reset_is_the_cause(
    report: dict[str, object],
) -> None:
    lines = report["symptom_log"]
    assert isinstance(lines, list)
    cause = cause_of(log_of(*lines))
    if report["memory_is_the_cause"]:
        assert cause.curable, cause
    if report["kind"] in ("file-corrupt", "arch-unknown", "split-missing"):
        assert not cause.curable, cause
    assert cause.kind != "ended"
    assert cause.evidence


def test_a_kill_is_memory_and_a_crash_is_a_crash() -> None:
    killed = cause_of(log_of("llama_kv_cache: CPU KV buffer size = 9 MiB", ending=Ending.KILLED,
                             code=-9))  # fmt: skip
    assert (killed.kind, killed.memory, killed.curable) == ("killed", True, True)
    crash = cause_of(log_of("x", ending=Ending.SEGMENTATION_FAULT, code=-11))
    assert crash.kind == "crash"
    assert crash.curable
    assert not crash.memory


def test_the_refused_buffer_and_its_bytes() -> None:
    cause = cause_of(
        log_of(
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 0: "
            "cudaMalloc failed: out of memory",
            "E alloc_tensor_range: failed to allocate CUDA0 buffer of size 1073741824",
            "E llama_init_from_model: failed to initialize the context: failed to allocate buffer "
            "for kv cache",
        )
    )
    assert (cause.kind, cause.buffer, cause.asked_bytes) == ("kv-alloc-oom", "CUDA0", 1 << 30)
    assert cause.part == "context"


def test_the_part_is_told_by_the_phase_when_the_last_line_is_lost() -> None:
    opened = "llama_model_loader: loaded meta data with 33 key-value pairs and 272 tensors from m"
    refused = "E alloc_tensor_range: failed to allocate CUDA0 buffer of size 96576768"
    context = "I llama_context: n_ctx         = 8192"
    cache = ("I llama_kv_cache: size =  180.00 MiB (  8192 cells,  30 layers,  1/1 seqs), "
             "K (f16):   90.00 MiB, V (f16):   90.00 MiB")  # fmt: skip
    kinds = [
        cause_of(log_of(*lines)).kind
        for lines in (
            (opened, refused),
            (opened, context, refused),
            (opened, context, cache, refused),
            (refused,),
        )
    ]
    assert kinds == ["weights-oom", "kv-alloc-oom", "compute-oom", "out-of-memory"]


def test_what_the_table_does_not_know_is_diagnosed_with_what_to_do() -> None:
    cause = cause_of(log_of("error: invalid argument: --nope"))
    assert cause.kind == "bad-flag"
    unknown = cause_of(log_of("something nobody has seen"))
    assert unknown.kind == "unknown"
    arch = cause_of(log_of("error loading model: unknown model architecture: 'new'"))
    assert arch.hint is not None
    assert not arch.curable


def test_a_dead_rpc_server_after_it_was_ready_is_no_reason() -> None:
    log = log_of("E Failed to connect to h:1", ending=Ending.EXITED, code=1, ready=True)
    assert cause_of(log).kind == "ended"
