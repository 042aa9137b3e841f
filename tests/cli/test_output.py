"""The printer: bars that add up, columns that align, text for every kind of stream."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwise.cli._shapes import Bar, Column, Table, bar_cells, width_of
from kvwise.cli.output import Printer, visible
from kvwise.errors import Refused, UsageError
from kvwise.text import phrase


@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=6),
    st.integers(0, 2**40),
    st.integers(20, 200),
)
def test_a_bar_never_leaves_its_room_and_shows_every_part(
    sizes: list[int], capacity: int, room: int
) -> None:
    cells = bar_cells(sizes, capacity, room)
    assert sum(cells) <= room
    assert all((count > 0) == (size > 0) for count, size in zip(cells, sizes, strict=True))


def _printer(encoding: str = "utf-8") -> tuple[Printer, io.BytesIO]:
    raw = io.BytesIO()
    return Printer(out=io.TextIOWrapper(raw, encoding=encoding, write_through=True)), raw


def test_chinese_takes_two_cells_and_columns_align() -> None:
    assert width_of("显存 MiB") == 8
    printer, raw = _printer()
    printer.table(Table((Column("名"), Column("n", right=True)), [("显存", "1"), ("ab", "22")]))
    assert raw.getvalue().decode().splitlines() == ["名     n", "显存   1", "ab    22"]


def test_an_old_code_page_gets_plain_characters() -> None:
    printer, raw = _printer("ascii")
    printer.bar(Bar("GPU", [("weights", "weights", 3), ("left", "left", 1)], 4))
    assert b"#" in raw.getvalue()
    printer.text("显存")  # cannot be said in ASCII; must not raise
    assert raw.getvalue().endswith(b"??\n")


def test_errors_as_documents() -> None:
    printer, _ = _printer()
    refusal = printer.error_document(Refused("other_model", "no {what}", hint="{what}?", what="x"))
    assert refusal == {
        "schema": "kvwise/refusal/1", "code": "other_model", "message": "no x", "hint": "x?"
    }  # fmt: skip
    error = printer.error_document(UsageError("bad"))
    assert error["error"] == {"type": "UsageError", "message": "bad", "hint": None}


def test_phrases_are_worded_and_strings_are_not() -> None:
    printer, raw = _printer()
    printer.text(phrase("{a}", a=phrase("b")))
    printer.text("{a}")
    assert raw.getvalue() == b"b\n{a}\n"


def test_names_of_strangers_do_not_steer_the_terminal() -> None:
    evil = "a\x1b]0;x\x07\x1b[31mb\u202ec\x9bd"
    for color in ("auto", "always"):
        printer, raw = _printer()
        printer.color = color
        printer.text(f"{evil}\nnext", "bad")
        printer.table(Table((Column("name"),), [(f"{evil}\nnext",)]))
        printer.bar(Bar(evil, [("weights", evil, 3)], 4))
        printer.bullets([evil])
        text = raw.getvalue().decode()
        assert not set("\x07\x9b\u202e") & set(text)
        assert "\x1b]" not in text
        assert r"b\u202ec\x9bd\nnext" in text
    assert visible("a\nb\u3000中") == "a\nb\u3000中"


def test_an_error_is_one_line() -> None:
    printer, raw = _printer()
    printer.err = printer.out
    printer.error(UsageError("no {what}", what="x\ny\rz", hint="{what}"))
    assert raw.getvalue() == b"error: no x\\ny\\rz\nhint: x\\ny\\rz\n"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "gbk", "cp1252"])
def test_json_loses_no_letter_in_any_code_page(encoding: str) -> None:
    printer, raw = _printer(encoding)
    value = {"path": "模型é🙂.gguf"}
    printer.document(value)
    printer.json_line(value)
    assert [json.loads(line) for line in raw.getvalue().splitlines()] == [value, value]


def test_without_a_terminal_long_work_is_heard_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("kvwise.cli.output.monotonic", lambda: now)
    monkeypatch.delenv("KVWISE_NO_PROGRESS", raising=False)
    err = io.StringIO()
    with Printer(err=err).progress(phrase("measuring"), 100) as advance:
        for second in range(100):
            now = float(second)
            advance(second, f"step {second}")
    assert err.getvalue().split("\n") == [
        "  5 %  step 5", " 35 %  step 35", " 65 %  step 65", " 95 %  step 95", "",
    ]  # fmt: skip
    for silent in (Printer(err=io.StringIO(), verbosity=-1), Printer(err=io.StringIO())):
        if silent.verbosity == 0:
            monkeypatch.setenv("KVWISE_NO_PROGRESS", "1")
        with silent.progress(phrase("measuring"), 100) as advance:
            now = 1000.0
            advance(50)
        assert isinstance(silent.err, io.StringIO)
        assert not silent.err.getvalue()
