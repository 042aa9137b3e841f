"""The database: its migrations, what it refuses, and that nothing half-done stays."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise import paths, store
from kvwise.errors import UsageError
from kvwise.store import MIGRATIONS, Store, StoreError


def tables(path: Path) -> set[str]:
    with sqlite3.connect(path) as db:
        return {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_it_lies_in_the_data_folder_and_is_durable() -> None:
    with Store() as kept:
        assert kept.path == paths.data_dir() / "kvwise.db"
        assert kept.rows("PRAGMA journal_mode")[0][0] == "wal"
        assert kept.rows("PRAGMA synchronous")[0][0] == 2  # FULL
    assert tables(kept.path) == {"job", "unit", "result"}


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    columns = "kind, subject, key, about, state, notes, began"
    add = f"INSERT INTO job ({columns}) VALUES ('a', 'b', 'c', '{{}}', 'open', '{{}}', 0)"  # noqa: S608
    with Store(tmp_path / "a.db") as kept:
        with pytest.raises(ZeroDivisionError), kept.transaction() as db:
            db.execute(add)
            raise ZeroDivisionError
        assert kept.rows("SELECT * FROM job") == []
        with kept.transaction() as db:
            db.execute(add)
    with Store(tmp_path / "a.db") as again:
        assert len(again.rows("SELECT * FROM job")) == 1


def test_threads_take_turns(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as kept:

        def add(number: int) -> None:
            with kept.transaction() as db:
                most = db.execute("SELECT coalesce(max(began), 0) FROM job").fetchone()[0]
                values = ("a", "b", str(number), "{}", "open", "{}", most + 1)
                db.execute(
                    "INSERT INTO job (kind, subject, key, about, state, notes, began)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)", values,
                )  # fmt: skip

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, range(40)))
        assert [row[0] for row in kept.rows("SELECT began FROM job ORDER BY id")] == [
            float(number) for number in range(1, 41)
        ]


def test_migrations_run_once_each_and_from_any_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a.db"
    Store(place).close()
    more = (*MIGRATIONS, ("CREATE TABLE two (x)",), ("ALTER TABLE two ADD COLUMN y",))
    monkeypatch.setattr(store, "MIGRATIONS", more)
    for _ in range(2):
        with Store(place) as kept:
            assert kept.rows("PRAGMA user_version")[0][0] == len(more)
            assert [row["name"] for row in kept.rows("PRAGMA table_info(two)")] == ["x", "y"]


def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a.db"
    Store(place).close()
    broken = (*MIGRATIONS, ("CREATE TABLE two (x)", "CREATE TABLE two (x)"))
    with monkeypatch.context() as patch:
        patch.setattr(store, "MIGRATIONS", broken)
        with pytest.raises(StoreError, match="already exists"):
            Store(place)
    assert tables(place) == {"job", "unit", "result"}
    Store(place).close()


def test_a_newer_file_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "a.db"
    with monkeypatch.context() as patch:
        patch.setattr(store, "MIGRATIONS", (*MIGRATIONS, ("CREATE TABLE two (x)",)))
        Store(place).close()
    with pytest.raises(StoreError, match="newer kvwise"):
        Store(place)
    assert "two" in tables(place)


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "a.db"
    with sqlite3.connect(place) as db:
        db.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="another program"):
        Store(place)
    assert tables(place) == {"theirs"}


@given(st.binary(min_size=512, max_size=600))  # of less, SQLite makes an empty database
def test_a_file_that_is_no_database_is_told(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    place = tmp_path_factory.mktemp("broken") / "a.db"
    place.write_bytes(data)
    with pytest.raises(StoreError):
        Store(place)
    assert place.read_bytes() == data


def test_a_lock_that_cannot_be_made_is_not_taken_for_a_held_one(tmp_path: Path) -> None:
    with Store(tmp_path / "k.db") as kept:
        (tmp_path / "locks/a.lock").mkdir(parents=True)
        (tmp_path / "locks/b.lock").write_bytes(b"no database at all" * 100)
        for name in ("a", "b"):
            with pytest.raises(StoreError, match=f"{name}.lock"):
                kept.lock(name)


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as kept:
        held = kept.lock("x")
        with pytest.raises(UsageError, match="another process"):
            kept.lock("x")
        kept.lock("y").close()
        held.close()
        kept.lock("x").close()


def test_a_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    with Store(tmp_path / "a.db") as kept:
        held = kept.lock("x")
        (locks / "of-a-killed-one.lock").touch()
        (locks / "of-a-killed-one.lock-journal").touch()
        other = kept.lock("y")
        assert {each.name for each in locks.iterdir()} == {"x.lock", "y.lock"}
        with pytest.raises(UsageError, match="another process"):
            kept.lock("x")  # what is held was not swept
        other.close()
        held.close()
        assert not locks.exists()


_TAKES = """
import sys
from pathlib import Path
from kvwise.errors import UsageError
from kvwise.store import Store
inside = Path(sys.argv[1]) / "inside"
with Store(Path(sys.argv[1]) / "a.db") as kept:
    taken = 0
    while taken < 60:
        try:
            with kept.lock("x"):
                with inside.open("x"):
                    pass
                inside.unlink()
                taken += 1
        except UsageError:
            pass
