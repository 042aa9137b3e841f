"""The files of a launch as an engine can open them: themselves, or twins of their headers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kvwise.engine.scratch import scratch
from kvwise.gguf.header import Header
from kvwise.gguf.model import Model
from kvwise.gguf.writer import write_twin
from kvwise.launch import Launch
from kvwise.memory.parts.companions import Companions
from kvwise.memory.parts.draft import by_its_file


@contextmanager
def on_disk(
    model: Model, launch: Launch, companions: Companions, *, twin: bool = False
) -> Iterator[tuple[Path, Launch]]:
    """The model's file, and the launch with the files of its draft and projector.

    What is no GGUF file here (zoo JSON, URL, Hub) gets a twin that is gone afterwards; `twin`
    makes one of the model in any case.
    """
    with scratch() as folder:

        def place(name: str, header: Header, *, twin: bool) -> Path:
            if not twin and is_gguf(header.path):
                return Path(header.path)
            path = folder / f"{name}.gguf"
            write_twin(header, path)
            return path

        path = place("twin", model.header, twin=twin)
        if companions.draft is not None:
            draft = place("draft", companions.draft.header, twin=twin)
            launch = _with_draft(launch, companions.draft, str(draft))
        if companions.mmproj is not None:
            mmproj = place("mmproj", companions.mmproj, twin=False)
            launch = replace(launch, mmproj=str(mmproj))
        yield path, launch


def named(model: Model, launch: Launch, companions: Companions) -> tuple[Path, Launch]:
    """The same without writing anything: `TWIN` and the like stand for what would be made."""

    def place(name: str, header: Header) -> str:
        return header.path if is_gguf(header.path) else name

    if companions.draft is not None:
        stand_in = place("DRAFT-TWIN", companions.draft.header)
        launch = _with_draft(launch, companions.draft, stand_in)
    if companions.mmproj is not None:
        launch = replace(launch, mmproj=place("MMPROJ-TWIN", companions.mmproj))
    return Path(place("TWIN", model.header)), launch


def _with_draft(launch: Launch, draft: Model, path: str) -> Launch:
    """The launch with a file for its draft, and the kind that its name in a repository says."""
    if launch.model_draft.startswith("hf:"):
        launch = by_its_file(launch, draft)
    return replace(launch, model_draft=path)


def is_gguf(path: str) -> bool:
    """Does a GGUF file lie there?"""
    try:
        with Path(path).open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False
