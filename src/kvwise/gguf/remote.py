"""http(s) as a source: only the header is fetched, in windows that grow.

A server that ignores ranges is read as a stream that is closed once the header is through. What
was fetched is kept in the cache folder and used again while the server gives the same ETag.
Imports the HTTP library; `open.py` imports this module only for a URL.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

import httpx2

from kvwise.errors import SourceError
from kvwise.gguf import header_cache
from kvwise.gguf.cursor import MAX_HEADER
from kvwise.gguf.lies import EmptyFile, clip, plain
from kvwise.gguf.source import SourceChanged, SourceMissing
from kvwise.text import Phrase, phrase

FIRST_WINDOW: Final = 1024 * 1024
LARGEST_WINDOW: Final = 8 * 1024 * 1024
ATTEMPTS: Final = 3
"""Tries without a single new byte before a connection counts as broken."""

WINDOW_SECONDS: Final = 120.0
"""One window may take this long: a server that trickles bytes does not hold us for ever."""

_TIMEOUT = httpx2.Timeout(20.0, connect=10.0)
_REDIRECTS = 10
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class _Seen:
    """What identifies the bytes: it must be the same in every answer."""

    size: int
    etag: str


class HttpSource:
    """A file behind a URL. `name` is the URL without what may be secret (query, password).

    `trust_cache` uses a kept header without asking the server (there is no network).
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        client: httpx2.Client | None = None,
        trust_cache: bool = False,
    ) -> None:
        self._url = url
        self._headers = dict(headers or {})
        self._client = client or _client()
        self._owns_client = client is None
        self.name = plain(_public(url))
        self._prefix = bytearray()
        self._saved = 0
        self._cuts = 0
        self._window = FIRST_WINDOW
        self._seen: _Seen | None = None
        self._stream: Iterator[bytes] | None = None
        self._response: httpx2.Response | None = None
        try:
            self._begin(trust_cache)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        return self._seen.size if self._seen else 0

    @property
    def etag(self) -> str:
        return self._seen.etag if self._seen else ""

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        if end > MAX_HEADER:
            raise SourceError("{name}: byte {end} is beyond any header", name=self.name, end=end)
        while len(self._prefix) < end:
            self._advance(end)
        return bytes(self._prefix[offset:end])

    def sibling(self, name: str) -> HttpSource:
        """The file beside this one: the last part of the URL's path replaced."""
        parts = urlsplit(self._url)
        folder = parts.path.rpartition("/")[0]
        url = urlunsplit(parts._replace(path=f"{folder}/{quote(name)}"))
        return HttpSource(url, headers=self._headers, client=self._client)

    def close(self) -> None:
        """End the connection; what was fetched stays in the cache for the next time."""
        if self.etag and len(self._prefix) > self._saved:
            header_cache.save(self._url, self.etag, self.size, self._prefix)
            self._saved = len(self._prefix)
        if self._response is not None:
            self._response.close()
            self._response = None
        if self._owns_client:
            self._client.close()

    def _begin(self, trust_cache: bool) -> None:
        kept = header_cache.load(self._url)
        if kept and trust_cache:
            self._use(kept)
            return
        headers = {"If-None-Match": kept.etag} if kept else {}
        response = self._ask(0, FIRST_WINDOW, headers)
        if response.status_code == 304 and kept:
            response.close()
            self._use(kept)
            return
        self._seen = self._identify(response, 0)
        if self._seen.size == 0:
            response.close()
            raise EmptyFile("{path} is empty", path=self.name)
        self._consume(response, FIRST_WINDOW)

    def _use(self, kept: header_cache.Kept) -> None:
        self._seen = _Seen(kept.size, kept.etag)
        self._prefix += kept.data
        self._saved = len(kept.data)

    def _advance(self, end: int) -> None:
        """Fetch at least one more byte, or raise; asks for a window that grows."""
        if self._stream is not None:
            self._pull(end)
            return
        self._window = min(self._window * 2, LARGEST_WINDOW)
        start = len(self._prefix)
        wanted = min(max(end - start, self._window), self.size - start, MAX_HEADER)
        response = self._ask(start, wanted)
        seen = self._identify(response, start)
        if seen != self._seen:
            response.close()
            raise SourceChanged(
                "{name} changed on the server while it was read", name=self.name, hint="try again"
            )
        self._consume(response, wanted)

    def _ask(
        self, start: int, count: int, extra: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """One answer with its body still to come. Raises SourceError in plain words."""
        headers = {
            **self._headers,
            **(extra or {}),
            "Range": f"bytes={start}-{start + count - 1}",
            "Accept-Encoding": "identity",
        }
        for attempt in range(1, ATTEMPTS + 1):
            try:
                request = self._client.build_request("GET", self._url, headers=headers)
                response = self._client.send(request, stream=True)
            except httpx2.TooManyRedirects as error:
                raise SourceError(
                    "{name} redirects in circles", name=self.name
                ) from error  # fmt: skip
            except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, ValueError) as error:
                raise SourceError(
                    "{name} is not an address to fetch: {why}", name=self.name, why=clip(str(error))
                ) from error
            except httpx2.HTTPError as error:
                if attempt == ATTEMPTS:
                    raise self._unreachable(error) from error
            else:
                if response.status_code not in _RETRIED or attempt == ATTEMPTS:
                    return self._checked(response)
                response.close()
            time.sleep(0.2 * attempt)
        raise AssertionError  # the last attempt returned or raised

    def _unreachable(self, error: httpx2.HTTPError) -> SourceError:
        why = clip(str(error)) or type(error).__name__
        return SourceError(
            "cannot reach {name}: {why}",
            name=self.name, why=why, hint="check the network and the proxy settings",
        )  # fmt: skip

    def _checked(self, response: httpx2.Response) -> httpx2.Response:
        """The answer if its status is one we can use."""
        status = response.status_code
        if status in {200, 206, 304}:
            return response
        response.close()
        if status in {404, 410}:
            raise SourceMissing(
                "there is no {name} (status {status})", name=self.name, status=status
            )
        if status in {401, 403}:
            raise SourceError(
                "{name} may not be read (status {status})",
                name=self.name, status=status, hint="set HF_TOKEN if it is a gated model",
            )  # fmt: skip
        if status == 416:
            if response.headers.get("content-range", "") == "bytes */0":
                raise EmptyFile("{path} is empty", path=self.name)
            raise SourceChanged(
                "{name} is shorter than it was when it was opened", name=self.name, hint="try again"
            )
        raise SourceError("{name}: the server answered {status}", name=self.name, status=status)

    def _identify(self, response: httpx2.Response, start: int) -> _Seen:
        """Size and ETag of the whole file; sees to it that the body starts at `start`."""
        headers = response.headers
        etag = headers.get("etag") or headers.get("last-modified") or ""
        encoding = headers.get("content-encoding", "identity")
        problem: Phrase | None = None
        size = 0
        if encoding != "identity":
            problem = phrase("sends {encoding} instead of the file", encoding=clip(encoding))
        elif response.status_code == 206:
            match = _RANGE.fullmatch(headers.get("content-range", ""))
            if match is None or int(match[1]) != start or int(match[3]) <= start:
                problem = phrase("sends another range than asked for")
            else:
                size = int(match[3])
        elif start:
            problem = phrase("stopped to answer range requests")
        elif not re.fullmatch("[0-9]{1,18}", headers.get("content-length", "")):
            problem = phrase("does not say how large the file is")
        else:
            size = int(headers["content-length"])
        if problem is not None:
            response.close()
            raise SourceError("{name}: the server {problem}", name=self.name, problem=problem)
        return _Seen(size, etag)

    def _consume(self, response: httpx2.Response, wanted: int) -> None:
        """Add the body of a range answer, or begin to read one that is the whole file."""
        if response.status_code == 200:
            self._response, self._stream = response, response.iter_raw()
            self._pull(1)
            return
        before = len(self._prefix)
        deadline = time.monotonic() + WINDOW_SECONDS
        try:
            for part in response.iter_raw():
                self._prefix += part[: wanted - (len(self._prefix) - before)]
                if len(self._prefix) - before >= wanted:
                    break
                self._check_time(deadline)
        except httpx2.HTTPError as error:
            # What arrived is good; the next window goes on from there.
            self._count_cut(before, error)
        finally:
            response.close()
        if len(self._prefix) == before:
            self._count_cut(before, None)

    def _count_cut(self, before: int, error: httpx2.HTTPError | None) -> None:
        self._cuts = 0 if len(self._prefix) > before else self._cuts + 1
        if self._cuts >= ATTEMPTS:
            raise self._cut() from error

    def _cut(self) -> SourceError:
        return SourceError(
            "{name}: the connection broke after {count} bytes",
            name=self.name, count=len(self._prefix), hint="try again",
        )  # fmt: skip

    def _check_time(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise SourceError(
                "{name}: the server is too slow ({count} bytes so far)",
                name=self.name, count=len(self._prefix), hint="try again",
            )  # fmt: skip

    def _pull(self, end: int) -> None:
        """Read on in the one stream that a server without ranges gives."""
        assert self._stream is not None  # noqa: S101
        deadline = time.monotonic() + WINDOW_SECONDS
        try:
            while len(self._prefix) < end:
                part = next(self._stream, b"")
                if not part:
                    raise self._cut()
                self._prefix += part
                self._check_time(deadline)
        except httpx2.HTTPError as error:
            # Without ranges there is no going on from the middle.
            raise self._cut() from error


def open_url(url: str, *, headers: Mapping[str, str] | None = None) -> HttpSource:
    """The file behind an http(s) URL. Raises SourceError, SourceMissing, EmptyFile."""
    try:
        usable = bool(urlsplit(url).hostname)
    except ValueError:
        usable = False
    if not usable:
        raise SourceError("{url} is not an address to fetch", url=clip(url))
    return HttpSource(url, headers=headers)


def _client() -> httpx2.Client:
    try:
        return httpx2.Client(timeout=_TIMEOUT, follow_redirects=True, max_redirects=_REDIRECTS)
    except (ValueError, ImportError, httpx2.InvalidURL) as error:
        raise SourceError(
            "the proxy settings cannot be used: {why}", why=clip(str(error)),
            hint="check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY",
        ) from error  # fmt: skip


def _public(url: str) -> str:
    """A URL that may be shown: no query (it can hold a signature), no user and password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host, query="", fragment=""))
