"""Scripts: the shells themselves read them, where there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import mslex
import pytest
import tree_sitter_batch
import tree_sitter_powershell
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tree_sitter import Language, Node, Parser

from export_settings import NASTY, PATHS, settings
from kvwise.errors import SourceError, UsageError
from kvwise.export import bash, cmd, powershell
from kvwise.export.settings import Settings, spoken

STUB = '#!/bin/sh\nprintf "%s\\0" "$@" > "$STUB_OUT"\n'


def argv(given_settings: Settings) -> list[str]:
    return [word for each in spoken(given_settings) for word in each.typed]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `llama-server` that notes what it is given."""
    folder = tmp_path_factory.mktemp("stub")
    for name in ("llama-server", "llama-server.exe"):
        (folder / name).write_text(STUB)
        (folder / name).chmod(0o755)
    return folder


def heard(folder: Path, command: list[str], **environ: str) -> list[str]:
    """What the stub was given by a command."""
    out = folder / "out"
    out.unlink(missing_ok=True)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        timeout=120,
        env={**os.environ, "PATH": path, "STUB_OUT": str(out), **environ},
    )
    return out.read_bytes().decode().split("\0")[:-1]


@pytest.mark.parametrize("shell", ["sh", "bash"])
@hypothesis_settings(deadline=None, max_examples=25)
@given(path=st.one_of(PATHS, st.sampled_from(NASTY)))
def test_a_posix_shell_hands_on_every_word(shell: str, stub: Path, path: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    asked = settings(path, "-c", "8192", "-ot", "blk\\.(1|2)=CPU")
    script = stub / "start.sh"
    script.write_bytes(bash.write(asked, None).text.encode())
    subprocess.run([shell, "-n", str(script)], check=True)
    assert heard(stub, [shell, str(script), "--more", "a b"]) == [*argv(asked), "--more", "a b"]


WINE = next((path for name in ("/usr/lib/wine/wine64", "wine64", "wine")
             if (path := shutil.which(name))), None)  # fmt: skip


@pytest.mark.skipif(WINE is None, reason="no cmd.exe: Debian has one in wine64")
def test_cmd_itself_hands_on_every_word(stub: Path, tmp_path: Path) -> None:
    """Wine's cmd.exe: a re-implementation; unlike Microsoft's it does not heed `chcp`."""
    expected, calls = [], ["@echo off"]
    for number, name in enumerate(NASTY):
        out, script = stub / f"heard{number}", stub / f"start{number}.bat"
        program = stub / f"server{number}.exe"
        program.write_text(STUB.replace('"$STUB_OUT"', f"'{out}'"))
        program.chmod(0o755)
        path = re.sub(r"[^\x00-\x7f]", "x", name)
        asked = settings(path, "-c", "8192", "-ot", "blk\\.(1|2)=CPU")
        asked = replace(asked, program=_windows(program))
        script.write_bytes(cmd.write(asked, None).text.replace("\n", "\r\n").encode())
        calls.append(f'call "{_windows(script)}" --more "a b"')
        expected.append([*argv(asked), "--more", "a b"])
    (stub / "all.bat").write_text("\r\n".join([*calls, ""]))
    environ = {**os.environ, "WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"}
    command = [WINE or "", "cmd", "/c", _windows(stub / "all.bat")]
    subprocess.run(command, check=False, capture_output=True, timeout=240, env=environ)
    heards = [(stub / f"heard{number}").read_bytes() for number in range(len(NASTY))]
    assert [each.decode().split("\0")[:-1] for each in heards] == expected


def _windows(path: Path) -> str:
    return "Z:" + str(path).replace("/", "\\")


@hypothesis_settings(deadline=None)
@given(path=st.one_of(PATHS, st.sampled_from(NASTY)))
def test_a_batch_file_is_sound_or_refused(path: str) -> None:
    asked = settings(path, "-c", "8192")
    try:
        text = cmd.write(asked, None).text
    except UsageError:
        assert re.search(r"[\x00-\x1f\x7f\x85\u2028\u2029]", path)
        return
    assert not _parsed(tree_sitter_batch, re.sub(r"[^\x00-\x7f]", "x", text)).has_error or (
        set(path) & set('%^!"<>|&()')
    )
    command = text.split("written by kvwise\n")[1].split(" ^\n  %*")[0].replace(" ^\n  ", " ")
    line = _batch_phase(command)
    assert mslex.split(line, like_cmd=False, check=False) == ["llama-server", *argv(asked)]


def _batch_phase(command: str) -> str:
    """What a program is given by cmd: `%%` is `%`, outside quotes `^` is dropped before a char."""
    out, quoted, at = [], False, 0
    command = command.replace("%%", "%")
    while at < len(command):
        char = command[at]
        at += 1
        if char == "^" and not quoted:
            char = command[at : at + 1]
            at += 1
        elif char == '"':
            quoted = not quoted
        out.append(char)
    return "".join(out)


@hypothesis_settings(deadline=None)
@given(path=st.one_of(PATHS, st.sampled_from(NASTY)))
def test_powershell_reads_every_word(path: str) -> None:
    asked = settings(path, "-c", "8192", "-ot", "blk\\.(1|2)=CPU")
    text = powershell.write(asked, None).text
    root = _parsed(tree_sitter_powershell, text)
    assert not root.has_error
    commands = _all(root, "command")
    assert len(commands) == 1
    assert [_word(each) for each in _arguments(commands[0])] == [*argv(asked), "@args"]


def _parsed(language: object, text: str) -> Node:
    parser = Parser(Language(language.language()))  # type: ignore[attr-defined]
    return parser.parse(text.encode()).root_node


def _all(node: Node, kind: str) -> list[Node]:
    found = [node] if node.type == kind else []
    return found + [each for child in node.children for each in _all(child, kind)]


def _arguments(command: Node) -> list[Node]:
    elements = next(each for each in command.children if each.type == "command_elements")
    return [each for each in elements.children if each.type != "command_argument_sep"]


def _word(node: Node) -> str:
    text = (node.text or b"").decode()
    if text.startswith("'"):
        inner = text[1:-1]
        return re.sub("(['\u2018\u2019\u201a\u201b])\\1", r"\1", inner)
    return text


def test_windows_powershell_needs_the_mark() -> None:
    assert powershell.ENCODING == "utf-8-sig"


def test_a_script_is_changed_only_where_it_is_ours() -> None:
    old = bash.write(settings("/a.gguf", "-c", "4096"), None).text
    edited = old.replace("#!/bin/sh\n", "#!/bin/sh\n# mine\nexport CUDA_VISIBLE_DEVICES=1\n")
    new = bash.write(settings("/a.gguf", "-c", "8192"), edited).text
    assert new == edited.replace("4096", "8192").replace("4,096", "8,192")
    for foreign in ("#!/bin/sh\nllama-server -c 1\n", old.replace("kvwise m", "kvwise other")):
        with pytest.raises(SourceError):
            bash.write(settings("/a.gguf"), foreign)


def test_a_command_beyond_cmds_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="at most 8,191"):
        cmd.write(settings("/" + "x" * 9000), None)
