"""What the system says, by its number: the same words in English, and Chinese ones."""

from __future__ import annotations

import errno
import os
import re
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from kvwise import oserrors
from kvwise.cli._main import run as main
from kvwise.oserrors import reason_of
from kvwise.text import Phrase, say

QWEN = str(Path(__file__).parent / "zoo/models/qwen3-8b.json.gz")


@pytest.mark.skipif(sys.platform != "linux", reason="the words are glibc's")
@pytest.mark.parametrize("number", oserrors._SAID)
def test_english_is_what_the_system_says(number: int) -> None:
    said = reason_of(OSError(number, "in another language"))
    assert str(said) == os.strerror(number)
    assert not say(said, "zh").isascii()


def test_what_stands_behind_a_library_s_error_is_what_is_told() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(httpx2.ConnectError) as refused:
        httpx2.get(f"http://127.0.0.1:{port}/", trust_env=False)
    assert str(reason_of(refused.value)) == os.strerror(errno.ECONNREFUSED)


def test_names_that_are_not_known() -> None:
    said = reason_of(socket.gaierror(socket.EAI_NONAME, "..."))
    assert str(said) == "Name or service not known"


def test_sqlite_s_own_words(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.Error) as error:
        sqlite3.connect(tmp_path)
    said = reason_of(error.value)
    assert str(said) == "unable to open database file"
    assert isinstance(said, Phrase)


def test_what_is_not_known_stays_as_it_is() -> None:
    assert reason_of(OSError(errno.EDOM, "a strange thing")) == "a strange thing"
    assert reason_of(ValueError()) == "ValueError"


def test_a_command_says_it_in_chinese(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lang", "zh", "plan", QWEN, "--device-file", str(tmp_path / "none")]) != 0
    assert say(oserrors.reason_for(errno.ENOENT), "zh") in capsys.readouterr().err
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kvwise", "--lang", "zh", "size", QWEN, "-c", "512"],
            stdout=full, stderr=subprocess.PIPE, encoding="utf-8", check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].partition("：")[0] == "错误"
    assert say(oserrors.reason_for(errno.ENOSPC), "zh") in done.stderr
    assert not re.search("[a-z]{3}", done.stderr)
