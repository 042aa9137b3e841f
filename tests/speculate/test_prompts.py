"""Prompts of a file, of JSON lines, of a folder, and the built-in ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvwise.errors import SourceError, UsageError
from kvwise.speculate.prompts import BUILT_IN, built_in, distinct, read_prompts


def test_the_built_in_ones_are_there() -> None:
    found = built_in()
    assert [each.name for each in found] == list(BUILT_IN)
    assert all(len(each.text) > 100 for each in found)


def test_one_prompt_per_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("First one.\n\n  Second 中文 {x}\n", "utf-8")
    found = read_prompts(str(file))
    assert [each.text for each in found] == ["First one.", "Second 中文 {x}"]
    assert [each.name for each in found] == ["1", "3"]
    assert found[0].chat == [{"role": "user", "content": "First one."}]


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(
        '{"prompt": "a\\nb", "name": "one"}\n"plain"\n'
        '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}\n',
        "utf-8",
    )
    found = read_prompts(str(file))
    assert (found[0].name, found[0].text, found[1].text) == ("one", "a\nb", "plain")
    assert [each["role"] for each in found[2].chat] == ["system", "user"]


def test_a_folder_of_texts(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("two\nlines", "utf-8")
    (tmp_path / "a.md").write_text("one", "utf-8")
    (tmp_path / "c.png").write_bytes(b"\x89PNG")
    assert [(each.name, each.text) for each in read_prompts(str(tmp_path))] == [
        ("a", "one"), ("b", "two\nlines"),
    ]  # fmt: skip


@pytest.mark.parametrize("line", ['{"prompt": 3}', '{"nothing": 1}', "{broken", '{"messages": []}'])
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(f'{{"prompt": "good"}}\n{line}\n', "utf-8")
    with pytest.raises(SourceError, match="line 2"):
        read_prompts(str(file))


def test_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n", "utf-8")
    with pytest.raises(UsageError):
        read_prompts(str(tmp_path / "empty"))
    with pytest.raises(SourceError):
        read_prompts(str(tmp_path / "missing"))


def test_names_differ_and_a_changed_text_has_another_digest() -> None:
    one = built_in()[0]
    twice = distinct([one, one])
    assert [each.name for each in twice] == ["code", "code-2"]
    assert twice[0].digest == one.digest != built_in()[1].digest


@pytest.mark.parametrize("bad", ["[1]", "7", "null", "[" * 100_000, '{"messages": [1]}'])
def test_a_line_of_any_other_shape_is_named(tmp_path: Path, bad: str) -> None:
    place = tmp_path / "prompts.jsonl"
    place.write_text(f'{{"prompt": "yes"}}\n{bad}\n')
    with pytest.raises(SourceError, match="line 2 is no prompt"):
        read_prompts(place)
