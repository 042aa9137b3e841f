"""Models in Ollama's store, read in place: a name leads to a manifest, that to a blob.

The store's layout is that of ollama v0.33 (manifest/, types/model/name.go):
manifests/HOST/NAMESPACE/MODEL/TAG is JSON whose layer of media type `...image.model` is the
GGUF blob. Ollama changes some of its older blobs while it loads them; here they are read as they
are.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

from kvwise.errors import SourceError, UsageError
from kvwise.gguf.lies import clip
from kvwise.gguf.source import FileSource, SourceMissing, open_file

NAMESPACE: Final = "library"
TAG: Final = "latest"

_MODEL_LAYER = "application/vnd.ollama.image.model"
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(:\d{1,5})?", re.ASCII)
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_MAX_MANIFEST = 4 * 1024 * 1024


def stores() -> list[Path]:
    """Where Ollama keeps models: OLLAMA_MODELS alone if it is set, else the default folders."""
    chosen = os.environ.get("OLLAMA_MODELS")
    if chosen:
        return [Path(chosen)]
    service = Path("/usr/share/ollama/.ollama/models")  # where the Linux service's user lives
    # Not Path.home(), which raises where nobody has a home.
    home = Path(os.path.expanduser("~"))  # noqa: PTH111
    return [home / ".ollama" / "models", service]


def open_ollama(name: str) -> FileSource:
    """The GGUF blob of `[host/][namespace/]model[:tag]`.

    Raises UsageError for what is no name, SourceMissing when no store has it, SourceError when
    the store's entry is damaged or holds no GGUF.
    """
    parts = parse_name(name)
    places = stores()
    for store in places:
        manifest = _manifest(store / "manifests", parts)
        if manifest is not None:
            return _open_blob(store, _blob(manifest, name), name)
    raise SourceMissing(
        "Ollama has no model {name} in {stores}",
        name=name, stores=", ".join(str(store) for store in places),
        hint="see `ollama list`; OLLAMA_MODELS names the store if it is elsewhere",
    )  # fmt: skip


def parse_name(name: str) -> tuple[str | None, str, str, str]:
    """Host (None: any), namespace, model, tag: none leads out of the store. Raises UsageError."""
    path, _, tag = name.rpartition(":")
    if not path or "/" in tag:  # the colon, if any, belongs to a port
        path, tag = name, TAG
    parts = path.split("/")
    if len(parts) == 1:
        parts = [NAMESPACE, *parts]
    if len(parts) not in {2, 3} or not all(map(_PART.fullmatch, [*parts, tag])):
        raise UsageError(
            "{name!r} is not a model name of Ollama",
            name=clip(name), hint="write ollama:llama3.2 or ollama:llama3.2:3b",
        )  # fmt: skip
    return (parts[0] if len(parts) == 3 else None), parts[-2], parts[-1], tag


def _manifest(root: Path, parts: tuple[str | None, str, str, str]) -> Path | None:
    """The manifest of a name; without a host, Ollama's own registry comes before others."""
    host, *rest = parts
    hosts = _children(root)
    if host is None:
        hosts.sort(key=lambda folder: (not folder.name.startswith("registry."), folder.name))
    else:
        hosts = _named(hosts, host)
    for folder in hosts:
        found: list[Path] = [folder]
        for part in rest:
            found = [match for place in found for match in _named(_children(place), part)]
        for path in found:
            if path.is_file():
                return path
    return None


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _named(paths: list[Path], name: str) -> list[Path]:
    """Those of a name; Ollama compares without case, an exact match comes first."""
    same = [path for path in paths if path.name.lower() == name.lower()]
    return sorted(same, key=lambda path: path.name != name)


def _blob(manifest: Path, name: str) -> str:
    """File name of the blob that a manifest calls the model."""
    try:
        if manifest.stat().st_size > _MAX_MANIFEST:
            raise SourceError("the manifest of {name} is too large", name=name)
        document = json.loads(manifest.read_bytes())
        layers = document.get("layers", [])
        digests = [row["digest"] for row in layers if row.get("mediaType") == _MODEL_LAYER]
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise SourceError(
            "Ollama's manifest of {name} is damaged: {path}",
            name=name, path=str(manifest), hint="pull the model again",
        ) from error  # fmt: skip
    if not digests:
        raise SourceError(
            "{name} is in Ollama's store without a GGUF (a cloud model, or another format)",
            name=name,
        )  # fmt: skip
    match = _DIGEST.fullmatch(str(digests[0]))
    if match is None:
        raise SourceError(
            "Ollama's manifest of {name} names no blob: {digest}",
            name=name, digest=clip(str(digests[0])),
        )  # fmt: skip
    return f"sha256-{match[1]}"


def _open_blob(store: Path, blob: str, name: str) -> FileSource:
    try:
        return open_file(str(store / "blobs" / blob))
    except SourceMissing as error:
        raise SourceMissing(
            "Ollama knows {name}, and its blob {blob} is not there",
            name=name, blob=blob[:19], hint="pull the model again",
        ) from error  # fmt: skip
