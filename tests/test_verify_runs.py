"""`verify --runs N`: full contexts, interrupted anywhere and taken up again, in a few figures."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvwise
from kvwise.device import Device
from kvwise.engine.find import Engine
from kvwise.engine.outcome import Ending, Outcome
from kvwise.engine.printed import Printed, Total
from kvwise.engine.server import Server
from kvwise.engine.settings import Run
from kvwise.errors import UsageError
from kvwise.jobs import Job
from kvwise.memory.context import Context
from kvwise.store import Store
from kvwise.text import phrase
from kvwise.units import MIB, clock
from kvwise.verify import Attempt, Verification, filling, identity, verification_json, verify
from kvwise.verify.attempt import CardUse, MemoryUse, Seen
from kvwise.verify.codec import decode, encode
from kvwise.verify.compare import Row
from kvwise.verify.summary import summarise
from models import smollm2

WORDS = ("-c", "256", "-np", "1")


# -- real engine -----------------------------------------------------------------------------------


def command(*more: str) -> list[str]:
    return [sys.executable, "-m", "kvwise", "verify", str(smollm2()), *WORDS, *more]


def ended(*more: str) -> tuple[int, Any, str]:
    done = subprocess.run(command(*more), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def recorded() -> set[str]:
    """Runs that are in the database, whoever is writing it."""
    place = Path(os.environ["KVWISE_HOME"]) / "data" / "kvwise.db"
    if not place.exists():
        return set()
    with sqlite3.connect(place, timeout=10) as db:
        try:
            return {row[0] for row in db.execute("SELECT key FROM unit")}
        except sqlite3.OperationalError:  # its tables are just being made
            return set()


def wait_for(count: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 200
    while len(recorded()) < count:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_kill_9_in_the_middle_then_the_same_command_goes_on() -> None:
    words = ("--runs", "3", "--no-simulate", "--prompt-tokens", "8")
    with subprocess.Popen(command(*words), stdout=subprocess.PIPE) as process:
        wait_for(1, process)
        while not (engines := children_of(process)):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(engines, timeout=10)
    assert alive == []  # the engine goes with it
    kept = recorded()
    assert 0 < len(kept) < 3
    code, out, err = ended(*words, "--json")
    assert code == 0, err
    assert f"{len(kept)} of 3 runs are done already" in err
    document = json.loads(out)
    assert (document["runs"], document["failures"], document["differs"]) == (3, 0, False)
    assert [one["prompt_tokens"] for one in document["attempts"]] == [8] * 3
    assert recorded() == {"0", "1", "2"}
    # a larger number goes on when it is asked to, and other settings are refused
    code, out, err = ended("--runs", "3", "--no-simulate", "--resume", "--prompt-tokens", "9")
    assert (code, out) == (2, "")
    assert "prompt changed" in err
    assert "--fresh" in err


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_ctrl_c_keeps_what_was_done_and_says_how_to_go_on() -> None:
    words = ("--runs", "3", "--no-simulate", "--prompt-tokens", "8", "--json")
    with subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        wait_for(1, process)
        while not (engines := children_of(process)):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    _, alive = psutil.wait_procs(engines, timeout=10)
    assert alive == []
    error = json.loads(out)["error"]
    assert error["type"] == "Interrupted"
    assert "of 3" in error["message"]
    assert "goes on" in error["hint"]
    assert len(recorded()) in (1, 2)


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
@pytest.mark.skipif(os.name != "posix", reason="sends itself a Ctrl-C")
def test_ctrl_c_ends_the_engine_and_waits_for_no_prompt(tmp_path: Path) -> None:
    launch = kvwise.Launch.parse(["-c", "2048", "-np", "2", "-b", "64", "-ub", "64"])
    run = Run(threads=1)
    with Server.start(str(smollm2()), launch, run=run, log=tmp_path / "log") as server:

        def stop_when_it_reads() -> None:
            while server.child.alive and not all(slot["is_processing"] for slot in server.slots()):
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=stop_when_it_reads).start()
        with pytest.raises(KeyboardInterrupt):
            filling.fill(server, launch, 900, 90)
        assert not server.child.alive


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_every_slot_is_filled_to_its_end(tmp_path: Path) -> None:
    model = kvwise.open_model(str(smollm2()))
    for words, slots in ((["-c", "512", "-np", "2", "-no-kvu"], 2), (["-c", "256", "-np", "1"], 1)):
        found = verify(
            model, kvwise.Launch.parse(words), runs=1, full=True, n_predict=4, threads=1,
            logs=tmp_path,
        )  # fmt: skip
        assert found.holds, found.attempts[0].error
        assert found.fill == 256 - 4
        (attempt,) = found.attempts
        assert (attempt.prompt_tokens, attempt.tokens) == (252 * slots, 4 * slots)
        assert attempt.memory is not None
        assert attempt.memory.full >= attempt.memory.ready > 0
        assert attempt.load_s is not None
        assert 0 < attempt.load_s < attempt.seconds
        assert attempt.peak_rss_bytes >= attempt.memory.own > 0  # type: ignore[operator]


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_embeddings_are_filled_too() -> None:
    model = kvwise.open_model(str(smollm2()))
    words = ["-c", "512", "-ub", "128", "-np", "1", "--embeddings", "--pooling", "mean"]
    found = verify(model, kvwise.Launch.parse(words), full=True, threads=1)
    assert found.holds, found.attempts[0].error
    assert (found.fill, found.attempts[0].prompt_tokens) == (128, 128)


@pytest.mark.engine
@pytest.mark.xdist_group("engine")
def test_a_model_that_changes_between_runs_stops_them(tmp_path: Path) -> None:
    place = tmp_path / "m.gguf"
    shutil.copy(smollm2(), place)
    model, launch = kvwise.open_model(str(place)), kvwise.Launch.parse(list(WORDS))
    engine = kvwise_engine()
    about = identity.about(model, launch, engine, 4, "1")

    def touched(pace: Any) -> None:
        if pace.done == 1:
            os.utime(place, (1, 1))

    with Store() as store, Job.open(store, "verify", str(place), about) as job:
        with pytest.raises(UsageError, match="was changed while"):
            verify(
                model, launch, engine=engine, runs=3, prompt_tokens=4, job=job, progress=touched,
                threads=1, n_predict=1,
            )  # fmt: skip
        assert sorted(job.results) == ["0"]
    later = identity.about(model, launch, engine, 4, "1")
    with Store() as store, Job.open(store, "verify", str(place), later) as job:
        assert (job.results, job.changed) == ({}, ("model file",))


def kvwise_engine() -> Engine:
    from kvwise.engine.find import find

    return find("embedded")


# -- without an engine -----------------------------------------------------------------------------


def test_flags_that_need_runs(capsys: pytest.CaptureFixture[str]) -> None:
    from kvwise.cli._main import run

    for words in (("--resume",), ("--fresh",), ("--runs", "2", "--resume", "--fresh")):
        assert run(["verify", "m.gguf", *words]) == 2
        assert "--runs" in capsys.readouterr().err


def test_a_prompt_that_no_slot_can_hold_is_refused() -> None:
    model = kvwise.open_model(str(smollm2()))
    launch = kvwise.Launch.parse(list(WORDS))
    with pytest.raises(UsageError, match="at most 240 tokens beside the answer, not 241"):
        verify(model, launch, engine=Engine("embedded"), prompt_tokens=241)
    with pytest.raises(UsageError, match="no room"):
        verify(model, launch, engine=Engine("embedded"), full=True, n_predict=256)


@pytest.mark.parametrize(
    ("n_ctx", "slots", "unified", "trained", "room"),
    [
        (8192, 1, False, 8192, 8192),
        (8192, 4, False, 8192, 2048),
        (8192, 4, True, 8192, 2048),
        (65536, 1, False, 8192, 8192),
        (65536, 1, False, 0, 65536),
    ],
)
def test_what_a_slot_holds_when_all_are_full(
    n_ctx: int, slots: int, unified: bool, trained: int, room: int
) -> None:
    each = n_ctx if unified else n_ctx // slots
    context = Context(
        n_ctx, each, 2048, 512, slots, unified, True, "f16", "f16", True, True, False, 1, 0, False,
        "none",
    )  # fmt: skip
    assert filling.room(context, trained) == room


class Tokenizer:
    """Stands for a server: one token per character, and one before everything."""

    def tokenize(self, text: str, *, add_special: bool = False) -> list[int]:
        return [1] * add_special + [ord(char) for char in text]


@given(st.integers(1, 5000))
def test_a_prompt_has_exactly_so_many_tokens(tokens: int) -> None:
    prompt = filling.prompt_of(Tokenizer(), tokens)  # type: ignore[arg-type]
    assert len(prompt) == tokens
    assert prompt[0] == 1
    assert 1 not in prompt[1:]


texts = st.text(max_size=20)
sizes = st.integers(0, 1 << 50)
totals = st.builds(
    Total, st.lists(st.builds(Printed, sizes, st.integers(0, 2), st.booleans())).map(tuple)
)
phrases = st.builds(
    lambda text, value: phrase("{a}: {b}", a=text, b=value), texts, sizes | texts | st.floats(0, 9)
)
attempts = st.builds(
    Attempt,
    sizes, st.floats(0, 100), texts, sizes, sizes,
    error=st.none() | phrases,
    outcome=st.none() | st.builds(
        Outcome, st.sampled_from(Ending), st.integers(-9, 255), sizes, st.floats(0, 9),
        st.booleans(), texts, st.lists(texts).map(tuple),
    ),
    rows=st.lists(
        st.builds(Row, st.sampled_from(["weights", "cache"]), texts, st.none() | sizes,
                  st.none() | totals)
    ).map(tuple),
    memory=st.none() | st.builds(
        MemoryUse, sizes, sizes, st.none() | sizes, sizes,
        st.lists(st.builds(CardUse, texts, sizes, st.none() | sizes)).map(tuple),
    ),
    seen=st.none() | st.builds(
        Seen, st.lists(st.builds(Device, texts, total_bytes=sizes)).map(tuple),
        st.none() | st.lists(texts).map(tuple),
    ),
)  # fmt: skip


@given(attempts)
def test_an_attempt_comes_back_from_json_as_it_was(attempt: Attempt) -> None:
    again = decode(json.loads(json.dumps(encode(attempt))))
    assert again == attempt
    assert again.failed == attempt.failed
    if attempt.outcome:
        assert isinstance(again.outcome.ending, Ending)


def test_only_known_classes_come_back() -> None:
    with pytest.raises(KeyError):
        decode({"@": "Path", "args": []})


def test_an_identity_changes_with_every_setting_and_with_the_file(tmp_path: Path) -> None:
    place = tmp_path / "m.gguf"
    place.write_bytes(b"GGUF" + bytes(100))
    model = replace_path(kvwise.open_model(str(smollm2())), place)
    launch, engine = kvwise.Launch.parse(list(WORDS)), Engine("embedded", build="b1", version="1")
    first = identity.about(model, launch, engine, None, "1")
    assert json.loads(json.dumps(first))["prompt"] == "full"

    def changed(other: dict[str, Any]) -> set[str]:
        return {name for name in first if first[name] != other[name]}

    other = replace(launch, type_k="q8_0")
    assert changed(identity.about(model, other, engine, None, "1")) == {"type_k"}
    newer = replace(engine, build="b2")
    assert changed(identity.about(model, launch, newer, None, "1")) == {"engine", "build"}
    assert changed(identity.about(model, launch, engine, 5, "1")) == {"prompt"}
    place.write_bytes(b"GGUF" + bytes(99) + b"x")
    os.utime(place, ns=(0, first["model file"][2]))
    assert changed(identity.about(model, launch, engine, None, "1")) == {"model file"}


def replace_path(model: Any, place: Path) -> Any:
    from kvwise.arch import describe

    return describe(replace(model.header, path=str(place)))


# -- figures ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ledger() -> Iterator[kvwise.Ledger]:
    model = kvwise.open_model(str(smollm2()))
    yield kvwise.account(model, kvwise.Launch.parse(list(WORDS)), [])


def made(ledger: kvwise.Ledger, *found: Attempt, threads: int = 1) -> Verification:
    engine = Engine("embedded")
    return Verification(ledger, None, (), found, engine, (), fill=100, threads=threads)


GOOD = Row("weights", "CPU", 10 * MIB, Total((Printed(1000),)))
WRONG = replace(GOOD, computed=11 * MIB)


def attempt(number: int, **more: Any) -> Attempt:
    usual = {"load_s": 1.0 + number, "prompt_per_s": 10.0 * (number + 1), "peak_rss_bytes": MIB}
    return Attempt(number, 2.0 + number, rows=(GOOD,), **(usual | more))


def test_a_summary_has_the_spread_of_all_runs(ledger: kvwise.Ledger) -> None:
    found = summarise(made(ledger, *(attempt(number) for number in range(5))))
    assert found.load_s is not None
    assert (found.load_s.least, found.load_s.median, found.load_s.most) == (1, 3, 5)
    assert (found.runs, found.failed, found.differing, found.growth) == (5, 0, 0, 0)
    assert found.decode_per_s is None


def test_failures_are_counted_by_their_cause(ledger: kvwise.Ledger) -> None:
    killed = Outcome(Ending.KILLED, -9, 1, 1.0, ready=True)
    found = made(
        ledger,
        attempt(0),
        attempt(1, error=killed.sentence, outcome=killed),
        attempt(2, error=phrase("no answer")),
        attempt(3, error=killed.sentence, outcome=killed),
        replace(attempt(4), rows=(WRONG,)),
    )
    summary = summarise(found)
    assert [(cause.ending, cause.runs) for cause in summary.causes] == [
        ("killed", (1, 3)), (None, (2,)),
    ]  # fmt: skip
    assert (summary.failed, summary.differing, found.holds) == (3, 1, False)
    document = json.loads(json.dumps(verification_json(found)))
    assert document["summary"]["causes"][0]["runs"] == [2, 4]
    assert document["summary"]["runs_that_differ"] == 1
    assert document["summary"]["load_s"] == {"min": 1.0, "median": 3.0, "max": 5.0, "runs": 5}


@pytest.mark.parametrize(
    ("sizes", "growth", "grows"),
    [
        ([100] * 9, 0, False),
        ([100 + 10 * number for number in range(9)], 60, True),
        ([100, 100, 100, 150, 100, 100, 100, 100, 100], 0, False),  # one outlier is no trend
        ([1000 + number for number in range(9)], 6, False),  # below 1 %
        ([100, 200], None, False),
    ],
)
def test_memory_that_grows_from_run_to_run_is_seen(
    ledger: kvwise.Ledger, sizes: list[int], growth: int | None, grows: bool
) -> None:
    runs = [attempt(n, peak_rss_bytes=size * MIB) for n, size in enumerate(sizes)]
    summary = summarise(made(ledger, *runs))
    assert summary.growth == (None if growth is None else growth * MIB)
    assert summary.grows is grows


def test_a_card_that_gets_less_free_between_runs_is_seen(ledger: kvwise.Ledger) -> None:
    def used(number: int) -> MemoryUse:
        free = (6000 - 50 * number) * MIB
        return MemoryUse(1, 1, None, 1, (CardUse("CUDA0", free, free - 5000 * MIB),))

    runs = [attempt(number, memory=used(number)) for number in range(3)]
    assert summarise(made(ledger, *runs)).card_growth == {"CUDA0": 100 * MIB}


def test_a_busy_machine_is_told(ledger: kvwise.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    runs = [attempt(0, busy_cores=0.1), attempt(1, busy_cores=2.0), attempt(2, busy_cores=1.1)]
    assert summarise(made(ledger, *runs, threads=3)).contended == 1
    assert summarise(made(ledger, *runs, threads=1)).contended == 0


def test_clock() -> None:
    assert [clock(each) for each in (0, 45.4, 725, 3725, -3)] == [
        "0:00", "0:45", "12:05", "1:02:05", "0:00",
    ]  # fmt: skip


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_a_person_sees_of_many_runs(
    ledger: kvwise.Ledger, language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from kvwise.cli._verify_view import show
    from kvwise.cli.output import Printer

    killed = Outcome(Ending.KILLED, -9, 1, 1.0, ready=True, said="its last words")
    runs = [attempt(number, memory=MemoryUse(1, 1, MIB, 1)) for number in range(30)]
    runs[6] = replace(runs[6], error=killed.sentence, outcome=killed)
    show(Printer(language=language), made(ledger, *runs))
    shown = capsys.readouterr().out.splitlines()
    listed = [line for line in shown if line.startswith(("1 ", "7 "))]
    assert len(listed) == 1  # the one that failed
    assert "its last words" in listed[0]
    text = "\n".join(shown)
    assert "15.5" in text  # the median of 30 loads
    assert "no difference, but 1 of 30 runs failed" in text or "30" in shown[-1]
    tables = [line for line in shown if line and not line.startswith(("  - ", "7 "))]
    assert all(len(line) <= 100 for line in tables[2:])