"""


def test_two_never_hold_a_lock_that_is_removed_and_made_again(tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", _TAKES, str(tmp_path)], stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    told = [each.communicate()[1] for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert not (tmp_path / "locks").exists()


_NO_ROOM = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can grow, as on a full disk
from kvwise.store import Store, StoreError
with Store(Path(sys.argv[1])) as kept:
    print(len(kept.rows("SELECT * FROM job")), kept.read_only)
    try:
        with kept.transaction() as db:
            db.execute("DELETE FROM job")
    except StoreError as error:
        print(error.phrase)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of this kind")
def test_what_cannot_be_written_is_read(tmp_path: Path) -> None:
    columns = "kind, subject, key, about, state, notes, began"
    with Store(tmp_path / "a.db") as kept, kept.transaction() as db:
        db.execute(f"INSERT INTO job ({columns}) VALUES ('a', 'b', 'c', '{{}}', 'open', '{{}}', 0)")  # noqa: S608
    done = subprocess.run(
        [sys.executable, "-c", _NO_ROOM, str(tmp_path / "a.db")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    read, refused = done.stdout.splitlines()
    assert read.partition(" ")[0] == "1"
    assert read.partition(" ")[2]
    assert "cannot be used" in refused
    with Store(tmp_path / "a.db") as kept:
        assert len(kept.rows("SELECT * FROM job")) == 1
        assert kept.read_only == ""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anything")
def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as kept:
        assert kept.rows("SELECT * FROM job") == []
    tmp_path.chmod(0o555)
    try:
        with Store(tmp_path / "a.db") as kept:
            assert kept.rows("SELECT * FROM job") == []
            assert "denied" in kept.read_only
    finally:
        tmp_path.chmod(0o755)


def test_a_file_of_an_older_kvwise_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(store, "MIGRATIONS", MIGRATIONS[:1])
        Store(tmp_path / "a.db").close()

    def full(_self: Store) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "_set_up", full)
    with pytest.raises(StoreError, match="older kvwise"):
        Store(tmp_path / "a.db")


def test_what_stands_in_the_log_alone_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be written, copied while a process had it open: a log and no index of
    it, which SQLite would have to make."""
    there = tmp_path / "there"
    there.mkdir()
    columns = "kind, subject, key, about, state, notes, began"
    with Store(tmp_path / "a.db") as kept:
        with kept.transaction() as db:
            db.execute(f"INSERT INTO job ({columns}) VALUES ('', '', '', '', '', '', 0)")  # noqa: S608
        for name in ("a.db", "a.db-wal"):
            shutil.copy(tmp_path / name, there / name)
    before = (there / "a.db").read_bytes()
    opened = Store._open

    def no_index(self: Store, place: str, set_up: Callable[[], None]) -> None:
        if place.startswith(str(there)) or "mode=ro" in place:
            raise sqlite3.OperationalError("unable to open database file")
        opened(self, place, set_up)

    monkeypatch.setattr(Store, "_open", no_index)
    with Store(there / "a.db") as kept:
        assert len(kept.rows("SELECT * FROM job")) == 1
        assert kept.read_only
        with pytest.raises(StoreError), kept.transaction():
            pass
    assert (there / "a.db").read_bytes() == before
    assert len(list(there.iterdir())) == 2


def test_what_cannot_be_committed_keeps_nobody_from_the_next(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as kept:
        with pytest.raises(StoreError, match="FOREIGN KEY"), kept.transaction() as db:
            db.execute("PRAGMA defer_foreign_keys = ON")
            db.execute("INSERT INTO unit VALUES (7, 'a', '', 0, 0, '')")  # of no job
        with kept.transaction() as db:
            db.execute("DELETE FROM unit")
        assert kept.rows("SELECT * FROM unit") == []


def test_a_version_below_none_is_not_ours(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as kept:
        kept.rows("PRAGMA user_version = -5")
    with pytest.raises(StoreError, match="newer"):
        Store(tmp_path / "a.db")
