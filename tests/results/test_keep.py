"""Results in the database: nothing twice, nothing lost, the same whatever comes first."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvwise import store as store_module
from kvwise.results import Sample, line, load, save
from kvwise.store import MIGRATIONS, Store
from results_made import MACHINE, MODEL, measurement, measurements


@pytest.fixture
def kept(tmp_path: Path) -> Any:
    with Store(tmp_path / "a.db") as store:
        yield store


def test_saved_once_found_again(kept: Store) -> None:
    assert save(kept, measurement(), measurement(), measurement(at=5.0)) == 2
    assert save(kept, measurement()) == 0
    assert load(kept) == [measurement(at=5.0), measurement()]


def test_found_by_what_it_is(kept: Store) -> None:
    other = replace(MODEL, fingerprint="x")
    save(kept, measurement(), measurement(model=other, at=10.0), measurement(kind="fidelity"))
    assert len(load(kept, kind="speed")) == 2
    assert [each.at for each in load(kept, fingerprint="x", machine=MACHINE.id)] == [10.0]
    assert len(load(kept, since=11.0, build="b10605", engine="binary", state="ok")) == 2
    assert load(kept, machine="unknown") == load(kept, tool="llama-cli") == []
    with pytest.raises(TypeError):
        load(kept, colour="red")


def test_of_two_with_the_same_identity_and_time_the_fuller_one_stays(kept: Store) -> None:
    short = measurement(samples=())
    save(kept, short)
    assert save(kept, measurement()) == 0
    save(kept, short)
    assert load(kept) == [measurement()]


def test_all_or_none(kept: Store) -> None:
    with pytest.raises(AttributeError):
        save(kept, measurement(), None)  # type: ignore[arg-type]
    assert load(kept) == []


def merged(*parts: list[Any]) -> list[str]:
    with Store(Path(":memory:")) as store:
        for part in parts:
            save(store, *part)
        return sorted(map(line, load(store)))


variants = st.builds(
    lambda each, value: [each, replace(each, samples=(Sample(value, "tokens/s", 0.0),))],
    measurements,
    st.sampled_from([1.0, 2.0]),
)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(variants, st.lists(measurements, max_size=3), st.randoms(use_true_random=False))
def test_merging_is_commutative_associative_and_idempotent(
    pair: list[Any], more: list[Any], random: Any
) -> None:
    everything = [*pair, *more]
    mixed = random.sample(everything, len(everything))
    first = merged(everything)
    assert merged(mixed[:2], mixed[2:]) == first
    assert merged(mixed, everything, mixed) == first


def test_an_old_database_of_version_1_opens_and_keeps_its_jobs(tmp_path: Path) -> None:
    place = tmp_path / "old.db"
    with sqlite3.connect(place) as db:  # as the first kvwise left it
        for statement in MIGRATIONS[0]:
            db.execute(statement)
        db.execute("PRAGMA application_id = 0x6B767773")
        db.execute("PRAGMA user_version = 1")
        db.execute("INSERT INTO job VALUES (1, 'verify', 'm', 'k', '{}', 'open', '{}', 0)")
        db.execute("INSERT INTO unit VALUES (1, 'run-0', '{}', 1.0, 0)")
    db.close()
    with Store(place) as store:
        assert len(store.rows("SELECT * FROM unit")) == 1
        assert save(store, measurement()) == 1
        assert store.rows("PRAGMA user_version")[0][0] == len(store_module.MIGRATIONS)
