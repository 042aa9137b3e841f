"""hf: names against a Hub that runs here, and against a cache folder without any network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gguf_server import Handler, Site, serving
from kvwise.errors import KvwiseError, SourceError, UsageError
from kvwise.gguf.hub import page_to_file, path_in_repo, pick
from kvwise.gguf.open import open_header
from kvwise.gguf.source import SourceMissing
from kvwise.gguf.split import shard_name
from kvwise.gguf.writer import Entry, Row, encode

REPO = "someone/Some-Model-GGUF"
REVISION = "abc123"


def small(name: str, **numbers: int) -> bytes:
    entries = [
        Entry("general.architecture", "string", "llama"),
        Entry("general.name", "string", name),
    ]
    entries += [Entry(f"split.{key}", "uint16", value) for key, value in numbers.items()]
    head = encode(entries, [Row(f"t{numbers.get('no', 0)}", (8,), 0, 0)])
    return head + bytes(-len(head) % 32 + 32)


FILES = [
    "README.md", "mmproj-F16.gguf", "Some-Model-Q2_K.gguf", "Some-Model-Q8_0.gguf",
    "Some-Model-IQ4_XS.gguf", "Some-Model-Q4_K_M.gguf", "mtp-Some-Model-Q4_K_M.gguf",
]  # fmt: skip


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    """A Hub with one repository, gated or absent ones, and a store behind redirects."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HF_TOKEN", "HF_HUB_OFFLINE",
                 "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    site = Site({f"/store/{name}": small(name) for name in FILES})

    def behave(handler: Handler) -> bool:
        path = handler.path.partition("?")[0]
        if path.startswith(f"/api/models/{REPO}"):
            names = [key.removeprefix("/store/") for key in site.files]
            siblings = [{"rfilename": name} for name in names]
            handler.json({"id": REPO, "sha": REVISION, "siblings": siblings})
        elif path.startswith("/api/models/someone/gated"):
            handler.answer(403, b"{}", **{"X-Error-Code": "GatedRepo"})
        elif path.startswith("/api/models/someone/busy"):
            handler.answer(500, b"{}")
        elif path.startswith("/api/"):
            handler.answer(404, b"{}", **{"X-Error-Code": "RepoNotFound"})
        elif path.startswith(f"/{REPO}/resolve/main/"):
            handler.answer(302, b"", Location=path.replace(f"/{REPO}/resolve/main/", "/store/"))
        else:
            return False
        return True

    site.behave = behave
    with serving(site):
        monkeypatch.setenv("HF_ENDPOINT", site.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield site


def opened(name: str) -> str:
    value = open_header(f"hf:{name}").metadata["general.name"]
    assert isinstance(value, str)
    return value


def failing(name: str, kind: type[KvwiseError]) -> KvwiseError:
    with pytest.raises(kind) as caught:
        open_header(f"hf:{name}")
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("wanted", "file"),
    [
        ("", "Some-Model-Q4_K_M.gguf"), (":Q8_0", "Some-Model-Q8_0.gguf"),
        (":q2_k", "Some-Model-Q2_K.gguf"), (":iq4_xs", "Some-Model-IQ4_XS.gguf"),
        (":mmproj-F16.gguf", "mmproj-F16.gguf"),
    ],
)  # fmt: skip
def test_a_quant_or_a_file_of_a_repository(wanted: str, file: str, hub: Site) -> None:
    assert opened(REPO + wanted) == file


