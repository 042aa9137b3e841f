"""http(s): only the header is fetched, and every way that a server can fail ends in one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gguf_server import Handler, Site, serving
from kvwise.errors import KvwiseError, SourceError
from kvwise.gguf import fetch, header_cache, lies, remote
from kvwise.gguf.header import Header
from kvwise.gguf.open import open_header
from kvwise.gguf.source import SourceChanged, SourceMissing
from kvwise.gguf.split import shard_name
from kvwise.gguf.writer import Entry, Row, encode

DATA = 30_000_000


def model(vocabulary: int = 200_000, data: int = DATA, name: str = "a", **extra: Any) -> bytes:
    """A model with a header of some megabytes and much more data."""
    entries = [
        Entry("general.architecture", "string", "llama"),
        Entry("tokenizer.ggml.tokens", "[string]", [f"tok{index}" for index in range(vocabulary)]),
        Entry("tokenizer.ggml.scores", "[float32]", [0.0] * vocabulary),
        *(Entry(key, "uint16", value) for key, value in extra.items()),
    ]
    head = encode(entries, [Row(name, (data // 4,), 0, 0)])
    return head + bytes(-len(head) % 32) + bytes(data)


MODEL = model()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    with serving(Site({"/m.gguf": MODEL})) as running:
        yield running


def opened(site: Site, path: str = "/m.gguf") -> Header:
    return open_header(site.url + path)


def failing(site: Site, kind: type[KvwiseError], path: str = "/m.gguf") -> KvwiseError:
    with pytest.raises(kind) as caught:
        opened(site, path)
    assert "\n" not in str(caught.value)
    return caught.value


def local(tmp_path: Path) -> Header:
    path = tmp_path / "m.gguf"
    path.write_bytes(MODEL)
    return open_header(str(path))


def same(one: Header, two: Header) -> bool:
    return (one.metadata, one.tensors, one.data_offset) == (
        two.metadata,
        two.tensors,
        two.data_offset,
    )


def test_only_the_header_is_fetched(site: Site, tmp_path: Path) -> None:
    header = opened(site)
    assert same(header, local(tmp_path))
    assert header.data_offset > 3 * remote.FIRST_WINDOW
    assert site.sent <= 3 * header.data_offset < DATA / 2
    windows = [request.sent for request in site.asked]
    assert windows == sorted(windows)


def test_a_small_header_is_one_request(site: Site) -> None:
    site.files["/s.gguf"] = model(10)
    opened(site, "/s.gguf")
    assert [request.sent for request in site.asked] == [remote.FIRST_WINDOW]


def test_the_second_time_nothing_is_fetched(site: Site, tmp_path: Path) -> None:
    first = opened(site)
    asked, sent = len(site.asked), site.sent
    assert same(opened(site), first)
    assert (len(site.asked), site.sent) == (asked + 1, sent)


def test_a_server_that_ignores_if_none_match_is_not_read_twice(site: Site) -> None:
    opened(site)
    sent = site.sent

    def behave(handler: Handler) -> bool:
        handler.record.headers.pop("if-none-match", None)
        return False

    site.behave = behave
    opened(site)
    assert site.sent <= sent + remote.FIRST_WINDOW


def test_another_etag_is_fetched_again(site: Site) -> None:
    opened(site)
    site.files["/m.gguf"], site.etag = model(7), '"two"'
    assert len(opened(site).metadata["tokenizer.ggml.tokens"]) == 7  # type: ignore[arg-type]


def test_a_server_without_etag_is_never_cached(site: Site) -> None:
    site.etag = ""
    opened(site)
    sent = site.sent
    opened(site)
    assert site.sent == 2 * sent


@pytest.mark.parametrize("damage", [b"", b"{}", b"{}\n", b'{"etag":1}\nabc', b"\xff\xff\n"])
def test_a_damaged_cache_counts_as_none(damage: bytes, site: Site) -> None:
    first = opened(site)
    place = header_cache._place(f"{site.url}/m.gguf")
    kept = place.read_bytes()
    place.write_bytes(damage)
    assert same(opened(site), first)
    place.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    assert same(opened(site), first)


def test_a_cache_that_cannot_be_written_is_done_without(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVWISE_HOME", str(tmp_path / "file" / "home"))
    assert opened(site).architecture == "llama"


def test_a_server_without_ranges_is_read_until_the_header_ends(site: Site) -> None:
    site.ranges = False
    header = opened(site)
    assert header.architecture == "llama"
    assert len(site.asked) == 1
    assert site.sent < DATA / 2
    opened(site)
    assert len(site.asked) == 2


def test_without_ranges_a_cut_is_final(site: Site) -> None:
    def behave(handler: Handler) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(MODEL)))
        handler.end_headers()
        handler.body(MODEL[:2_000_000])
        handler.cut()
        return True

    site.behave = behave
    assert "connection broke" in str(failing(site, SourceError))


def test_a_cut_range_goes_on_from_where_it_ended(site: Site, tmp_path: Path) -> None:
    def behave(handler: Handler) -> bool:
        start, end = handler.range(len(MODEL))
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {start}-{end}/{len(MODEL)}")
        handler.send_header("Content-Length", str(end + 1 - start))
        handler.send_header("ETag", site.etag)
        handler.end_headers()
        handler.body(MODEL[start : min(end + 1, start + 700_000)])
        handler.cut()
        return True

    site.behave = behave
    assert same(opened(site), local(tmp_path))


def test_a_connection_that_always_breaks_at_once(site: Site) -> None:
    def behave(handler: Handler) -> bool:
        handler.cut()
        return True

    site.behave = behave
    assert "cannot reach" in str(failing(site, SourceError))
    assert len(site.asked) == fetch.ATTEMPTS


def test_bodies_that_never_come(site: Site) -> None:
    def behave(handler: Handler) -> bool:
        start, end = handler.range(len(MODEL))
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {start}-{end}/{len(MODEL)}")
        handler.send_header("Content-Length", str(end + 1 - start))
        handler.end_headers()
        handler.cut()
        return True

    site.behave = behave
    assert "connection broke" in str(failing(site, SourceError))


@pytest.mark.parametrize("change", ["etag", "size", "shorter"])
def test_a_file_that_changes_under_way(change: str, site: Site) -> None:
    def behave(handler: Handler) -> bool:
        if len(site.asked) == 2:
            if change == "etag":
                site.etag = '"two"'
            elif change == "size":
                site.files["/m.gguf"] = MODEL + b"x"
            else:
                site.files["/m.gguf"] = MODEL[:1000]
        return False

    site.behave = behave
    failing(site, SourceChanged)


def test_ranges_that_stop_to_work(site: Site) -> None:
    def behave(handler: Handler) -> bool:
        site.ranges = len(site.asked) == 1
        return False

    site.behave = behave
    assert "range" in str(failing(site, SourceError))


@pytest.mark.parametrize("told", ["bytes 5-10/100", "bytes 0-10/*", "bytes 0-10/0", "", "junk"])
def test_another_range_than_asked_for(told: str, site: Site) -> None:
    def behave(handler: Handler) -> bool:
        handler.answer(206, b"GGUF", **{"Content-Range": told})
        return True

    site.behave = behave
    failing(site, SourceError)


def test_more_bytes_than_asked_for_are_not_taken(site: Site) -> None:
    def behave(handler: Handler) -> bool:
        extra = {"Content-Range": f"bytes 0-9/{len(MODEL)}"}
        handler.answer(206, MODEL, ETag=site.etag, **extra)
        return True

    site.behave = behave
    with pytest.raises(SourceError):
        opened(site)  # the second window starts at byte 0 again
    assert len(site.asked) == 2


def test_redirects_are_followed(site: Site, tmp_path: Path) -> None:
    def behave(handler: Handler) -> bool:
        if handler.path.startswith("/old"):
            handler.answer(302, b"", Location="/m.gguf")
            return True
        return False

    site.behave = behave
    assert same(opened(site, "/old.gguf"), local(tmp_path))


def test_redirects_in_circles(site: Site) -> None:
    def behave(handler: Handler) -> bool:
        handler.answer(302, b"", Location=handler.path)
        return True

    site.behave = behave
    assert "circles" in str(failing(site, SourceError))


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x", "http://"]
)
def test_redirects_to_elsewhere(place: str, site: Site) -> None:
    def behave(handler: Handler) -> bool:
        handler.answer(302, b"", Location=place)
        return True

    site.behave = behave
    failing(site, SourceError)


def test_a_token_is_not_carried_to_another_host(site: Site) -> None:
    with serving(Site({"/m.gguf": MODEL})) as other:

        def behave(handler: Handler) -> bool:
            handler.answer(302, b"", Location=f"{other.url}/m.gguf")
            return True

        site.behave = behave
        source = remote.HttpSource(f"{site.url}/x", headers={"Authorization": "Bearer secret"})
        source.close()
        assert "secret" in site.asked[0].headers["authorization"]
        assert "authorization" not in other.asked[0].headers


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, SourceMissing), (410, SourceMissing), (401, SourceError), (403, SourceError),
     (418, SourceError), (500, SourceError), (503, SourceError), (204, SourceError)],
)  # fmt: skip
def test_refusals(status: int, kind: type[KvwiseError], site: Site) -> None:
    def behave(handler: Handler) -> bool:
        handler.answer(status, b"" if status == 204 else b"<html>")
        return True

    site.behave = behave
    assert type(failing(site, kind)) is kind


def test_a_busy_server_is_asked_again(site: Site, tmp_path: Path) -> None:
    def behave(handler: Handler) -> bool:
        if len(site.asked) < fetch.ATTEMPTS:
            handler.answer(503, b"busy")
            return True
        return False

    site.behave = behave
    assert same(opened(site), local(tmp_path))


def test_a_web_page_is_no_model(site: Site) -> None:
    site.files["/page"] = b"<!doctype html>"
    failing(site, lies.NotGGUF, "/page")


@pytest.mark.parametrize("ranges", [True, False])
def test_an_empty_file(ranges: bool, site: Site) -> None:
    site.files["/empty"], site.ranges = b"", ranges
    failing(site, lies.EmptyFile, "/empty")


def test_a_size_that_is_not_told(site: Site) -> None:
    def behave(handler: Handler) -> bool:
        handler.send_response(200)
        handler.end_headers()
        handler.body(MODEL[:1000])
        handler.cut()
        return True

    site.behave = behave
    assert "how large" in str(failing(site, SourceError))


def test_compressed_answers_are_refused(site: Site) -> None:
    def behave(handler: Handler) -> bool:
        handler.answer(200, b"xx", **{"Content-Encoding": "gzip"})
        return True

    site.behave = behave
    failing(site, SourceError)


def test_a_server_that_trickles_is_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "WINDOW_SECONDS", -1.0)
    assert "too slow" in str(failing(site, SourceError))


def test_nobody_answers() -> None:
    with serving(Site()) as gone:
        url = gone.url
    with pytest.raises(SourceError, match="cannot reach"):
        open_header(f"{url}/m.gguf")


@pytest.mark.parametrize(
    "url", ["http://", "http:///x", "http://[::1", "https://a b/", "http://x:99999/"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(SourceError) as caught:
        open_header(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "proxy", ["socks5://127.0.0.1:1", "nonsense", "http://x:99999", "http://[::1"]
)
def test_proxy_settings_that_cannot_work(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    with pytest.raises(SourceError) as caught:
        open_header("http://model.invalid/m.gguf")
    assert "\n" not in str(caught.value)


def test_a_token_that_is_not_ascii(site: Site) -> None:
    with pytest.raises(SourceError):
        remote.HttpSource(f"{site.url}/m.gguf", headers={"Authorization": "Bearer é\n"})


def test_the_query_and_the_password_are_not_shown(site: Site) -> None:
    with pytest.raises(SourceMissing) as caught:
        open_header(site.url.replace("//", "//user:hidden@") + "/absent.gguf?signature=hidden")
    assert "hidden" not in str(caught.value)


def test_a_split_model_from_any_part(site: Site) -> None:
    for index in range(2):
        numbers = {"split.no": index, "split.count": 2}
        site.files[f"/dir/{shard_name('m', index, 2)}"] = model(9, 400, **numbers, name=f"t{index}")
    header = opened(site, f"/dir/{shard_name('m', 1, 2)}")
    assert [(row.name, row.shard) for row in header.tensors] == [("t0", 0), ("t1", 1)]
    del site.files[f"/dir/{shard_name('m', 0, 2)}"]
    site.etag = '"two"'
    error = failing(site, SourceMissing, f"/dir/{shard_name('m', 1, 2)}")
    assert shard_name("m", 0, 2) in str(error)


def test_a_header_that_claims_to_be_endless_is_not_fetched(site: Site) -> None:
    """The ceiling counts for downloads too: a string of 512 GiB in a file of 1 TiB."""
    start = b"GGUF" + (3).to_bytes(4, "little") + bytes(8) + (1).to_bytes(8, "little")
    start += (1).to_bytes(8, "little") + b"k" + (8).to_bytes(4, "little")
    start += (2**39).to_bytes(8, "little")

    def behave(handler: Handler) -> bool:
        window = start.ljust(remote.FIRST_WINDOW, b"\0")
        told = {"Content-Range": f"bytes 0-{len(window) - 1}/{2**40}"}
        handler.answer(206, window, **told)
        return True

    site.behave = behave
    failing(site, lies.StringTooLong)
    assert len(site.asked) == 1
