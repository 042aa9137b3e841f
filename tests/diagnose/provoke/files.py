"""Model files that an engine refuses, made of a real one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kvwise.gguf.header import Header
from kvwise.gguf.open import open_header
from kvwise.gguf.writer import Entry, _place, encode, twin_entries, write_twin
from kvwise.units import pad
from models import smollm2

Made = Callable[[Path], Path]
"""A folder -> the model file that was made in it."""


def _header() -> Header:
    return open_header(str(smollm2()))


def cut(size: int) -> Made:
    def model(folder: Path) -> Path:
        path = folder / "cut.gguf"
        with smollm2().open("rb") as file:
            path.write_bytes(file.read(size))
        return path

    return model


def not_gguf(folder: Path) -> Path:
    path = folder / "page.gguf"
    path.write_text("hello, this is a web page\n" * 100)
    return path


def missing(folder: Path) -> Path:
    return folder / "nothing.gguf"


def unknown(folder: Path) -> Path:
    header = _header()
    metadata = {
        key.replace("llama.", "nonesuch.", 1): value for key, value in header.metadata.items()
    }
    metadata["general.architecture"] = "nonesuch"
    path = folder / "unknown.gguf"
    write_twin(replace(header, metadata=metadata), path)
    return path


def without_tensor(folder: Path) -> Path:
    header = _header()
    kept = tuple(each for each in header.tensors if each.name != "blk.3.attn_q.weight")
    path = folder / "without.gguf"
    write_twin(replace(header, tensors=kept), path)
    return path


def first_part(folder: Path, number: int = 0) -> Path:
    """A part of a split model whose other parts are not there."""
    header = _header()
    entries = [
        *twin_entries(header),
        Entry("split.no", "uint16", number),
        Entry("split.count", "uint16", 3),
        Entry("split.tensors.count", "int32", 900),
    ]
    rows, size = _place(header)
    text = encode(entries, rows)
    path = folder / f"parts-{number + 1:05d}-of-00003.gguf"
    with path.open("wb") as file:
        file.write(text)
        file.truncate(pad(len(text), header.alignment) + size)
    return path