def test_the_endpoint_and_the_token_are_the_users(
    hub: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    opened(f"{REPO}:Q8_0")
    resolved = [request for request in hub.asked if "/resolve/" in request.path]
    assert resolved
    assert resolved[0].headers["authorization"] == "Bearer hf_of_the_user"


def test_a_quant_that_is_not_there_names_what_is(hub: Site) -> None:
    error = failing(f"{REPO}:Q5_K_M", SourceMissing)
    assert "Q5_K_M" in str(error)
    assert "Some-Model-Q8_0.gguf" in str(error.hint)


def test_failures_of_the_hub(hub: Site) -> None:
    failing("someone/absent", SourceMissing)
    assert "HF_TOKEN" in str(failing("someone/gated", SourceError).hint)
    failing("someone/busy", SourceError)
    assert "GGUF" in str(failing(f"{REPO}:absent.gguf", SourceMissing))


@pytest.mark.parametrize(
    "name", ["", "one", "a/b/c", "../x/y", "a/..", "-a/b", "a b/c", "a/b\n", "/"]
)
def test_what_is_no_repository(name: str) -> None:
    failing(name, UsageError)


def test_a_split_model_of_the_hub(hub: Site) -> None:
    for index in range(3):
        name = "UD/" + shard_name("Big-Q6_K", index, 3)
        hub.files[f"/store/{name}"] = small(name, no=index, count=3)
    header = open_header(f"hf:{REPO}:Q6_K")
    assert [row.name for row in header.tensors] == ["t0", "t1", "t2"]


def test_a_header_read_once_is_there_offline(hub: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{REPO}:Some-Model-Q8_0.gguf"
    assert opened(name) == "Some-Model-Q8_0.gguf"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = len(hub.asked)
    assert opened(name) == "Some-Model-Q8_0.gguf"
    assert len(hub.asked) == asked
    assert "HF_HUB_OFFLINE" in str(failing(f"{REPO}:Some-Model-Q2_K.gguf", SourceMissing))


def _cache(root: Path, files: list[str], revision: str = REVISION) -> None:
    folder = root / "hub" / f"models--{REPO.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    for name in files:
        path = folder / "snapshots" / revision / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(small(name))


def test_the_hubs_own_cache_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    failing(REPO, SourceMissing)
    _cache(tmp_path, [*FILES, "sub/Other-Q6_K.gguf"])
    assert opened(REPO) == "Some-Model-Q4_K_M.gguf"
    assert opened(f"{REPO}:Q6_K") == "sub/Other-Q6_K.gguf"
    failing(f"{REPO}:Q3_K", SourceMissing)


def test_what_was_downloaded_is_read_on_this_machine(hub: Site, tmp_path: Path) -> None:
    _cache(tmp_path / "hf", ["Some-Model-Q8_0.gguf"])
    header = open_header(f"hf:{REPO}:Q8_0")
    assert header.path.startswith(str(tmp_path))
    assert open_header(f"hf:{REPO}:Q2_K").path.startswith(hub.url)


def test_names_of_a_hostile_hub_do_not_lead_out_of_the_cache(hub: Site, tmp_path: Path) -> None:
    _cache(tmp_path / "hf", FILES)
    (tmp_path / "hf" / "secret-Q3_K.gguf").write_bytes(small("secret"))
    secret = str(tmp_path / "hf" / "secret-Q3_K.gguf")
    for name in ("../../../../secret-Q3_K.gguf", secret, "a\\..\\secret-Q3_K.gguf"):
        hub.files = {f"/store/{name}": b""}
        failing(f"{REPO}:Q3_K", SourceMissing)


def test_an_older_download_is_not_taken_for_the_present_one(hub: Site, tmp_path: Path) -> None:
    _cache(tmp_path / "hf", ["Some-Model-Q8_0.gguf"], revision="older")
    assert open_header(f"hf:{REPO}:Q8_0").path.startswith(hub.url)


def test_without_a_network_the_download_is_used(
    hub: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Site()) as gone:
        monkeypatch.setenv("HF_ENDPOINT", gone.url)
    failing(REPO, SourceError)
    _cache(tmp_path / "hf", FILES)
    assert opened(REPO) == "Some-Model-Q4_K_M.gguf"


def test_a_cache_that_points_elsewhere_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    _cache(tmp_path, [], revision="abc")
    ref = tmp_path / "hub" / f"models--{REPO.replace('/', '--')}" / "refs" / "main"
    for bad in ("../../..", "..", "", "a/b", "x\0y", "n" * 500):
        ref.write_text(bad)
        failing(REPO, SourceMissing)


def test_pick_follows_llama_cpp() -> None:
    assert pick(["a-Q8_0.gguf", "a-F16.gguf"], "", "r") == "a-Q8_0.gguf"
    assert pick(["x.txt", "a-F16.gguf", "b.gguf"], "", "r") == "a-F16.gguf"
    first, second = (shard_name("a-Q4_K_M", index, 2) for index in range(2))
    assert pick([second, first], "q4_k_m", "r") == first
    assert pick(["Q4_K_M/a.gguf", "a-Q4_K_M.gguf"], "", "r") == "a-Q4_K_M.gguf"
    with pytest.raises(SourceMissing):
        pick(["mmproj-Q8_0.gguf"], "", "r")
    with pytest.raises(SourceMissing):
        pick(["a-Q4_K_M.gguf"], "(", "r")  # a name is not a pattern


SIDE = [
    "Q8_0/Some-Model-Q8_0.gguf", "Some-Model-Q4_K_M.gguf", "eagle3-Some-Model-BF16.gguf",
    "eagle3-Some-Model-Q8_0.gguf", "eagle3-Some-Model-Q4_0.gguf", "Q8_0/eagle3-deep-F16.gguf",
    "elsewhere/dspark-Some-Model-Q4_K_M.gguf", "dflash-Some-Model-00001-of-00002.gguf",
]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "sidecars", "file"),
    [
        ("", (), "Some-Model-Q4_K_M.gguf"),
        ("", ("eagle3-",), "eagle3-Some-Model-Q4_0.gguf"),  # nearest to the model's four bits
        ("BF16", ("eagle3-",), "eagle3-Some-Model-BF16.gguf"),  # without a model of that quant
        ("Q8_0", ("eagle3-",), "Q8_0/eagle3-deep-F16.gguf"),  # beside it goes before above it
        ("Q4_K_M", ("eagle3-",), "eagle3-Some-Model-Q4_0.gguf"),
        ("q6_k", ("eagle3-",), "eagle3-Some-Model-Q8_0.gguf"),  # of equal distance the first
        ("", ("dspark-", "eagle3-"), "eagle3-Some-Model-Q4_0.gguf"),  # not in another folder
        ("", ("dflash-", "eagle3-"), "dflash-Some-Model-00001-of-00002.gguf"),
        ("", ("mtp-",), "Some-Model-Q4_K_M.gguf"),
        ("eagle3-Some-Model-Q8_0.gguf", ("dflash-",), "eagle3-Some-Model-Q8_0.gguf"),
    ],
)
def test_files_beside_a_model_follow_llama_cpp(
    wanted: str, sidecars: tuple[str, ...], file: str
) -> None:
    assert pick(SIDE, wanted, "r", sidecars) == file


