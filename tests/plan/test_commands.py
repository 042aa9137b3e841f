"""Command lines survive their shells: bash for real, the Windows shells by their rules."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwise.plan.commands import all_shells, bash, cmd, powershell

PATHS = [
    "model.gguf",
    "/models/my model.gguf",
    "C:\\Program Files\\models\\it's 7B.gguf",
    "模型/千问 3 (8B).gguf",
    "a\"b'c.gguf",
    "100%PATH%.gguf",
    "x&y|z<w>^v!.gguf",
    "ends with backslash\\",
    "$HOME/`id`.gguf",
    "‘quoted’.gguf",
    "",
    "-",
    "a,b;c{d}@(e)#f",
]
WORDS = st.lists(
    st.text(alphabet=st.characters(exclude_characters="\0\r\n", exclude_categories=["Cs", "Cc"])),
    min_size=1,
    max_size=5,
)
SHOW = "import json, sys; print(json.dumps(sys.argv[1:]))"


def _seen_by(shell: list[str], line: str) -> list[str]:
    done = subprocess.run(
        [*shell, line], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return list(json.loads(done.stdout))


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_posix_shells_pass_every_word_on(shell: str) -> None:
    line = bash([sys.executable, "-c", SHOW, *PATHS])
    assert _seen_by([shell, "-c"], line) == PATHS


@settings(max_examples=25, deadline=None)
@given(WORDS)
def test_bash_passes_any_words_on(words: list[str]) -> None:
    assert _seen_by(["bash", "-c"], bash([sys.executable, "-c", SHOW, *words])) == words


@given(WORDS)
def test_cmd_by_its_rules(words: list[str]) -> None:
    assert _windows_argv(_cmd_sees(cmd(words))) == words


@given(WORDS)
def test_powershell_by_its_rules(words: list[str]) -> None:
    assert _powershell_words(powershell(words)) == words


def test_what_needs_no_quotes_has_none() -> None:
    argv = ["llama-server", "-m", "models/q.gguf", "-c", "4096", "-ngl", "-1", "--no-repack"]
    plain = " ".join(argv)
    assert all_shells(argv) == {"bash": plain, "powershell": plain, "cmd": plain, "argv": argv}


def test_powershell_does_not_split_lists_or_dotted_flags() -> None:
    assert powershell(["x", "-ts", "3,1"]) == "x -ts '3,1'"
    assert powershell(["C:\\a b\\llama-server.exe", "-m", "it's"]) == (
        "& 'C:\\a b\\llama-server.exe' -m 'it''s'"
    )


def _cmd_sees(line: str) -> str:
    """What cmd.exe hands to the program: carets outside of quotes escape, `%x%` is expanded."""
    out, quoted, at = [], False, 0
    while at < len(line):
        char = line[at]
        if char == "^" and not quoted:
            at += 1
            out.append(line[at] if at < len(line) else "")
        elif char == '"':
            quoted = not quoted
            out.append(char)
        else:
            assert quoted or char not in "&|<>"
            assert char != "%", "a variable could be expanded here"
            out.append(char)
        at += 1
    return "".join(out)


def _windows_argv(line: str) -> list[str]:
    """CommandLineToArgvW, as its documentation says."""
    words, word, quoted, began, at = [], "", False, False, 0
    while at < len(line):
        if line[at] == "\\":
            run = len(line[at:]) - len(line[at:].lstrip("\\"))
            at += run
            if at < len(line) and line[at] == '"':
                word += "\\" * (run // 2)
                if run % 2:
                    word += '"'
                    at += 1
            else:
                word += "\\" * run
            began = True
            continue
        if line[at] == '"':
            quoted, began = not quoted, True
        elif line[at] in " \t" and not quoted:
            if began:
                words.append(word)
            word, began = "", False
        else:
            word, began = word + line[at], True
        at += 1
    return [*words, word] if began else words


def _powershell_words(line: str) -> list[str]:
    """Bare words and single-quoted ones, in which every kind of single quote is doubled."""
    quotes = "'\u2018\u2019\u201a\u201b"
    line = line.removeprefix("& ")
    words, word, at = [], "", 0
    while at < len(line):
        if line[at] == "'":
            at += 1
            while not (line[at] in quotes and line[at + 1 : at + 2] not in tuple(quotes)):
                at += 1 if line[at] not in quotes else 2
                word += line[at - 1]
            at += 1
        elif line[at] == " ":
            words.append(word)
            word, at = "", at + 1
        else:
            assert line[at].isascii()
            assert line[at] not in '`$,;(){}@#"&|<>'
            word, at = word + line[at], at + 1
    return [*words, word]
