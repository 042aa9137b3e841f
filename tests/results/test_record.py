"""What a measurement is: its identity, its statistics, its JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kvwise.errors import UsageError
from kvwise.gguf.header import ArrayInfo, Header
from kvwise.results import Sample, fingerprint, from_json, from_line, line, to_json
from kvwise.results.wording import with_spread
from results_made import CARD, MACHINE, MODEL, measurement, measurements


def sampled(*values: float, flags: tuple[str, ...] = ()) -> tuple[Sample, ...]:
    return tuple(Sample(value, "tokens/s", 0.0, flags) for value in values)


def test_identity_is_what_was_measured_not_when_or_where() -> None:
    one = measurement()
    moved = measurement(
        at=5.0,
        model=replace(MODEL, path="/else.gguf", name="Other"),
        machine=replace(MACHINE, name="container-5", ram_bytes=MACHINE.ram_bytes - (60 << 20)),
        samples=(),
        figures={"x": 1},
        state="failed",
    )
    assert moved.identity == one.identity
    updated = replace(MACHINE, devices=(replace(CARD, driver="560.1 #00000000"),))
    others: list[dict[str, Any]] = [
        {"kind": "fidelity"},
        {"machine": replace(MACHINE, cores=4)},
        {"machine": updated},
        {"engine": replace(one.engine, build="b10606")},
        {"engine": replace(one.engine, tool="llama-server")},
        {"model": replace(MODEL, fingerprint="1f" * 8)},
        {"settings": {**one.settings, "type_v": "q8_0"}},
        {"test": {**one.test, "depth": 4096}},
    ]
    assert len({one.identity, *(measurement(**each).identity for each in others)}) == 9
    assert updated.id == MACHINE.id  # a new driver does not make another machine


def test_flagged_samples_are_kept_and_do_not_count() -> None:
    found = measurement(samples=sampled(10.0, 12.0) + sampled(1.0, flags=("contended",)))
    assert (found.values, found.median, found.spread) == ((10.0, 12.0), 11.0, 1.0)
    assert len(from_line(line(found)).samples) == 3
    assert measurement(samples=sampled(5.0)).spread is None
    assert measurement(samples=()).median is None
    assert measurement(samples=sampled(1.0, 2.0, 3.0, 4.0, 100.0)).spread == 1.0  # the middle half


def test_what_was_disturbed_is_shown_as_such_and_never_counted() -> None:
    found = measurement(samples=sampled(10.0, 12.0, flags=("contended",)))
    assert (found.disturbed, found.shown, found.values, found.median) == (
        True, (10.0, 12.0), (), None,
    )  # fmt: skip
    assert str(with_spread(found)) == "11.0 ± 1.0 tokens/s (contended)"
    assert not measurement().disturbed


@pytest.mark.parametrize("bad", [{"kind": "x"}, {"state": "x"}, {"figures": {"a": float("nan")}},
                                 {"settings": {"a": object()}}])  # fmt: skip
def test_what_json_cannot_hold_is_refused_when_it_is_made(bad: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        measurement(**bad)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(measurements)
def test_json_and_back_is_the_same(found: Any) -> None:
    again = from_line(line(found))
    assert again == found
    assert again.identity == found.identity
    assert line(again) == line(found)


HURT: list[Any] = [
    None, [], "x", 5, {}, {"schema": "kvwise/results/2"}, {"schema": "kvwise/results/1"},
]  # fmt: skip


@pytest.mark.parametrize("value", HURT)
def test_other_json_is_refused(value: Any) -> None:
    with pytest.raises(UsageError):
        from_json(value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("at",), "now"), (("at",), True), (("at",), -1), (("at",), 1e300),
        (("samples", 0, "value"), 1e16), (("kind",), "gossip"), (("state",), None),
        (("machine", "cores"), -1), (("machine", "cores"), 2.5), (("machine", "name"), 3),
        (("machine", "devices"), {}), (("engine", "kind"), "web"), (("model", "name"), "\ud800"),
        (("model", "name"), "a\0b"), (("settings",), []), (("samples",), [{}]), (("samples",), 3),
        (("samples", 0, "value"), 10**400), (("samples", 0, "flags"), [1]), (("findings",), [1]),
        (("figures",), {"a": 1 << 70}), (("test",), {"\ud800": 1}),
    ],
)  # fmt: skip
def test_a_damaged_result_is_refused(path: tuple[Any, ...], value: Any) -> None:
    document = json.loads(line(measurement()))
    place = document
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(UsageError):
        from_json(document)
    with pytest.raises(UsageError):
        from_line(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "NaN", "1" * 5000, '{"a": Infinity}',
                                  "x" * (1 << 21), b"\xff\xfe", '{"schema": NaN}'])  # fmt: skip
def test_other_text_is_refused(text: str | bytes) -> None:
    with pytest.raises(UsageError):
        from_line(text)


def test_a_later_kvwise_may_add_names() -> None:
    document = to_json(measurement())
    document["later"] = {"x": 1}
    document["machine"]["later"] = 1
    assert from_json(document) == measurement()


def test_a_fingerprint_is_of_the_header_however_much_of_it_was_read() -> None:
    kinds = {"tokenizer.ggml.tokens": "[string]"}
    whole = Header(3, {"a": 1.5, "tokenizer.ggml.tokens": ("x", "y")}, (), value_types=kinds)
    counted = Header(
        3, {"a": 1.5, "tokenizer.ggml.tokens": ArrayInfo("string", 2), "split.no": 1}, (),
        path="/else", value_types=kinds,
    )  # fmt: skip
    assert fingerprint(whole) == fingerprint(counted)
    assert fingerprint(whole) != fingerprint(replace(whole, metadata={"a": 1.25}))
