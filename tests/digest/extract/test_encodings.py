"""Any encoding is read, or it is said which file is none."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from kvwise.digest.extract.encodings import text_of
from kvwise.errors import SourceError, UsageError

_RUSSIAN = "Москва стоит на реке. Завтра будет снег, а потом оттепель. " * 30
_CHINESE = "今天天气很好。我们去公园散步，然后回家吃饭。" * 30
_JAPANESE = "これは日本語の文章です。明日は雨が降るでしょう。" * 30


def _read(path: Path, data: bytes, encoding: str | None = None) -> str:
    path.write_bytes(data)
    about = text_of(path, encoding)
    return about.read(about.start, len(data))


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(_RUSSIAN, "cp1251"), (_CHINESE, "gb18030"), (_JAPANESE, "shift_jis"), (_CHINESE, "utf-8")],
)
def test_encodings_are_recognised(tmp_path: Path, text: str, encoding: str) -> None:
    assert _read(tmp_path / "a.txt", text.encode(encoding)) == text


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [(codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"),
     (codecs.BOM_UTF16_BE, "utf-16-be"), (b"", "utf-16-le"), (b"", "utf-16-be")],
)  # fmt: skip
def test_marks_and_wide_characters(tmp_path: Path, mark: bytes, encoding: str) -> None:
    text = "Plain words and caf\u00e9. " * 20
    assert _read(tmp_path / "a.txt", mark + text.encode(encoding)) == text


def test_a_few_broken_bytes_do_not_change_the_encoding(tmp_path: Path) -> None:
    data = (_CHINESE * 5).encode() + b"\xff\xfe\xff"
    assert _read(tmp_path / "a.txt", data).startswith(_CHINESE)


def test_what_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        _read(tmp_path / "a.txt", b"\x7fELF\0\1\2\0\0\0words")
    assert _read(tmp_path / "a.txt", b"") == ""


@pytest.mark.parametrize("name", ["klingon", "rot13", "base64", "undefined"])
def test_encodings_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        _read(tmp_path / "a.txt", b"abc", name)
