"""Jobs: what is done stays done, whatever ends the process."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.errors import Interrupted, UsageError
from kvwise.jobs import Job, Pace
from kvwise.store import Store, StoreError

UNITS = [f"run-{number}" for number in range(6)]
ABOUT = {"model": "m", "flags": {"n_ctx": 512}}


@pytest.fixture
def kept(tmp_path: Path) -> Any:
    with Store(tmp_path / "kvwise.db") as store:
        yield store


def opened(store: Store, about: dict[str, Any] = ABOUT, mode: Any = "auto") -> Job:
    return Job.open(store, "verify", "m.gguf", about, mode)


def test_a_finished_part_of_a_job_that_goes_on_is_kept(kept: Store) -> None:
    """Two models' fidelity are two jobs; stopped in the second, the first is not done again."""
    old, first, second = Stops(None), Stops(None), Stops(None)
    with Job.open(kept, "quality", "m.gguf", ABOUT) as job:
        job.run(UNITS, old)
    with opened(kept) as whole:
        for work in (first, second):
            with Job.open(kept, "quality", "m.gguf", ABOUT, part_of=whole) as job:
                job.run(UNITS, work)
    assert first.asked == Counter(UNITS)  # what was finished before it began is another measurement
    assert not second.asked
    with opened(kept) as anew:
        assert anew.number == whole.number  # not finished itself
        with Job.open(kept, "quality", "m.gguf", ABOUT, part_of=anew) as job:
            assert set(job.results) == set(UNITS)


class Stops:
    """Work that ends with `error` at the unit of a number; counts what it was asked for."""

    def __init__(self, at: int | None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.at, self.error, self.asked = at, error, Counter[str]()

    def __call__(self, key: str) -> dict[str, str]:
        self.asked[key] += 1
        if sum(self.asked.values()) - 1 == self.at:
            raise self.error
        return {"did": key}


def test_results_come_in_order_and_units_run_once(kept: Store) -> None:
    work = Stops(None)
    with opened(kept) as job:
        assert job.run(UNITS, work) == [{"did": key} for key in UNITS]
    assert work.asked == Counter(UNITS)


@pytest.mark.parametrize("at", range(6))
def test_what_was_interrupted_goes_on_where_it_was(kept: Store, at: int) -> None:
    with opened(kept) as job, pytest.raises(Interrupted, match=f"stopped after {at} of 6") as why:
        job.run(UNITS, Stops(at))
    assert "goes on" in str(why.value.hint)
    work = Stops(None)
    with opened(kept) as job:
        assert len(job.results) == at
        job.run(UNITS, work)
    assert work.asked == Counter(UNITS[at:])


def test_an_error_of_the_work_keeps_what_was_done(kept: Store) -> None:
    with opened(kept) as job, pytest.raises(ZeroDivisionError):
        job.run(UNITS, Stops(3, ZeroDivisionError))
    with opened(kept) as job:
        assert sorted(job.results) == UNITS[:3]


def test_a_finished_job_is_not_taken_up_unless_asked(kept: Store) -> None:
    with opened(kept) as job:
        job.run(UNITS[:2], Stops(None))
    with opened(kept) as job:
        assert job.results == {}
        job.run(UNITS[:2], Stops(None))
    work = Stops(None)
    with opened(kept, mode="resume") as job:
        job.run(UNITS[:3], work)
    assert work.asked == Counter(UNITS[2:3])  # two more are done already


def test_fresh_starts_again(kept: Store) -> None:
    with opened(kept) as job, pytest.raises(Interrupted):
        job.run(UNITS, Stops(3))
    with opened(kept, mode="fresh") as job:
        assert job.results == {}
    with opened(kept) as job:  # the dropped one is gone for good
        assert job.results == {}


def test_other_settings_never_mix(kept: Store) -> None:
    with opened(kept) as job, pytest.raises(Interrupted):
        job.run(UNITS, Stops(3))
    other = {"model": "m2", "flags": {"n_ctx": 1024}}
    with pytest.raises(UsageError, match="flags, model changed"):
        opened(kept, other, "resume")
    with opened(kept, other) as job:
        assert (job.results, job.changed) == ({}, ("flags", "model"))
    with opened(kept) as job:  # the first one is still there
        assert (len(job.results), job.changed) == (3, ())
    with Job.open(kept, "verify", "other.gguf", other) as job:
        assert job.changed == ()
    with pytest.raises(UsageError, match="nothing to resume"):
        Job.open(kept, "bench", "m.gguf", ABOUT, "resume")


def test_one_process_at_a_time(kept: Store) -> None:
    with opened(kept), pytest.raises(UsageError, match="another process"):
        opened(kept)
    opened(kept).close()


def test_notes_stay_as_they_were_first(kept: Store) -> None:
    with opened(kept) as job:
        assert job.note("threads", 3) == 3
        assert job.note("threads", 1) == 3
    with opened(kept) as job:
        assert job.note("threads", 1) == 3


def test_progress_tells_what_is_kept_and_left(kept: Store) -> None:
    with opened(kept) as job, pytest.raises(Interrupted):
        job.run(UNITS, Stops(2))
    seen: list[Pace] = []
    with opened(kept) as job:
        job.run(UNITS, lambda _: time.sleep(0.01), seen.append)
    assert [pace.done for pace in seen] == [2, 3, 4, 5, 6]
    assert {(pace.total, pace.kept) for pace in seen} == {(6, 2)}
    assert all(pace.left_s is not None for pace in seen)
    assert seen[-1].left_s == 0
    seen.clear()
    with Job.open(kept, "verify", "new.gguf", ABOUT) as job:
        job.run(UNITS[:1], Stops(None), seen.append)
    assert seen[0] == Pace(0, 1, 0, None)


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 8), st.sampled_from([KeyboardInterrupt, ZeroDivisionError])),
        max_size=8,
    ),
    count=st.integers(1, 8),
)
def test_any_row_of_stops_does_each_unit_to_its_end_once(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, type[BaseException]]],
    count: int,
) -> None:
    units = [str(number) for number in range(count)]
    finished: Counter[str] = Counter()
    path = tmp_path_factory.mktemp("job") / "kvwise.db"
    for at, error in [*steps, (None, KeyboardInterrupt)]:
        work = Stops(at, error)

        def counted(key: str, work: Stops = work) -> Any:
            result = work(key)
            finished[key] += 1
            return result

        with Store(path) as store, opened(store) as job:
            try:
                results = job.run(units, counted)
            except (Interrupted, ZeroDivisionError):
                continue
            assert results == [{"did": key} for key in units]
            break
    assert finished == Counter(units)


