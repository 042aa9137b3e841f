"""A real load beside the ledger: no difference on weights, caches and output."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kvwise
from kvwise.engine import log
from kvwise.engine.loaded import Collector, Loaded
from kvwise.engine.outcome import Ending
from kvwise.engine.printed import Printed, Total
from kvwise.errors import DoesNotFit, UsageError
from kvwise.jobs import Pace
from kvwise.memory.parts.companions import Companions
from kvwise.verify import Row, Verification, compare, measured_ledger, verification_json, verify
from kvwise.verify.attempt import free_cores
from models import gemma3, smollm2

TYPES = (("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "f16"))
SLOTS = (("1", False), ("1", True), ("4", False), ("4", True))
SMOLLM2 = [("smollm2", types, slots, False) for types in TYPES for slots in SLOTS]
GEMMA3 = [
    ("gemma3", types, slots, swa_full)
    for types in TYPES
    for slots in SLOTS
    for swa_full in (False, True)
]
CASES = [
    *SMOLLM2,
    *(
        pytest.param(*case, marks=() if number % 3 == 0 else pytest.mark.slow)
        for number, case in enumerate(GEMMA3)
    ),
]
"""Every type, number of slots and window of Gemma 3 is in the quick third."""


def argv(types: tuple[str, str], slots: tuple[str, bool], swa_full: bool) -> list[str]:
    words = ["-c", "2048", "-ctk", types[0], "-ctv", types[1], "-np", slots[0]]
    return words + ["-kvu"] * slots[1] + ["--swa-full"] * swa_full


def path_of(name: str) -> Path:
    return {"smollm2": smollm2, "gemma3": gemma3}[name]()


def run(name: str, words: list[str], **more: Any) -> Verification:
    model = kvwise.open_model(str(path_of(name)))
    return verify(model, kvwise.Launch.parse(words), threads=1, **more)


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
@pytest.mark.parametrize(("name", "types", "slots", "swa_full"), CASES)
def test_no_deciding_line_differs(
    name: str, types: tuple[str, str], slots: tuple[str, bool], swa_full: bool
) -> None:
    result = run(name, argv(types, slots, swa_full), n_predict=4)
    assert [(row.kind, row.name, row.difference) for row in result.rows if row.decisive] == [
        (row.kind, row.name, 0) for row in result.rows if row.decisive
    ]
    assert result.failures == 0
    assert result.holds
    assert result.attempts[0].tokens == 4
    kinds = {row.kind for row in result.rows}
    assert kinds == {"weights", "cache", "context", "output", "compute"}
    caches = [row.name for row in result.rows if row.kind == "cache"]
    roles = ["base", "swa"] if name == "gemma3" else ["main"]
    assert caches == [f"{role} {side}" for role in roles for side in "KV"]


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_a_draft_is_compared_too() -> None:
    words = ["-c", "2048", "-np", "2", "-md", str(smollm2()), "--spec-type", "draft-simple"]
    draft = kvwise.open_model(str(smollm2()))
    result = run(
        "smollm2", [*words, "-ctkd", "q8_0"], companions=Companions(draft=draft), simulate=True
    )
    rows = [row for row in result.rows if row.name.startswith("draft ")]
    assert all(row.simulated is not None for row in rows)
    assert result.simulated is not None
    notes = [str(note.message) for note in result.simulated.simulation.ledger.notes]
    assert not [note for note in notes if "not counted" in note]
    assert result.measured is not None
    (line,) = result.measured.lines  # its buffers are the draft's, not the model's as well
    assert {part.buffer for part in line.parts} == {"CPU", "CPU_Mapped"}
    measured = [extra for extra in line.extras if extra.of == "draft"]
    assert {extra.basis["weights"] for extra in measured} == {"measured"}
    assert line.total_bytes == pytest.approx(result.computed.host.total_bytes, abs=1 << 16)
    assert [(row.kind, row.difference) for row in rows if row.decisive] == [
        ("weights", 0), ("context", 0), ("output", 0),
    ]  # fmt: skip
    assert next(row.computed for row in rows if row.kind == "context") == 2048 * 30 * (204 + 384)
    assert result.holds


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_weights_read_into_buffers_and_not_repacked_agree_too() -> None:
    for words in (["-lm", "none"], ["--no-repack"], ["-lm", "none", "--no-repack"]):
        result = run("gemma3", ["-c", "512", "-np", "1", *words], n_predict=1)
        assert result.holds, [row for row in result.rows if row.decisive and not row.agrees]
        buffers = {row.name for row in result.rows if row.kind == "weights"}
        assert ("CPU_Mapped" in buffers) == ("none" not in words)
        assert ("CPU_REPACK" in buffers) == ("--no-repack" not in words)


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_embeddings_and_padding_of_the_context() -> None:
    words = ["-c", "1000", "-np", "2", "-no-kvu", "--embeddings", "--pooling", "mean"]
    result = run("smollm2", words)
    assert result.holds, [row for row in result.rows if row.decisive and not row.agrees]
    assert result.attempts[0].text == "576 dimensions"
    assert result.computed.context.n_ctx_seq == 512


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_an_engine_that_aborts_is_counted_with_its_assertion() -> None:
    # b11549 stops in ggml_mul_mat when 512 rows do not divide by the slots and are pooled
    words = ["-c", "1000", "-np", "3", "-no-kvu", "--embeddings", "--pooling", "mean"]
    result = run("smollm2", words)
    assert (result.failures, result.holds, result.rows) == (1, False, ())
    outcome = result.attempts[0].outcome
    assert outcome is not None
    assert outcome.ending is Ending.ABORTED
    assert "GGML_ASSERT" in str(result.attempts[0].error)


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_several_runs_are_each_measured_and_their_logs_kept(tmp_path: Path) -> None:
    seen: list[Pace] = []
    words = ["-c", "512", "-np", "1"]
    result = run(
        "smollm2", words, runs=3, n_predict=8, logs=tmp_path,
        progress=seen.append,
    )  # fmt: skip
    assert [(pace.done, pace.total) for pace in seen] == [(0, 3), (1, 3), (2, 3)]
    assert [attempt.failed for attempt in result.attempts] == [False] * 3
    assert len({attempt.text for attempt in result.attempts}) == 1  # same request, same answer
    assert all(attempt.rows == result.rows for attempt in result.attempts)
    assert "KV buffer size" in (tmp_path / "run-3.log").read_text()
    document = json.loads(json.dumps(verification_json(result)))
    assert document["schema"] == "kvwise/verify/1"
    assert (document["differs"], document["runs"], document["failures"]) == (False, 3, 0)
    assert document["computed"]["buffers"][0]["total_bytes"] > 0
    assert document["measured"]["buffers"][0]["basis"]["weights"] == "measured"
    same = ("weights_bytes", "context_bytes", "output_bytes")
    for ours, theirs in zip(
        document["computed"]["buffers"], document["measured"]["buffers"], strict=True
    ):
        assert [ours[key] for key in same] == [theirs[key] for key in same]


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_a_run_that_fails_is_counted_and_explained() -> None:
    result = run("smollm2", ["-c", "256", "-np", "1"], prompt="word " * 400, runs=2)
    assert result.failures == 2
    assert not result.holds
    assert not result.differs  # it loaded as computed, and then refused the prompt
    assert "exceeds the available context size" in str(result.attempts[0].error)


def test_a_model_that_is_not_here_is_refused() -> None:
    model = kvwise.open_model(str(Path(__file__).parent / "zoo/models/qwen3-8b.json.gz"))
    with pytest.raises(UsageError, match="no GGUF file"):
        verify(model, kvwise.Launch.parse([]))


def test_what_the_host_has_no_memory_for_is_not_started() -> None:
    model = kvwise.open_model(str(smollm2()))
    host = kvwise.Host(total_bytes=1 << 34, available_bytes=20 << 20)
    with pytest.raises(DoesNotFit, match="are available"):
        verify(model, kvwise.Launch.parse(["-c", "8192"]), host=host)


LOG = Path(__file__).parent / "engine/logs/b11549-iswa-4-slots.log"
WORDS = ["-c", "2048", "-np", "4", "-no-kvu", "--engine-build", "b11549"]


def gemma_rows(change: tuple[bytes, bytes] = (b"", b"")) -> tuple[kvwise.Ledger, tuple[Row, ...]]:
    data = LOG.read_bytes()
    assert change[0] in data
    loaded: Loaded = Collector().add_all(log.read([data.replace(*change)]))
    model = kvwise.open_model(str(gemma3()))
    ledger = kvwise.account(model, kvwise.Launch.parse(WORDS), [])
    return ledger, compare(ledger, loaded)


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ((b"CPU_Mapped model buffer size =   235.16", b"CPU_Mapped model buffer size =   235.17"),
         ("weights", "CPU_Mapped")),
        ((b"K (f16):   15.00 MiB", b"K (f16):   15.01 MiB"), ("cache", "swa K")),
        ((b"KV buffer size =     6.00", b"KV buffer size =     6.02"), ("context", "CPU")),
        ((b"output buffer size =     4.00", b"output buffer size =     3.99"), ("output", "CPU")),
        ((b"CPU_REPACK model buffer", b"CPU_OTHER model buffer"), ("weights", "CPU_REPACK")),
        ((b"output buffer size", b"output lost"), ("output", "CPU")),
    ],
)  # fmt: skip
def test_a_hundredth_of_a_mib_is_seen(change: tuple[bytes, bytes], row: tuple[str, str]) -> None:
    _, clean = gemma_rows()
    assert all(each.agrees for each in clean if each.decisive)
    _, rows = gemma_rows(change)
    assert row in {(each.kind, each.name) for each in rows if each.decisive and not each.agrees}


def test_the_measured_ledger_holds_what_was_printed() -> None:
    change = (
        b"CPU_Mapped model buffer size =   235.16",
        b"CPU_Mapped model buffer size =   300.00",
    )
    ledger, rows = gemma_rows(change)
    measured = measured_ledger(ledger, rows)
    sizes = {part.buffer: part.weights_bytes for part in measured.host.parts}
    assert sizes["CPU_Mapped"] == 300 << 20
    assert measured.host.context_bytes == ledger.host.context_bytes
    assert set(measured.host.basis.values()) == {"measured"}


@pytest.mark.parametrize(
    ("cores", "load", "free"), [(8, 0.1, 7), (8, 3.2, 5), (2, 9.0, 1), (1, 0, 1)]
)
def test_the_engine_gets_the_cores_that_nobody_uses(
    cores: int, load: float, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    assert free_cores() == free


def test_rows_know_their_difference() -> None:
    row = Row("cache", "main K", 45 << 20, Total((Printed(4500),)))
    assert (row.agrees, row.difference, row.measured_bytes) == (True, 0, 45 << 20)
    row = replace(row, measured=Total((Printed(4400),)))
    assert (row.agrees, row.difference, row.measured_bytes) == (False, 1 << 20, 44 << 20)
    assert replace(row, measured=None).difference == 45 << 20
    assert replace(row, computed=None).difference == -44 << 20
    assert not Row("compute", "CPU", 1, None).decisive


# -- the third tier: the engine's own pass ---------------------------------------------------------


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_the_engines_own_pass_stands_beside_the_load() -> None:
    result = run("gemma3", ["-c", "1024", "-np", "2"], n_predict=1, simulate=True)
    assert result.unsimulated is None
    assert result.simulated is not None
    assert result.simulated.agrees
    assert {row.kind for row in result.rows if row.simulated} == {
        "weights", "cache", "context", "output", "compute",
    }  # fmt: skip
    for row in result.rows:
        assert row.simulated is not None, row
        mapped = row.kind == "weights"  # the pass reads weights instead of mapping the file
        assert mapped or row.simulated.agrees(row.computed or 0), row
    assert result.misjudged == ()
    document = json.loads(json.dumps(verification_json(result)))
    assert document["simulated"]["schema"] == "kvwise/ledger/1"
    assert document["simulated"]["beside"]["agrees"]
    assert document["lines"][0]["simulated_bytes"] > 0
    assert run("gemma3", ["-c", "512"], n_predict=1).simulated is None


@pytest.mark.parametrize(
    ("computed", "simulated", "measured", "misjudged"),
    [
        (109_062_144, "96.01", "104.01", True),  # pins that the pass forgets
        (100_673_664, "96.01", "104.01", False),  # we are wrong as well
        (109_062_144, "104.01", "104.01", False),
        (109_062_144, None, "104.01", False),
        (109_062_144, "96.01", None, False),
    ],
)
def test_the_engines_estimate_is_the_one_that_is_wrong(
    computed: int, simulated: str | None, measured: str | None, misjudged: bool
) -> None:
    said, real = (
        None if text is None else Total((Printed.parse(text),)) for text in (simulated, measured)
    )
    row = Row("compute", "CUDA1", computed, real, said)
    assert row.engine_misjudged is misjudged
    assert not replace(row, kind="weights").engine_misjudged
