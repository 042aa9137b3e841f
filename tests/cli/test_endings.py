"""How runs end: interrupted, with nowhere to write, with a bug; never with a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvwise.cli import _main
from kvwise.errors import DoesNotFit, Interrupted, KvwiseError, Refused, UsageError

from .conftest import QWEN, Kvwise

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals and /dev are POSIX")


def test_control_c_is_exit_130() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kvwise", "size", QWEN, "--configs", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write('{"n_ctx": 512}\n')
    process.stdin.flush()
    assert process.stdout.readline().startswith('{"schema": "kvwise/ledger/1"')  # at once
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "error: stopped\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", ">/dev/full"])
@pytest.mark.parametrize("words", ["", "--json", "--bogus"])
def test_nowhere_to_write(closed: str, words: str) -> None:
    command = f"{sys.executable} -m kvwise size {QWEN} --cpu-only {words} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    expected = 2 if words == "--bogus" else 1 if "full" in closed else 0
    assert done.returncode == expected
    if "full" in closed:  # whatever was to go there, it is said beside it
        assert done.stderr.startswith("error: ")
        assert ("No space left" in done.stderr) == (words != "--bogus")


@pytest.mark.parametrize("words", [("results", "list"), ("results", "import", "x")])
def test_a_home_that_cannot_be_used_is_one_line_with_a_hint(
    quick: Kvwise, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path / "file"))
    done = quick(*words)
    assert done.code == 1
    first, hint = done.err.splitlines()
    assert "file/data" in first
    assert hint.startswith("hint: set KVWISE_HOME")


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            lambda home: OSError(30, "Read-only file system", str(home / "cache/engines")),
            "KVWISE_HOME",
        ),
        (lambda home: OSError(20, "Not a directory", str(home)), "KVWISE_HOME"),
        (lambda home: OSError(28, "No space left on device", str(home / "data/x")), "make room"),
        (lambda home: OSError(13, "Permission denied", str(home.parent / "theirs/x")), ""),
    ],
)
def test_a_folder_of_ours_that_cannot_be_used_has_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Callable[[Path], OSError], hint: str
) -> None:
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path / "home"))
    known = _main.as_kvwise_error(error(tmp_path / "home"))
    assert (hint in str(known.hint)) if hint else known.hint is None


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (KeyError("x"), KvwiseError, 1),
        (MemoryError(), KvwiseError, 1),
        (OSError(28, "No space left on device"), KvwiseError, 1),
        (PermissionError(13, "Permission denied", "/x"), KvwiseError, 1),
        (UsageError("a"), UsageError, 2),
        (DoesNotFit("a"), DoesNotFit, 3),
        (Refused("other_model", "a"), Refused, 3),
        (Interrupted("a"), Interrupted, 130),
    ],
)
def test_every_failure_has_a_sentence_and_a_code(
    error: Exception, kind: type[KvwiseError], code: int
) -> None:
    known = _main.as_kvwise_error(error)
    assert type(known) is kind
    assert known.exit_code == code
    assert str(known)


def test_a_bug_is_one_line_unless_debug(quick: Kvwise, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise KeyError("lost")

    monkeypatch.setattr(_main, "_run_command", broken)
    done = quick("size")
    assert done.code == 1
    assert done.err.startswith("error: kvwise itself failed: KeyError: 'lost'\nhint: ")
    with pytest.raises(KeyError):
        quick("size", "--debug")


def test_starting_is_quick_enough_to_load_nothing_heavy() -> None:
    code = (
        "import sys; from kvwise.cli._main import run; "
        f"run(['size', {QWEN!r}, '-c', '512', '--gpu', 'RTX 4060', '--json']); "
        "print([m for m in ('rich', 'httpx2', 'huggingface_hub', 'psutil', 'asyncio', 'shutil', "
        "'subprocess', 'numpy', 'xllamacpp', 'platformdirs') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
