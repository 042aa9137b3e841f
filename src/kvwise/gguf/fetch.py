"""One question to an http(s) server and its answer: ranges, refusals, retries in plain words."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import httpx2

from kvwise.errors import SourceError
from kvwise.gguf.lies import EmptyFile, clip, plain
from kvwise.gguf.source import SourceChanged, SourceMissing
from kvwise.oserrors import reason_of
from kvwise.text import Phrase, phrase

ATTEMPTS: Final = 3
"""Tries without a single new byte before a connection counts as broken."""

_TIMEOUT = httpx2.Timeout(20.0, connect=10.0)
_REDIRECTS = 10
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_LENGTH = re.compile(r"\d{1,18}", re.ASCII)
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Seen:
    """What identifies the bytes of a file: it must be the same in every answer."""

    size: int
    etag: str


class Fetcher:
    """Asks for ranges of one URL. `name` is the URL without what may be secret."""

    def __init__(
        self, url: str, headers: Mapping[str, str], client: httpx2.Client | None = None
    ) -> None:
        self.url = url
        self.headers = dict(headers)
        self.client = client or _client()
        self._owns_client = client is None
        self.name = plain(_public(url))

    def close(self) -> None:
        if self._owns_client:
            self.client.close()

    def ask(
        self, start: int, count: int, extra: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """One answer with its body still to come. Raises SourceError in plain words."""
        headers = {
            **self.headers,
            **(extra or {}),
            "Range": f"bytes={start}-{start + count - 1}",
            "Accept-Encoding": "identity",
        }
        for attempt in range(1, ATTEMPTS + 1):
            try:
                request = self.client.build_request("GET", self.url, headers=headers)
                response = self.client.send(request, stream=True)
            except httpx2.TooManyRedirects as error:
                raise SourceError("{name} redirects in circles", name=self.name) from error
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
        why = reason_of(error)
        why = why if isinstance(why, Phrase) else clip(why)
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

    def identify(self, response: httpx2.Response, start: int) -> Seen:
        """Size and ETag of the whole file; sees to it that the body starts at `start`."""
        headers = response.headers
        found = _size(response, start)
        if isinstance(found, Phrase):
            response.close()
            raise SourceError("{name}: the server {problem}", name=self.name, problem=found)
        return Seen(found, headers.get("etag") or headers.get("last-modified") or "")


def _size(response: httpx2.Response, start: int) -> int | Phrase:
    """The size of the whole file, or what is wrong with the answer."""
    headers = response.headers
    encoding = headers.get("content-encoding", "identity")
    if encoding != "identity":
        return phrase("sends {encoding} instead of the file", encoding=clip(encoding))
    if response.status_code == 206:
        match = _RANGE.fullmatch(headers.get("content-range", ""))
        if match is None or int(match[1]) != start or int(match[3]) <= start:
            return phrase("sends another range than asked for")
        return int(match[3])
    if start:
        return phrase("stopped to answer range requests")
    length = headers.get("content-length", "")
    if not _LENGTH.fullmatch(length):
        return phrase("does not say how large the file is")
    return int(length)


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
