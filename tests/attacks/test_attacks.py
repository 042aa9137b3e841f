"""Every attack ends in its one named error, in one line, with little memory and no hang."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import tracemalloc
from pathlib import Path
from types import ModuleType

import pytest

from kvwise.errors import KvwiseError, SourceError
from kvwise.gguf import lies
from kvwise.gguf.open import open_header
from kvwise.gguf.source import SourceMissing
from kvwise.gguf.writer import Entry, Row, encode

HERE = Path(__file__).parent
MIB = 1024 * 1024


def _make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("attacks_make", HERE / "make.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ATTACKS = _make().attacks()


def _error(path: Path, most: int = 4 * MIB) -> KvwiseError:
    """The error of opening a file, after checking the sentence and the memory it took."""
    tracemalloc.start()
    try:
        with pytest.raises(KvwiseError) as caught:
            open_header(str(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    sentence = str(caught.value)
    assert sentence
    assert "\n" not in sentence
    assert sentence.isprintable()
    assert len(sentence) < 400 + len(str(path))
    assert peak < most
    return caught.value


@pytest.mark.parametrize("name", ATTACKS)
def test_each_lie_has_its_error(name: str) -> None:
    error = _error(HERE / name)
    assert type(error).__name__ == ATTACKS[name][0], str(error)


def test_the_committed_files_are_the_ones_the_script_makes() -> None:
    assert {path.name for path in HERE.glob("*.gguf")} == set(ATTACKS)
    for name, (_, data) in ATTACKS.items():
        assert (HERE / name).read_bytes() == data, name


def test_every_class_of_lie_is_provoked() -> None:
    classes = {
        name for name, value in vars(lies).items()
        if isinstance(value, type) and issubclass(value, lies.HeaderError)
    } - {"HeaderError"}  # fmt: skip
    # StringTooLong and HeaderTooLarge need sparse files (below), BadZoo is tests/gguf/test_zoo.py
    assert classes - {error for error, _ in ATTACKS.values()} == {
        "StringTooLong", "HeaderTooLarge", "BadZoo",
    }  # fmt: skip


def test_cut_anywhere(tmp_path: Path) -> None:
    entries = [
        Entry("general.architecture", "string", "llama"),
        Entry("general.tags", "[string]", ["a", "bc"]),
        Entry("tokenizer.ggml.tokens", "[string]", ["x"] * 70),
        Entry("llama.rope.freqs", "[float32]", [1.0] * 5),
        Entry("llama.x", "bool", True),
    ]
    head = encode(entries, [Row("a.weight", (32, 2), 0, 0), Row("b", (8,), 0, 256)])
    whole = head + bytes(-len(head) % 32) + bytes(288)
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole)
    assert len(open_header(str(path)).tensors) == 2
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(lies.HeaderError):
            open_header(str(path))


def _sparse(path: Path, start: bytes, size: int = 2**40) -> Path:
    with path.open("wb") as file:
        file.write(start)
        try:
            file.truncate(size)
        except OSError:
            pytest.skip("this file system has no file of 1 TB")
    return path


def _keys(*pairs: bytes, count: int) -> bytes:
    number = count.to_bytes(8, "little")
    return b"GGUF" + (3).to_bytes(4, "little") + bytes(8) + number + b"".join(pairs)


def _pair(kind: int, rest: bytes, key: bytes = b"key") -> bytes:
    return len(key).to_bytes(8, "little") + key + kind.to_bytes(4, "little") + rest


def _size(value: int) -> bytes:
    return value.to_bytes(8, "little")


STRING, U8 = (8).to_bytes(4, "little"), (0).to_bytes(4, "little")
TERABYTE_LIES = {
    "nothing": (b"", "NotGGUF"),
    "no keys at all": (_keys(count=2**36), "TooManyKeys"),
    "empty keys": (_keys(count=60_000), "EmptyKey"),
    "a string of 512 GiB": (_keys(_pair(8, _size(2**39)), count=1), "StringTooLong"),
    "a key of 512 GiB": (_keys(_size(2**39), count=1), "KeyTooLong"),
    "2**36 empty strings": (_keys(_pair(9, STRING + _size(2**36)), count=1), "ArrayTooLong"),
    "an array of 512 GiB": (_keys(_pair(9, U8 + _size(2**39)), count=1), "HeaderTooLarge"),
    "many tensors": (b"GGUF" + b"\3\0\0\0" + _size(2**30) + _size(0), "TooManyTensors"),
}


@pytest.mark.parametrize("what", TERABYTE_LIES)
def test_a_sparse_terabyte(what: str, tmp_path: Path) -> None:
    start, wanted = TERABYTE_LIES[what]
    error = _error(_sparse(tmp_path / "huge.gguf", start))
    assert type(error).__name__ == wanted, str(error)


def test_empty_strings_without_end_are_walked_in_little_memory(tmp_path: Path) -> None:
    start = _keys(_pair(9, STRING + _size(2**19)), count=1)
    path = _sparse(tmp_path / "strings.gguf", start)
    tracemalloc.start()
    header = open_header(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(header.metadata["key"]) == 2**19  # type: ignore[arg-type]
    assert peak < 2 * MIB


def _ratio(head: bytes, path: Path) -> float:
    """Memory at the peak, as a multiple of the header's bytes."""
    path.write_bytes(head)
    tracemalloc.start()
    open_header(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / len(head)


def test_memory_is_a_small_multiple_of_the_header(tmp_path: Path) -> None:
    path = tmp_path / "dense.gguf"
    rows = [Row(f"{index}", (1,), 0, 32 * index) for index in range(5000)]
    head = encode([], rows)
    assert _ratio(head + bytes(-len(head) % 32 + 32 * 5000), path) < 12
    numbers = [Entry(f"{index}", "[uint16]", range(300, 4396)) for index in range(600)]
    assert _ratio(encode(numbers, []), path) < 12
    flags = [Entry(f"{index}", "uint8", 1) for index in range(60_000)]
    assert _ratio(encode(flags, []), path) < 20
    strings = [Entry(f"{index}", "[string]", [""] * 64) for index in range(3000)]
    assert _ratio(encode(strings, []), path) < 12


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFO on this platform")
def test_a_fifo_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.gguf"
    os.mkfifo(path)
    caught: list[BaseException] = []

    def read() -> None:
        try:
            open_header(str(path))
        except SourceError as error:
            caught.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for a writer"
    assert "pipe" in str(caught[0])


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_symlink_loop(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").symlink_to(tmp_path / "b.gguf")
    (tmp_path / "b.gguf").symlink_to(tmp_path / "a.gguf")
    assert "leads back to itself" in str(_error(tmp_path / "a.gguf"))


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in str(_error(tmp_path))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_a_device_without_end() -> None:
    assert "device" in str(_error(Path("/dev/zero")))


@pytest.mark.parametrize("name", ["absent.gguf", "x" * 5000, "nul\0.gguf", "absent/x.gguf"])
def test_what_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        open_header(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_a_missing_shard_is_named() -> None:
    with pytest.raises(SourceMissing, match=r"alone-00002-of-00002\.gguf"):
        open_header(str(HERE / "splits-alone-00001-of-00002.gguf"))


def test_a_file_that_shrinks_under_way(tmp_path: Path) -> None:
    """The reader believes the size that it saw when it opened the file, and then finds less."""
    from kvwise.gguf.reader import read_header
    from kvwise.gguf.source import open_file

    path = tmp_path / "shrinks.gguf"
    path.write_bytes(encode([Entry("k", "string", "v" * 400_000)], []))
    with open_file(str(path)) as source:
        os.truncate(path, 300_000)
        with pytest.raises(lies.Truncated):
            read_header(source)
