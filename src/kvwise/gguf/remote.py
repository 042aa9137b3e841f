"""http(s) as a source: only the header is fetched, in windows that grow.

A server that ignores ranges is read as a stream that is closed once the header is through. What
was fetched is kept in the cache folder and used again while the server gives the same ETag.
Imports the HTTP library; `open.py` imports this module only for a URL.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

import httpx2

from kvwise.errors import SourceError
from kvwise.gguf import header_cache
from kvwise.gguf.cursor import MAX_HEADER
from kvwise.gguf.fetch import ATTEMPTS, Fetcher, Seen
from kvwise.gguf.lies import EmptyFile, clip
from kvwise.gguf.source import SourceChanged

FIRST_WINDOW: Final = 1024 * 1024
LARGEST_WINDOW: Final = 8 * 1024 * 1024
WINDOW_SECONDS: Final = 120.0
"""One window may take this long: a server that trickles bytes does not hold us for ever."""


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
        self._fetcher = Fetcher(url, headers or {}, client)
        self.name = self._fetcher.name
        self._prefix = bytearray()
        self._saved = 0
        self._cuts = 0
        self._window = FIRST_WINDOW
        self._seen: Seen | None = None
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
        parts = urlsplit(self._fetcher.url)
        folder = parts.path.rpartition("/")[0]
        url = urlunsplit(parts._replace(path=f"{folder}/{quote(name)}"))
        return HttpSource(url, headers=self._fetcher.headers, client=self._fetcher.client)

    def close(self) -> None:
        """End the connection; what was fetched stays in the cache for the next time."""
        if self.etag and len(self._prefix) > self._saved:
            header_cache.save(self._fetcher.url, self.etag, self.size, self._prefix)
            self._saved = len(self._prefix)
        if self._response is not None:
            self._response.close()
            self._response = None
        self._fetcher.close()

    def _begin(self, trust_cache: bool) -> None:
        kept = header_cache.load(self._fetcher.url)
        if kept and trust_cache:
            self._use(kept)
            return
        headers = {"If-None-Match": kept.etag} if kept else {}
        response = self._fetcher.ask(0, FIRST_WINDOW, headers)
        if response.status_code == 304 and kept:
            response.close()
            self._use(kept)
            return
        self._seen = self._fetcher.identify(response, 0)
        if self._seen.size == 0:
            response.close()
            raise EmptyFile("{path} is empty", path=self.name)
        if kept and self._seen == Seen(kept.size, kept.etag):
            response.close()  # a server that does not know If-None-Match, and the same bytes
            self._use(kept)
            return
        self._consume(response, FIRST_WINDOW)

    def _use(self, kept: header_cache.Kept) -> None:
        self._seen = Seen(kept.size, kept.etag)
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
        response = self._fetcher.ask(start, wanted)
        seen = self._fetcher.identify(response, start)
        if seen != self._seen:
            response.close()
            raise SourceChanged(
                "{name} changed on the server while it was read", name=self.name, hint="try again"
            )
        self._consume(response, wanted)

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
        except httpx2.HTTPError:
            pass  # what arrived is good; the next window goes on from there
        finally:
            response.close()
        self._cuts = 0 if len(self._prefix) > before else self._cuts + 1
        if self._cuts >= ATTEMPTS:
            raise self._cut()

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