def test_neither_a_model_nor_a_file_beside_it() -> None:
    with pytest.raises(SourceMissing):
        pick(SIDE, "Q2_K", "r", ("mtp-",))


def test_the_place_in_a_repository(hub: Site, tmp_path: Path) -> None:
    name = "sub/Some-Model-Q3_K_S.gguf"
    hub.files[f"/store/{name}"] = small(name)
    assert path_in_repo(open_header(f"hf:{REPO}:{name}").path) == name
    _cache(tmp_path / "hf", [name])
    cached = open_header(f"hf:{REPO}:{name}").path
    assert cached.startswith(str(tmp_path))
    assert path_in_repo(cached) == name
    assert path_in_repo("/models/mtp-x.gguf") == ""


def test_a_page_of_the_hub_means_its_file(hub: Site) -> None:
    url, _ = page_to_file(f"{hub.url}/{REPO}/blob/main/Some-Model-Q8_0.gguf")
    assert open_header(url).metadata["general.name"] == "Some-Model-Q8_0.gguf"


def test_the_token_goes_nowhere_else(hub: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    assert page_to_file("https://example.org/a/b/blob/main/x.gguf") == (
        "https://example.org/a/b/blob/main/x.gguf", {},
    )  # fmt: skip
    assert page_to_file(f"{hub.url}.evil.example/x")[1] == {}