CHILD = """
import sys, time
from pathlib import Path
from kvwise.jobs import Job
from kvwise.store import Store

log = open(sys.argv[2], "a", buffering=1)

def work(key):
    log.write("begin " + key + "\\n")
    time.sleep(0.004)
    return {"key": key, "square": int(key) ** 2}

with Store(Path(sys.argv[1])) as store, Job.open(store, "t", "s", {"a": 1}) as job:
    job.run([str(n) for n in range(60)], work)
"""


def test_kill_9_at_any_moment_loses_nothing_that_was_done(tmp_path: Path) -> None:
    """A real process, killed at random until it is through: no recorded unit is begun again."""
    dice, database, log = random.Random(5), tmp_path / "kvwise.db", tmp_path / "log"
    log.touch()
    argv = [sys.executable, "-c", CHILD, str(database), str(log)]
    recorded: set[str] = set()
    kills = 0
    for _ in range(60):
        before = len(log.read_text().splitlines())
        with subprocess.Popen(argv, stderr=subprocess.PIPE) as child:
            while child.poll() is None and len(log.read_text().splitlines()) < before + 1:
                time.sleep(0.005)
            try:
                child.wait(dice.uniform(0, 0.06))
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                kills += 1
            code = child.wait()
            said = child.stderr.read() if child.stderr else b""
        assert code in (0, -signal.SIGKILL), said
        begun = {line.split()[1] for line in log.read_text().splitlines()[before:]}
        assert begun & recorded == set()
        with Store(database) as store:
            rows = store.rows("SELECT key, result FROM unit")
            through = store.rows("SELECT state FROM job")[0]["state"] == "done"
        assert all(json.loads(row["result"])["square"] == int(row["key"]) ** 2 for row in rows)
        assert {row["key"] for row in rows} >= recorded
        recorded = {row["key"] for row in rows}
        if through:  # killed after its end, maybe
            break
    assert recorded == {str(number) for number in range(60)}
    assert kills > 3
    begun_in_all = Counter(line.split()[1] for line in log.read_text().splitlines())
    assert begun_in_all.total() <= 60 + kills


@pytest.mark.parametrize("result", ["[1]", "{}", "null", '{"did": "run-1"}', "{", ""])
def test_a_result_that_somebody_changed_is_told_and_not_used(kept: Store, result: str) -> None:
    with opened(kept) as job, pytest.raises(Interrupted):
        job.run(UNITS, Stops(3))
    with kept.transaction() as db:
        db.execute("UPDATE unit SET result = ? WHERE key = 'run-0'", (result,))
    with pytest.raises(StoreError, match="damaged") as why:
        opened(kept)
    assert "--fresh" in str(why.value.hint)
    with opened(kept, mode="fresh") as job:
        assert job.results == {}


@pytest.mark.parametrize(("column", "value"), [("notes", "[]"), ("notes", "{"), ("about", "7")])
def test_a_job_that_somebody_changed_is_told(kept: Store, column: str, value: str) -> None:
    with opened(kept) as job, pytest.raises(Interrupted):
        job.run(UNITS, Stops(3))
    with kept.transaction() as db:
        db.execute(f"UPDATE job SET {column} = ?, key = 'x'", (value,))  # noqa: S608
    with pytest.raises(StoreError, match="damaged"):
        Job(kept, 1, ABOUT) if column == "notes" else opened(kept)


def test_a_note_of_another_type_is_told(kept: Store) -> None:
    with opened(kept) as job:
        job.note("threads", 4)
        job.notes["threads"] = "four"
        with pytest.raises(StoreError, match="damaged"):
            job.note("threads", 4)


def test_results_from_before_they_had_a_hash_are_made_again(kept: Store) -> None:
    with opened(kept) as job, pytest.raises(Interrupted):
        job.run(UNITS, Stops(3))
    with kept.transaction() as db:
        db.execute("UPDATE unit SET hash = '' WHERE key = 'run-0'")
    work = Stops(None)
    with opened(kept) as job:
        job.run(UNITS, work)
    assert work.asked == Counter(["run-0", *UNITS[3:]])
