"""ollama: names against a store made here."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from kvwise.errors import KvwiseError, SourceError, UsageError
from kvwise.gguf.ollama import parameters, parse_name
from kvwise.gguf.open import open_header
from kvwise.gguf.source import SourceMissing
from kvwise.gguf.writer import Entry, encode

OWN = "registry.example"
MODEL = "application/vnd.ollama.image.model"


class Store:
    """Ollama's folder of models, with what a test puts into it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, name: str, words: str, kind: str = MODEL) -> Path:
        """A model whose general.name is `words` under manifests/`name`; returns the blob."""
        data = encode([Entry("general.name", "string", words)], [])
        digest = hashlib.sha256(data).hexdigest()
        blob = self.root / "blobs" / f"sha256-{digest}"
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        other = {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:0"}
        self.manifest(
            name, {"layers": [other, {"mediaType": kind, "digest": f"sha256:{digest}", "size": 1}]}
        )
        return blob

    def manifest(self, name: str, document: object) -> Path:
        path = self.root / "manifests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "models"))
    return Store(tmp_path / "models")


def opened(name: str) -> object:
    return open_header(f"ollama:{name}").metadata["general.name"]


def failing(name: str, kind: type[KvwiseError]) -> str:
    with pytest.raises(kind) as caught:
        open_header(f"ollama:{name}")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_names_lead_to_blobs_in_place(store: Store) -> None:
    blob = store.add(f"{OWN}/library/llama3.2/latest", "newest")
    store.add(f"{OWN}/library/llama3.2/1b-q8_0", "small")
    store.add(f"{OWN}/someone/tuned/latest", "tuned")
    store.add("hf.co/owner/Some-Repo-GGUF/Q4_K_M", "from a hub")
    assert opened("llama3.2") == opened("llama3.2:latest") == opened("library/llama3.2") == "newest"
    assert opened("LLAMA3.2:1B-Q8_0") == "small"
    assert opened("someone/tuned") == opened(f"{OWN}/someone/tuned:latest") == "tuned"
    assert opened("hf.co/owner/some-repo-gguf:q4_k_m") == "from a hub"
    assert open_header("ollama:llama3.2").path == str(blob)


def test_ollamas_own_registry_comes_before_others(store: Store) -> None:
    store.add("another.example/library/x/latest", "other")
    store.add(f"{OWN}/library/x/latest", "own")
    assert opened("x") == "own"
    assert opened("another.example/library/x") == "other"


def test_the_exact_case_comes_first(store: Store) -> None:
    store.add(f"{OWN}/library/Model/latest", "upper")
    store.add(f"{OWN}/library/model/latest", "lower")
    assert (opened("Model"), opened("model")) == ("upper", "lower")


def test_a_registry_with_a_port(store: Store) -> None:
    store.add("localhost:5000/a/b/latest", "port")
    assert opened("localhost:5000/a/b") == "port"


def test_the_default_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    Store(tmp_path / ".ollama" / "models").add(f"{OWN}/library/x/latest", "home")
    assert opened("x") == "home"


def test_what_is_not_there(store: Store) -> None:
    assert str(store.root) in failing("absent", SourceMissing)
    blob = store.add(f"{OWN}/library/x/latest", "gone")
    failing("x:other", SourceMissing)
    blob.unlink()
    assert "blob" in failing("x", SourceMissing)


@pytest.mark.parametrize(
    "name",
    ["", ":", "x:", "..", "../../etc/passwd", "a/../b", "a/b/c/d", "x:..", "a b", "x\n", "x:y\n"],
)
def test_what_is_no_name(name: str, store: Store) -> None:
    failing(name, UsageError)


def test_names_are_parsed_as_ollama_does() -> None:
    assert parse_name("x") == (None, "library", "x", "latest")
    assert parse_name("h:1/n/x") == ("h:1", "n", "x", "latest")
    assert parse_name("h:1/n/x:t") == ("h:1", "n", "x", "t")


@pytest.mark.parametrize(
    "document",
    ["", "{", "[]", "1", "null", '{"layers": 3}', '{"layers": [1]}', '{"layers": [{}]}',
     "[" * 100_000,
     json.dumps({"layers": [{"mediaType": MODEL}]}),
     json.dumps({"layers": [{"mediaType": MODEL, "digest": 7}]}),
     json.dumps({"layers": [{"mediaType": MODEL, "digest": "sha256:../../../etc/passwd"}]}),
     json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.tensor", "digest": "x"}]})],
)  # fmt: skip
def test_damaged_manifests(document: str, store: Store) -> None:
    store.manifest(f"{OWN}/library/x/latest", document)
    failing("x", SourceError)


def test_a_manifest_that_is_a_folder(store: Store) -> None:
    (store.root / "manifests" / OWN / "library" / "x" / "latest").mkdir(parents=True)
    failing("x", SourceMissing)


def test_parameters_are_those_of_the_store(store: Store) -> None:
    said = {"num_ctx": 4096, "use_mmap": False, "temperature": 0.5, "stop": ["a"], "x\ny": 1}
    data = json.dumps(said).encode()
    digest = hashlib.sha256(data).hexdigest()
    store.add(f"{OWN}/library/plain/latest", "m")
    (store.root / "blobs" / f"sha256-{digest}").write_bytes(data)
    kind = "application/vnd.ollama.image.params"
    rows = {"layers": [{"mediaType": kind, "digest": f"sha256:{digest}"}]}
    store.manifest(f"{OWN}/library/set/latest", rows)
    assert parameters("set") == {"num_ctx": "4096", "use_mmap": "false", "temperature": "0.5"}
    assert parameters("plain") == {}
    with pytest.raises(SourceMissing):
        parameters("none")
    (store.root / "blobs" / f"sha256-{digest}").write_bytes(b"[1")
    with pytest.raises(SourceError, match="damaged"):
        parameters("set")
