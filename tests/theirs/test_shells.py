"""Pasted command lines: what our own quoting writes comes back, and anything else never crashes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kvwise.errors import SourceError, UsageError
from kvwise.plan import commands
from kvwise.theirs import of_text, shells
from kvwise.theirs.shells import BASH, CMD, POWERSHELL, guess, parse

WORDS = st.lists(
    st.text(st.characters(exclude_characters="\0\r\n", exclude_categories=("Cs",)), max_size=20),
    max_size=6,
)


@hypothesis_settings(deadline=None)
@given(words=WORDS)
def test_bash_words_come_back(words: list[str]) -> None:
    line = commands.bash(["llama-server", *words])
    if guess(line) != BASH or any(re.fullmatch("[();<>|&]+", word) for word in words):
        return  # a quoted operator alone cannot be told from one; no flag has such a value
    assert parse(line).commands[0].words == ("llama-server", *words)


@hypothesis_settings(deadline=None)
@given(words=WORDS)
def test_powershell_words_come_back(words: list[str]) -> None:
    line = "& " + " `\n ".join(commands.powershell_word(each) for each in ["llama-server", *words])
    if "@args" in words:
        return
    assert parse(line).shell == POWERSHELL
    assert parse(line).commands[0].words == ("llama-server", *words)


@hypothesis_settings(deadline=None)
@given(words=WORDS)
def test_cmd_words_come_back(words: list[str]) -> None:
    if not words or any("%" in word or word in ("<", ">", "") for word in words):
        return  # what a variable holds is unknown here
    line = "llama-server ^\n " + commands.cmd(words)
    assert parse(line).shell == CMD
    assert parse(line).commands[0].words == ("llama-server", *words)


@hypothesis_settings(deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        of_text(text)
    except (SourceError, UsageError) as error:
        assert str(error)


BASH_LINE = """\
# my server
export LLAMA_ARG_THREADS=8
cd ~/llama.cpp && CUDA_VISIBLE_DEVICES=0 LLAMA_ARG_CTX_SIZE=4096 nohup ./build/bin/llama-server \\
  -m "$HOME/my models/a b.gguf" \\
  -ngl 99 -ot 'blk\\.(1|2)\\.ffn=CPU' > log.txt 2>&1 &
tail -f log.txt
"""


def test_a_real_bash_line() -> None:
    given_ = of_text(BASH_LINE)
    assert given_.kind == BASH
    assert given_.found.words == ("-m", "$HOME/my models/a b.gguf", "-ngl", "99", "-ot",
                                  "blk\\.(1|2)\\.ffn=CPU")  # fmt: skip
    assert given_.found.environ == {"LLAMA_ARG_THREADS": "8", "LLAMA_ARG_CTX_SIZE": "4096"}
    assert given_.found.wrapper == ("nohup", "./build/bin/llama-server")


@pytest.mark.parametrize("tail", ["> log", "2> log", "2>&1 | tee log", ">> log 2>&1 &", "&> log"])
def test_where_output_goes_is_no_part_of_it(tail: str) -> None:
    assert of_text(f"llama-server -m a -np 2 {tail}").found.words == ("-m", "a", "-np", "2")


POWERSHELL_LINE = """\
$env:CUDA_VISIBLE_DEVICES = "0"
$env:LLAMA_ARG_CTX_SIZE = '4096'
# the server
& 'C:\\Program Files\\llama\\llama-server.exe' `
  -m "D:\\My Models\\it's.gguf" -ngl 99 `
  -ot 'a''b=CPU'; Write-Host done
"""


def test_a_real_powershell_line() -> None:
    given_ = of_text(POWERSHELL_LINE)
    assert given_.kind == POWERSHELL
    assert given_.found.program == "C:\\Program Files\\llama\\llama-server.exe"
    assert given_.found.words == ("-m", "D:\\My Models\\it's.gguf", "-ngl", "99", "-ot", "a'b=CPU")
    assert given_.found.environ == {"LLAMA_ARG_CTX_SIZE": "4096"}


CMD_LINE = """\
@echo off
chcp 65001 >nul
set LLAMA_ARG_CTX_SIZE=4096
rem the server
start /b C:\\llama\\llama-server.exe ^
  -m "D:\\My Models\\a ^& b 100%%.gguf" -ngl 99 ^
  --temp 0.5 > log.txt
pause
"""


def test_a_real_batch_file() -> None:
    given_ = of_text(CMD_LINE)
    assert given_.kind == CMD
    assert given_.found.words == ("-m", "D:\\My Models\\a ^& b 100%.gguf", "-ngl", "99", "--temp",
                                  "0.5")  # fmt: skip
    assert given_.found.environ == {"LLAMA_ARG_CTX_SIZE": "4096"}


@pytest.mark.parametrize(
    "prompt",
    ["$ ", "PS C:\\Users\\me> ", "C:\\Users\\me>", "me@host:~/llama.cpp$ ", "root@box # ", "% "],
)
def test_a_prompt_that_was_pasted_too_is_dropped(prompt: str) -> None:
    assert of_text(f"{prompt}llama-server -m a.gguf").found.words == ("-m", "a.gguf")


@pytest.mark.parametrize(
    ("line", "shell"),
    [
        ("llama-server -m /a.gguf", BASH),
        ("./llama-server -m '/a b.gguf' \\\n -c 1", BASH),
        ("llama-server.exe -m C:\\a.gguf", CMD),
        ("llama-server -m %USERPROFILE%\\a.gguf", CMD),
        (".\\llama-server.exe -m 'C:\\a b.gguf'", POWERSHELL),
        ("llama-server `\n-m a", POWERSHELL),
        ("$env:A='1'; llama-server -m a", POWERSHELL),
    ],
)
def test_the_shell_is_guessed(line: str, shell: str) -> None:
    assert guess(line) == shell
    assert "llama-server" in shells.parse(line).commands[-1].words[0]


@pytest.mark.parametrize(
    "line", ["llama-server -m 'a", '& llama-server "a', "x" * 70000, "a\0b", 'a.exe C:\\x "']
)
def test_what_cannot_be_taken_apart_is_one_sentence(line: str) -> None:
    with pytest.raises((SourceError, UsageError)):
        of_text(line)
