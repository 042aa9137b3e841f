"""Models in Ollama's store, read in place: a name leads to a manifest, that to a blob.

The store's layout is that of ollama v0.33 (manifest/, types/model/name.go):
manifests/HOST/NAMESPACE/MODEL/TAG is JSON whose layer of media type `...image.model` is the
GGUF blob, and whose layer `...image.params` is JSON with its parameters. Ollama changes some of its
older blobs while it loads them; here they are read as they are.
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
_NAME = re.compile(r"[a-z_]{1,40}")
_PARAMS_LAYER = "application/vnd.ollama.image.params"
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
    store, manifest = _found(name)
    return _open_blob(store, _blob(manifest, name), name)


def parameters(name: str) -> dict[str, str]:
    """What `PARAMETER` lines say of a model in the store: names and values as a Modelfile has
    them, those that are texts left out (stop words). Raises what `open_ollama` raises."""
    store, manifest = _found(name)
    found: dict[str, str] = {}
    for digest in _layers(manifest, name, _PARAMS_LAYER):
        blob = store / "blobs" / _file_of(digest, name)
        try:
            if blob.stat().st_size > _MAX_MANIFEST:
                raise SourceError("the parameters of {name} are too large", name=name)
            values = json.loads(blob.read_bytes())
            said = {key: each for key, each in values.items() if _NAME.fullmatch(key)}
        except (OSError, ValueError, RecursionError, AttributeError) as error:
            raise SourceError(
                "Ollama's parameters of {name} are damaged: {path}",
                name=name, path=str(blob), hint="pull the model again",
            ) from error  # fmt: skip
        found |= {key: json.dumps(each) for key, each in said.items() if _is_plain(each)}
    return found


def _is_plain(value: object) -> bool:
    """A number or a switch: whatever moves bytes is one."""
    return isinstance(value, int | float)


def _found(name: str) -> tuple[Path, Path]:
    """The store that has a model, and its manifest. Raises UsageError, SourceMissing."""
    parts = parse_name(name)
    places = stores()
    for store in places:
        manifest = _manifest(store / "manifests", parts)
        if manifest is not None:
            return store, manifest
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


def _layers(manifest: Path, name: str, kind: str) -> list[str]:
    """Digests of a manifest's layers of one media type. Raises SourceError."""
    try:
        if manifest.stat().st_size > _MAX_MANIFEST:
            raise SourceError("the manifest of {name} is too large", name=name)
        document = json.loads(manifest.read_bytes())
        layers = document.get("layers", [])
        return [str(row["digest"]) for row in layers if row.get("mediaType") == kind]
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise SourceError(
            "Ollama's manifest of {name} is damaged: {path}",
            name=name, path=str(manifest), hint="pull the model again",
        ) from error  # fmt: skip


def _blob(manifest: Path, name: str) -> str:
    """File name of the blob that a manifest calls the model."""
    digests = _layers(manifest, name, _MODEL_LAYER)
    if not digests:
        raise SourceError(
            "{name} is in Ollama's store without a GGUF (a cloud model, or another format)",
            name=name,
        )  # fmt: skip
    return _file_of(digests[0], name)


def _file_of(digest: str, name: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise SourceError(
            "Ollama's manifest of {name} names no blob: {digest}",
            name=name, digest=clip(digest),
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
